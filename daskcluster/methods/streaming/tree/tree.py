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
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from daskcluster.methods.coreset.algorithm import united
from daskcluster.methods.streaming.tree.node import LeafSettings, Node, leaf, merged, retimed
from daskcluster.methods.streaming.tree.stream_rows import StreamRows, joined_rows
from daskcluster.sparse_rows import Rows

FAN_IN = 4
"""Number of consecutive nodes that are merged into one."""

MOST_LEVELS = 10
"""The highest level. Merges there stay on it, so the size of the tree is bounded."""

Carried = Sequence[Node]
"""The merges that a leaf completes: one node per level."""


def carry(nodes: list[Node], settings: LeafSettings, ready: Carried = ()) -> None:
    """Merge the last nodes as long as `FAN_IN` of them have the same level.

    Parameters
    ----------
    nodes : list of Node
        IN/OUT. Oldest first, in order of descending level.
    settings : LeafSettings
    ready : sequence of Node
        Merges that a worker has made; those that are not among them are made here.

    Notes
    -----
    Cost: two visits of the rows of `FAN_IN` nodes for each merge that is not in `ready`.
    """
    while (last := _together(nodes, settings)) is not None:
        node = next((one for one in ready if _is_of(one, last)), None) or _united(last, settings)
        nodes[-FAN_IN:] = [node]


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
    >>> from daskcluster.methods.streaming.tree.node import leaf
    >>> from daskcluster.methods.streaming.tree.stream_rows import StreamRows
    >>> settings = LeafSettings(size=5, leaf_rows=10, seed=0, dtype="float64")
    >>> rows = StreamRows(np.random.default_rng(0).normal(size=(10, 2)))
    >>> leaves = [leaf(rows, number, settings) for number in range(3, 9)]
    >>> [[(node.first, node.stop) for node in each] for each in carried_ahead(leaves, settings)]
    [[], [], [], [], [(4, 8)], []]
    """
    if settings.keeps_all:
        return [() for _ in leaves]
    found, nodes = list[Carried](), list[Node]()
    for each in leaves:
        nodes.append(each)
        own = list[Node]()
        while (last := _together(nodes, settings)) is not None and _is_aligned(last):
            own.append(_united(last, settings))
            nodes[-FAN_IN:] = own[-1:]
        found.append(own)
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


def _united(nodes: Sequence[Node], settings: LeafSettings) -> Node:
    node = merged(nodes, settings)
    return replace(node, level=min(node.level, MOST_LEVELS))


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
    >>> tree.extend(StreamRows(np.random.default_rng(0).normal(size=(1730, 2))))
    >>> [(node.first, node.stop) for node in tree.nodes], tree.tail_rows
    ([(0, 4), (4, 8)], 130)
    >>> rows, weights = tree.summary()
    >>> len(rows), float(weights.sum())
    (230, 1730.0)
    """

    def __init__(self, settings: LeafSettings) -> None:
        self.settings = settings
        self.nodes: list[Node] = []
        self.tail: tuple[StreamRows, ...] = ()
        self.n_leaves = 0
        self.n_rows = 0
        self.now = 0.0

    @property
    def tail_rows(self) -> int:
        return sum(map(len, self.tail))

    @property
    def room(self) -> int:
        """Number of rows that the open leaf lacks."""
        return self.settings.leaf_rows - self.tail_rows

    # -- adding rows --------------------------------------------------------------------------------

    def extend(self, rows: StreamRows) -> None:
        """Add rows, and push the leaves that they fill."""
        for node in self.fill(rows):
            self.push(node)

    def fill(self, rows: StreamRows) -> Iterator[Node]:
        """Add rows; yield every full leaf, which the caller has to `push` before the next.

        Until then, its rows are the tail.
        """
        at = 0
        while len(rows) - at >= self.room:
            part = rows.slice(at, at + self.room)
            at += len(part)
            self._arrived(part)
            self.tail = (joined_rows((*self.tail, part)),)
            yield leaf(self.tail[0], self.n_leaves, self.settings)
        if at < len(rows):
            # A copy, so that the array it was cut from can be freed.
            rest = rows.slice(at, len(rows)).owned()
            self._arrived(rest)
            parts = (*self.tail, rest)
            self.tail = parts if len(parts) <= _MOST_PARTS else (joined_rows(parts),)

    def take(self, node: Node, n_rows: int) -> None:
        """Count the rows of a leaf that a worker has made and that the caller will `push`."""
        self.n_rows += n_rows
        self._tick(node.newest)

    def push(self, node: Node, ready: Carried = ()) -> None:
        """Append a leaf, merge nodes where due, and drop forgotten ones.

        Parameters
        ----------
        node : Node
        ready : sequence of Node
            Merges made by the worker that made the leaf; see `carry`.
        """
        self.closed()
        self.nodes.append(node)
        carry(self.nodes, self.settings, ready)
        self._forget()

    def closed(self) -> None:
        """Close the open leaf: count it and drop its rows from the tail."""
        self.n_leaves += 1
        self.tail = ()

    def _arrived(self, rows: StreamRows) -> None:
        self.n_rows += len(rows)
        if rows.ticks is not None and len(rows):
            self._tick(float(rows.ticks.max()))

    def _tick(self, tick: float) -> None:
        self.now = max(self.now, tick)

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
        rows, weights = united(parts)
        kept = np.flatnonzero(weights > 0.0)
        return (rows, weights) if len(kept) == len(weights) else (rows[kept], weights[kept])

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
        theirs = [retimed(node, shift) for node in other.nodes]
        if other.tail:
            tail = joined_rows(other.tail)
            rest = leaf(tail, self.n_leaves + other.n_leaves, self.settings)
            theirs.append(retimed(rest, shift))
        self.now = max(self.now, other.now + shift)
        self.n_rows += other.n_rows
        self.n_leaves += other.n_leaves
        mine, self.nodes = self.nodes, []
        # High levels first, so that nodes of equal level are adjacent and are merged.
        for node in sorted([*mine, *theirs], key=lambda node: -node.level):
            self.nodes.append(node)
            carry(self.nodes, self.settings)
        self._forget()
