"""Merge-and-reduce tree: a summary of any number of ordered rows in bounded memory.

Rows are cut into leaves of a fixed number of rows, and each leaf becomes a coreset of m rows. Four
consecutive nodes of one level are merged into a coreset of m rows one level up (Har-Peled and Mazumdar,
STOC 2004; Bentley and Saxe, 1980), so that there are at most three nodes per level, like the digits of a
counter. The papers merge two nodes. Four give half as many levels, each of which adds an error, and a
third of the merges, for one and a half times as many nodes. Rows of the open leaf are stored unchanged.
The tree depends only on the rows and their order, not on the batches in which they arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.data_statistics import refuse_rows
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.shuffle_passes import one_pass
from daskcluster.data.weighted import array_weights, least_weight
from daskcluster.elementary import exp2
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import InlinePlacement, LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.events import Callback
from daskcluster.methods.coreset.algorithm import draw_coreset, united
from daskcluster.parameters.checks import seconds_of
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.typing import Dataset, Range

NODE_SHARE = 8
"""No node spans more than the window divided by this, so that rows leave the window in steps of that size.
With a half-life, no node spans more than two of them, as most of its rows would have little weight."""


@dataclass(frozen=True)
class Forgetting:
    """The decay of row weights with age.

    Attributes
    ----------
    half_life : float or None
        Age at which the weight of a row has halved.
    window : float or None
        Age at which the weight of a row becomes zero.
    by_time : bool
        Ages are seconds between timestamps, not numbers of rows.

    Examples
    --------
    >>> float(Forgetting.of("2h", None).left(0.0, now=7200.0))
    0.5
    >>> Forgetting.of(None, 1000).left(np.array([0.0, 600.0]), now=1500.0)
    array([0., 1.])
    """

    half_life: float | None = None
    window: float | None = None
    by_time: bool = False

    @classmethod
    def of(cls, half_life: Any, window: Any) -> Forgetting:
        """Return the decay that the parameters `half_life` and `window` define.

        Raises
        ------
        InvalidParameterError
            Both are given, or one is neither a number of rows > 0 nor a time.
        """
        if half_life is not None and window is not None:
            raise InvalidParameterError(
                f"half_life={half_life!r} and window={window!r} cannot be combined; pass only one of them."
            )
        name, given = ("half_life", half_life) if window is None else ("window", window)
        if given is None:
            return cls()
        text = (
            f"{name}={given!r} should be a number of rows > 0, or a time such as '90s', '10m', '6h' or "
            "'7d'."
        )
        if isinstance(given, (bool, np.bool_)) or not isinstance(
            given, (int, float, np.number, str)
        ):
            raise WrongTypeError(text)
        seconds = seconds_of(given) if isinstance(given, str) else None
        try:
            length = float(given) if seconds is None else seconds
        except ValueError as error:
            raise InvalidParameterError(text) from error
        if not (math.isfinite(length) and length > 0.0):
            raise InvalidParameterError(text)
        return cls(**{name: length}, by_time=seconds is not None)

    @property
    def forgets(self) -> bool:
        return self.half_life is not None or self.window is not None

    @property
    def most_span(self) -> float:
        """The longest time span of the rows of one node."""
        if self.half_life is not None:
            return 2.0 * self.half_life
        return math.inf if self.window is None else self.window / NODE_SHARE

    def left(self, tick: Any, *, now: float) -> Any:
        """Return the fraction of its weight that a row of time `tick` has at `now`.

        Parameters
        ----------
        tick : float or ndarray
            Times on the stream's clock; times after `now` count as `now`.
        now : float
        """
        age = np.maximum(0.0, now - np.asarray(tick, np.float64))
        if self.half_life is not None:
            return exp2(-age / self.half_life)
        if self.window is not None:
            return np.where(age < self.window, 1.0, 0.0)
        return np.ones_like(age)

    def left_of_span(self, oldest: float, newest: float, *, now: float) -> float:
        """Return the fraction of their total weight that the rows of a node have at `now`.

        With a half-life, weights are those at `newest`. With a window, the fraction is that of the span
        from `oldest` to `newest` inside the window, as if rows were spread evenly over it.
        """
        if self.half_life is not None:
            return float(self.left(newest, now=now))
        if self.window is None:
            return 1.0
        edge = now - self.window
        if oldest > edge or newest <= edge:
            return 1.0 if oldest > edge else 0.0
        return (newest - edge) / (newest - oldest)


@dataclass(frozen=True)
class StreamRows:
    """Consecutive rows of a stream.

    Attributes
    ----------
    rows : Rows, shape (n, d)
    weights : ndarray of shape (n,), float64, or None
        Weights before forgetting; None: one each.
    ticks : ndarray of shape (n,), float64, or None
        Time of each row on the stream's clock; None if nothing is forgotten.
    """

    rows: Rows
    weights: np.ndarray | None = None
    ticks: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def slice(self, first: int, last: int) -> StreamRows:
        """Return rows `first` to `last`, as views."""
        cut = slice(first, last)
        return StreamRows(
            self.rows[cut],
            None if self.weights is None else self.weights[cut],
            None if self.ticks is None else self.ticks[cut],
        )

    def owned(self) -> StreamRows:
        """Return a copy of the rows."""
        rows: Rows = self.rows
        weights, ticks = (
            None if each is None else each.copy() for each in (self.weights, self.ticks)
        )
        if isinstance(rows, SparseRows):
            parts = rows.data.copy(), rows.indices.copy(), rows.indptr.copy()
            return StreamRows(SparseRows(*parts, rows.n_features), weights, ticks)
        return StreamRows(rows.copy(), weights, ticks)

    def weights_at(self, forgetting: Forgetting, now: float) -> np.ndarray | None:
        """Return the weights of the rows at `now`; None: one each."""
        if self.ticks is None or not forgetting.forgets:
            return self.weights
        left = forgetting.left(self.ticks, now=now)
        return np.asarray(left if self.weights is None else left * self.weights)


def joined_rows(parts: Sequence[StreamRows]) -> StreamRows:
    """Return the concatenation of parts of a stream."""
    if len(parts) == 1:
        return parts[0]
    weighted = any(part.weights is not None for part in parts)
    own = [np.ones(len(part)) if part.weights is None else part.weights for part in parts]
    rows, weights = united([(part.rows, own[at]) for at, part in enumerate(parts)])
    ticks = None
    if all(part.ticks is not None for part in parts):
        ticks = np.concatenate([np.asarray(part.ticks) for part in parts])
    return StreamRows(rows, weights if weighted else None, ticks)


def in_dtype(rows: Rows, dtype: Any) -> Rows:
    """Return rows in a dtype, in C order; values that are too large for it become infinite."""
    with np.errstate(over="ignore"):
        if isinstance(rows, SparseRows):
            return rows.astype(dtype)
        return np.ascontiguousarray(rows, dtype)


def stream_rows(
    chunk: Chunk,
    dtype: np.dtype,
    forgetting: Forgetting,
    clock: float,
    stamp: float | None = None,
    first: int = 0,
    *,
    normalize: bool = False,
) -> StreamRows:
    """Return a chunk as rows of a stream.

    Parameters
    ----------
    chunk : Chunk
    dtype : numpy.dtype
    forgetting : Forgetting
    clock : float
        Time of the row before `first`: if ages are numbers of rows, the rows from `first` on have times
        clock + 1, clock + 2, ...
    stamp : float or None
        Timestamp of all rows, if ages are times.
    first : int
        A row of the dataset of `chunk`.
    normalize : bool
        Rows are compared at length one, so that none is too large.

    Raises
    ------
    InvalidDataError
        A row holds NaN or infinity, or a value that is too large for the dtype of the stream.
    """
    rows = in_dtype(chunk.rows, dtype)
    ticks = None
    if forgetting.forgets and stamp is not None:
        ticks = np.full(chunk.n_rows, stamp)
    elif forgetting.forgets:
        at = np.arange(chunk.start - first + 1, chunk.stop - first + 1, dtype=np.float64)
        ticks = clock + at
    refuse_rows(rows, lambda bad: chunk.start + bad, normalize=normalize)
    return StreamRows(rows, chunk.weights, ticks)


@dataclass(frozen=True)
class LeafSettings:
    """Settings of leaves and merges; sent to workers.

    Attributes
    ----------
    size : int
        m, the number of rows of a coreset.
    leaf_rows : int
        Number of rows of the stream per leaf.
    seed : int
    dtype : str
        Dtype in which rows are stored.
    normalize : bool
        Compare rows at length one (cosine metric). They are stored without normalization.
    forgetting : Forgetting
    """

    size: int
    leaf_rows: int
    seed: int
    dtype: str
    normalize: bool = False
    forgetting: Forgetting = field(default_factory=Forgetting)

    def chunk(self, rows: Rows, weights: np.ndarray | None = None) -> Chunk:
        """Return rows of the stream as a chunk, normalized if needed."""
        return Chunk(rows, 0, weights, self.normalize)


@dataclass(frozen=True)
class Node:
    """A coreset of consecutive leaves.

    Attributes
    ----------
    level : int
        Number of merges above a leaf; a leaf has level 0.
    first, stop : int
        Range of the numbers of its leaves.
    rows : Rows, shape (m, d)
    weights : ndarray of shape (m,), float64
        Weights at time `newest`; their sum is the exact weight of the rows that the node represents.
    oldest, newest : float
        Time span of these rows, on the clock of the stream.
    """

    level: int
    first: int
    stop: int
    rows: Rows
    weights: np.ndarray
    oldest: float
    newest: float

    @cached_property
    def weight(self) -> float:
        """Sum of the weights; cached, because every leaf needs it for all nodes."""
        return float(self.weights.sum())

    def weights_at(self, forgetting: Forgetting, now: float) -> np.ndarray:
        """Return the weights of the rows at `now`."""
        return self.weights * forgetting.left_of_span(self.oldest, self.newest, now=now)

    def weight_at(self, forgetting: Forgetting, now: float) -> float:
        """Return the total weight of the rows at `now`."""
        left = forgetting.left_of_span(self.oldest, self.newest, now=now)
        return self.weight if left == 1.0 else float((self.weights * left).sum())


def leaf(rows: StreamRows, number: int, settings: LeafSettings) -> Node:
    """Return leaf `number`: the coreset of its rows.

    Notes
    -----
    Cost: two visits of the rows, or three if they have weights or a half-life.
    """
    ticks = rows.ticks
    oldest, newest = (0.0, 0.0) if ticks is None else (float(ticks.min()), float(ticks.max()))
    weights = rows.weights
    if settings.forgetting.half_life is not None:
        weights = rows.weights_at(settings.forgetting, newest)
    key = Key(settings.seed, "leaf of a stream", number)
    kept, found = _drawn(rows.rows, weights, key, settings)
    return Node(0, number, number + 1, kept, found, oldest, newest)


def merged(nodes: Sequence[Node], settings: LeafSettings) -> Node:
    """Return the node that replaces consecutive nodes: their union, sampled again if it is too large."""
    newest, forgetting, parts = max(node.newest for node in nodes), settings.forgetting, []
    for node in nodes:
        # With a window, weights do not decay; a node loses weight as its span leaves the window.
        left = (
            1.0 if forgetting.half_life is None else float(forgetting.left(node.newest, now=newest))
        )
        parts.append((node.rows, node.weights * left))
    rows, weights = united(parts)
    level, stop = max(node.level for node in nodes) + 1, nodes[-1].stop
    if len(rows) > settings.size:
        key = Key(settings.seed, f"merge {level}", stop)
        rows, weights = _drawn(rows, weights, key, settings)
    oldest = min(node.oldest for node in nodes)
    return Node(min(level, MOST_LEVELS), nodes[0].first, stop, rows, weights, oldest, newest)


def _drawn(
    rows: Rows, weights: np.ndarray | None, key: Key, settings: LeafSettings
) -> tuple[Rows, np.ndarray]:
    total = float(len(rows)) if weights is None else float(weights.sum())
    if not total > 0.0:
        return rows[:0], np.empty(0)
    if weights is not None:
        rows, weights = _counted(rows, weights)
    dataset: RowDataset = ArrayDataset(rows)
    if weights is not None:
        dataset = dataset.with_weights(array_weights(weights, len(rows)))
    with InlinePlacement(dataset.normalized() if settings.normalize else dataset) as placement:
        found = draw_coreset(ScaledPlacement(placement), settings.size, key.derived_seed())
    # The total weight is known exactly; without this, its error would grow with each level.
    return found.rows, found.weights * (total / float(found.weights.sum()))


def _counted(rows: Rows, weights: np.ndarray) -> tuple[Rows, np.ndarray]:
    """Return the rows that are not too light to count next to the others, as those of long ago are."""
    least = least_weight(float(weights.max(initial=0.0)), len(weights))
    kept = np.flatnonzero((weights > 0.0) & (weights >= least))
    return (rows, weights) if len(kept) == len(weights) else (rows[kept], weights[kept])


FAN_IN = 4
"""Number of consecutive nodes that are merged into one."""

MOST_LEVELS = 10
"""The highest level. Merges there stay on it, so the size of the tree is bounded."""

Carried = Sequence[Node]
"""The merges that a leaf completes: one node per level."""


def carry(
    nodes: list[Node],
    settings: LeafSettings,
    ready: Carried = (),
    is_due: Callable[[Sequence[Node]], bool] = lambda nodes: True,
) -> list[Node]:
    """Merge the last nodes as long as `FAN_IN` of them have the same level; return the merges.

    Parameters
    ----------
    nodes : list of Node
        IN/OUT. Oldest first, in order of descending level.
    settings : LeafSettings
    ready : sequence of Node
        Merges that a worker has made; those that are not among them are made here.
    is_due : callable (nodes) -> bool
        Whether to merge nodes that may be merged.

    Notes
    -----
    Cost: two visits of the rows of `FAN_IN` nodes for each merge that is not in `ready`.
    """
    made = list[Node]()
    while (last := _together(nodes, settings)) is not None and is_due(last):
        node = next((one for one in ready if _is_of(one, last)), None) or merged(last, settings)
        nodes[-FAN_IN:] = [node]
        made.append(node)
    return made


def carried_ahead(leaves: Sequence[Node], settings: LeafSettings) -> list[Carried]:
    """Return the merges that consecutive leaves complete and that involve no other leaves.

    Parameters
    ----------
    leaves : sequence of Node
    settings : LeafSettings

    Returns
    -------
    list of sequences of Node
        The merges of each leaf.

    Examples
    --------
    >>> import numpy as np
    >>> settings = LeafSettings(size=5, leaf_rows=10, seed=0, dtype="float64")
    >>> rows = StreamRows(np.random.default_rng(0).normal(size=(10, 2)))
    >>> leaves = [leaf(rows, number, settings) for number in range(3, 9)]
    >>> [[(node.first, node.stop) for node in each] for each in carried_ahead(leaves, settings)]
    [[], [], [], [], [(4, 8)], []]
    """
    found, nodes = list[Carried](), list[Node]()
    for each in leaves:
        nodes.append(each)
        found.append(carry(nodes, settings, is_due=_is_aligned))
    return found


def _together(nodes: Sequence[Node], settings: LeafSettings) -> Sequence[Node] | None:
    """Return the last `FAN_IN` nodes if they are due to be merged, else None."""
    last = nodes[-FAN_IN:]
    if len(last) < FAN_IN or last[0].level > last[-1].level:
        return None
    span = max(node.newest for node in last) - min(node.oldest for node in last)
    return last if span <= settings.forgetting.most_span else None


def _is_aligned(nodes: Sequence[Node]) -> bool:
    """Whether a tree that has dropped no nodes would merge exactly these."""
    level = nodes[0].level
    return level == nodes[-1].level and nodes[0].first % FAN_IN ** (level + 1) == 0


def _is_of(node: Node, parts: Sequence[Node]) -> bool:
    """Whether `node` is the merge of `parts`: it has the same leaves, and none is missing."""
    edges = [parts[0].first, *(part.stop for part in parts)]
    starts = [part.first for part in parts]
    return (
        (node.first, node.stop) == (edges[0], edges[-1])
        and starts == edges[:-1]
        and all(part.level == node.level - 1 for part in parts)
    )


_MOST_PARTS = 64

_FORGOTTEN = 2.0**-10
"""Nodes with less than this fraction of the total weight are dropped."""


@dataclass(eq=False)
class CoresetTree:
    """The summary of a stream.

    Parameters
    ----------
    settings : LeafSettings

    Attributes
    ----------
    nodes : list of Node
        Oldest first, in order of descending level.
    tail : tuple of StreamRows
        Rows of the open leaf, in order.
    n_leaves, n_rows : int
        Number of full leaves and of rows so far.
    now : float
        Clock of the stream: the number of rows, or the latest timestamp.

    Examples
    --------
    >>> import numpy as np
    >>> settings = LeafSettings(size=50, leaf_rows=200, seed=0, dtype="float64")
    >>> tree = CoresetTree(settings)
    >>> for node in tree.fill(StreamRows(np.random.default_rng(0).normal(size=(1730, 2)))):
    ...     tree.push(node)
    >>> [(node.first, node.stop) for node in tree.nodes], tree.tail_rows
    ([(0, 4), (4, 8)], 130)
    >>> rows, weights = tree.summary()
    >>> len(rows), float(weights.sum())
    (230, 1730.0)
    """

    settings: LeafSettings
    nodes: list[Node] = field(default_factory=list)
    tail: tuple[StreamRows, ...] = ()
    n_leaves: int = 0
    n_rows: int = 0
    now: float = 0.0

    @property
    def tail_rows(self) -> int:
        return sum(map(len, self.tail))

    @property
    def room(self) -> int:
        """Number of rows that the open leaf lacks."""
        return self.settings.leaf_rows - self.tail_rows

    # -- adding rows --------------------------------------------------------------------------------

    def fill(self, rows: StreamRows) -> Iterator[Node]:
        """Add rows; yield every full leaf, which the caller has to `push` before the next.

        Until then, its rows are the tail.
        """
        at = 0
        while at < len(rows):
            part = rows.slice(at, min(len(rows), at + self.room))
            is_full, at = len(part) == self.room, at + len(part)
            # A copy of the rest, so that the array it was cut from can be freed.
            part = part if is_full else part.owned()
            self.n_rows += len(part)
            if part.ticks is not None:
                self.now = max(self.now, float(part.ticks.max()))
            parts = (*self.tail, part)
            is_long = is_full or len(parts) > _MOST_PARTS
            self.tail = (joined_rows(parts),) if is_long else parts
            if is_full:
                yield leaf(self.tail[0], self.n_leaves, self.settings)

    def push(self, node: Node, ready: Carried = ()) -> None:
        """Append a leaf, merge nodes where due, and drop forgotten ones.

        Parameters
        ----------
        node : Node
        ready : sequence of Node
            Merges made by the worker that made the leaf; see `carry`.
        """
        self.n_leaves += 1
        self.tail = ()
        self.nodes.append(node)
        carry(self.nodes, self.settings, ready)
        self._forget()

    def _forget(self) -> None:
        forgetting = self.settings.forgetting
        if not forgetting.forgets:
            return
        left = [node.weight_at(forgetting, self.now) for node in self.nodes]
        least = _FORGOTTEN * math.fsum(left)
        self.nodes = [node for node, weight in zip(self.nodes, left, strict=True) if weight > least]

    # -- summary ------------------------------------------------------------------------------------

    def summary(self) -> tuple[Rows, np.ndarray]:
        """Return rows that represent all remembered rows, and their current weights.

        Requires `kept_rows` > 0.
        """
        forgetting = self.settings.forgetting
        parts = [(node.rows, node.weights_at(forgetting, self.now)) for node in self.nodes]
        for open_rows in self.tail:
            own = open_rows.weights_at(forgetting, self.now)
            parts.append((open_rows.rows, np.ones(len(open_rows)) if own is None else own))
        return _counted(*united(parts))

    @property
    def kept_rows(self) -> int:
        """Number of rows of all nodes and of the tail."""
        return sum(len(node.rows) for node in self.nodes) + self.tail_rows

    @property
    def weight(self) -> float:
        """Weight of all rows after forgetting."""
        forgetting, total = self.settings.forgetting, 0.0
        for node in self.nodes:
            total += node.weight_at(forgetting, self.now)
        for rows in self.tail:
            weights = rows.weights_at(forgetting, self.now)
            total += float(len(rows)) if weights is None else float(weights.sum())
        return total

    def absorb(self, other: CoresetTree) -> None:
        """Merge the rows of another stream that ran in parallel.

        If ages are numbers of rows, the other clock is set to this one; timestamps stay the same. The open
        leaf of the other stream becomes a smaller leaf.
        """
        shift = 0.0 if self.settings.forgetting.by_time else self.now - other.now
        theirs = list(other.nodes)
        if other.tail:
            number = self.n_leaves + other.n_leaves
            theirs.append(leaf(joined_rows(other.tail), number, self.settings))
        theirs = [
            replace(node, oldest=node.oldest + shift, newest=node.newest + shift) for node in theirs
        ]
        self.now = max(self.now, other.now + shift)
        self.n_rows += other.n_rows
        self.n_leaves += other.n_leaves
        mine, self.nodes = self.nodes, []
        # High levels first, so that nodes of equal level are adjacent and are merged.
        for node in sorted([*mine, *theirs], key=lambda node: -node.level):
            self.nodes.append(node)
            carry(self.nodes, self.settings)
        self._forget()


@dataclass(frozen=True)
class Position:
    """A position in a stream, at which a piece begins.

    Attributes
    ----------
    n_leaves : int
        Number of full leaves before it.
    tail_rows : int
        Number of rows in the open leaf.
    clock : float
        Clock of the stream, if it counts rows.
    """

    n_leaves: int
    tail_rows: int
    clock: float

    def after(self, n_rows: int, leaf_rows: int) -> Position:
        """Return the position after the next `n_rows` rows."""
        rows = self.tail_rows + n_rows
        return Position(self.n_leaves + rows // leaf_rows, rows % leaf_rows, self.clock + n_rows)


@dataclass(frozen=True)
class Piece:
    """The summary of consecutive rows.

    Attributes
    ----------
    head : StreamRows or None
        Rows that complete the open leaf, or that form the first leaf, whose row order numbers the initial
        centres.
    leaves : tuple of Node
    carried : tuple of sequences of Node
        For each of `leaves`, the merges that it completes.
    tail : StreamRows or None
        Rows of a leaf that stays open.
    leaf_rows : int
        Number of rows per leaf.
    """

    head: StreamRows | None
    leaves: tuple[Node, ...]
    carried: tuple[Carried, ...]
    tail: StreamRows | None
    leaf_rows: int

    def leaves_into(self, tree: CoresetTree) -> Iterator[tuple[Node, Carried]]:
        """Add the piece to a tree; yield every full leaf, which the caller has to push before the next."""
        if self.head is not None:
            yield from ((node, ()) for node in tree.fill(self.head))
        for node, carried in zip(self.leaves, self.carried, strict=True):
            tree.n_rows += self.leaf_rows
            tree.now = max(tree.now, node.newest)
            yield node, carried
        if self.tail is not None:
            yield from ((node, ()) for node in tree.fill(self.tail))


@dataclass(frozen=True)
class Part:
    """Rows of one open dataset. It is picklable: other processes open the dataset again.

    Attributes
    ----------
    dataset : Dataset
    span : (start, stop)
    stamp : float or None
        Timestamp of all rows.
    """

    dataset: Dataset
    span: Range
    stamp: float | None = None

    @property
    def n_rows(self) -> int:
        return self.span[1] - self.span[0]


@dataclass(frozen=True)
class SumUp:
    """A task that summarises consecutive rows of a stream, in any process that can open their datasets.

    Attributes
    ----------
    parts : tuple of Part
    position : Position
        Position of the first row.
    settings : LeafSettings
    """

    parts: tuple[Part, ...]
    position: Position
    settings: LeafSettings

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    def __call__(self) -> Piece:
        """Read the rows once and return their summary.

        Raises
        ------
        InvalidDataError
            A chunk cannot be read, or a row is not finite.
        """
        leaf_rows, position = self.settings.leaf_rows, self.position
        # The first rows may belong to a leaf that the driver makes: an open leaf, or the first one.
        has_head = position.tail_rows > 0 or position.n_leaves == 0
        numbers = count(position.n_leaves + has_head)
        lead = leaf_rows - position.tail_rows if has_head else 0
        head, leaves, open_rows = None, list[Node](), list[StreamRows]()
        wanted = lead or leaf_rows
        for rows in self._rows():
            at = 0
            while at < len(rows):
                part = rows.slice(at, min(len(rows), at + wanted))
                at += len(part)
                wanted -= len(part)
                open_rows.append(part)
                if wanted:
                    continue
                full, open_rows, wanted = joined_rows(open_rows), [], leaf_rows
                if head is None and lead:
                    head = full.owned()
                else:
                    leaves.append(leaf(full, next(numbers), self.settings))
        tail = joined_rows(open_rows).owned() if open_rows else None
        carried = tuple(carried_ahead(leaves, self.settings))
        return Piece(head, tuple(leaves), carried, tail, leaf_rows)

    def _rows(self) -> Iterator[StreamRows]:
        settings, first = self.settings, self.position.clock
        for part in self.parts:
            for chunk in part.dataset.chunks([part.span]):
                at = first, part.stamp, part.span[0]
                kind, normalize = np.dtype(settings.dtype), settings.normalize
                yield stream_rows(chunk, kind, settings.forgetting, *at, normalize=normalize)
            first += part.n_rows


PIECE_BYTES = 32 << 20
"""Bytes of rows per task: several chunks, because chunks at its edges are read by two tasks."""

_BYTES_IN_MEMORY = 4 << 20
_PIECES_IN_MEMORY = 16
"""Rows in memory are cut into this many pieces, within limits, to keep several threads busy."""


def cut_pieces(parts: Sequence[Part], position: Position, settings: LeafSettings) -> list[SumUp]:
    """Return the tasks that summarise rows, in order. Where possible, they end at the ends of leaves.

    Parameters
    ----------
    parts : sequence of Part
        In the order of the stream.
    position : Position
        Position of the first row.
    settings : LeafSettings
    """
    tasks, current = list[SumUp](), list[Part]()
    for part, cuts in zip(parts, _cuts(parts, position, settings), strict=True):
        dataset = part.dataset
        if isinstance(dataset, RowDataset):
            dataset = dataset.sharing([span for span, _ in cuts])
        for span, is_last in cuts:
            current.append(Part(dataset, span, part.stamp))
            if is_last:
                tasks.append(SumUp(tuple(current), position, settings))
                position, current = position.after(tasks[-1].n_rows, settings.leaf_rows), []
    return [*tasks, SumUp(tuple(current), position, settings)] if current else tasks


def _cuts(
    parts: Sequence[Part], position: Position, settings: LeafSettings
) -> list[list[tuple[Range, bool]]]:
    """Return, for each part, its ranges of rows by piece, and whether each range ends its piece."""
    most, found = _most_leaves(parts, settings), list[list[tuple[Range, bool]]]()
    wanted = size = _rows_to(most, position, settings)
    for part in parts:
        found.append([])
        start, stop = part.span
        while start < stop:
            last = min(stop, start + wanted)
            wanted -= last - start
            found[-1].append(((start, last), not wanted))
            start = last
            if not wanted:
                position = position.after(size, settings.leaf_rows)
                wanted = size = _rows_to(most, position, settings)
    return found


def _most_leaves(parts: Sequence[Part], settings: LeafSettings) -> int:
    """Return the number of leaves per piece, such that pieces end where merges do and can make them."""
    present = [part for part in parts if part.n_rows]
    if not present:
        return 1
    sizes = [part.dataset.bytes_of(part.span) for part in present]
    row_bytes = max(1, sizes[0] // present[0].n_rows)
    n_bytes = PIECE_BYTES
    if present[0].dataset.in_memory:
        n_bytes = min(PIECE_BYTES, max(_BYTES_IN_MEMORY, sum(sizes) // _PIECES_IN_MEMORY))
    leaves = max(1, n_bytes // (row_bytes * settings.leaf_rows))
    return leaves // _merging(leaves) * _merging(leaves)


def _merging(leaves: int) -> int:
    """Return the largest power of `FAN_IN` up to `leaves`: the leaves of one merged node."""
    found = 1
    while found * FAN_IN <= leaves:
        found *= FAN_IN
    return found


def _rows_to(most: int, position: Position, settings: LeafSettings) -> int:
    """Return the number of rows from `position` to the end of a piece of at most `most` leaves."""
    leaves = most - position.n_leaves % _merging(most)
    return leaves * settings.leaf_rows - position.tail_rows


def check_timestamp(forgetting: Forgetting, timestamp: float | None) -> None:
    """Refuse a missing timestamp if ages are times, and a timestamp that has no effect."""
    if forgetting.by_time and timestamp is None:
        raise InvalidParameterError(
            "half_life or window is a time, so rows need a timestamp: pass timestamp= to partial_fit, in "
            "seconds."
        )
    if timestamp is not None and not forgetting.by_time:
        raise InvalidParameterError(
            f"timestamp={timestamp!r} has no effect where neither half_life nor window is a time; omit it, "
            "or set one of them to a time such as '6h'."
        )


def sum_up(
    parts: Sequence[Part],
    position: Position,
    settings: LeafSettings,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
) -> Generator[Piece]:
    """Summarise the next parts of a stream; yield the pieces in order while later parts are being read.

    Parameters
    ----------
    parts : sequence of Part
    position : Position
        Position of the first row.
    settings : LeafSettings
    engine : Engine
    callbacks : sequence of callables
        Called with the events of one pass; progress is reported when the next piece is requested.
    """
    tasks = cut_pieces(parts, position, settings)
    is_short = len(parts) == len(tasks) == 1  # not worth sending to workers
    if is_short or not all(engine.can_read(part.dataset) for part in parts):
        engine = LocalEngine(1) if is_short else LocalEngine()
    n_rows = sum(task.n_rows for task in tasks)
    with (
        one_pass("coresets", n_rows, callbacks) as running,
        closing(engine.run_ahead(tasks)) as found,
    ):
        for task, each in zip(tasks, found, strict=True):
            yield each
            running.advance(task.n_rows)
        read = (part for part in parts if not part.dataset.in_memory)
        running.read(sum(part.dataset.bytes_of(part.span) for part in read))
