"""Cells of rows and levels of clusters: quotas, rows gathered cell by cell, fits, resampling, the model.

Vo et al., "Automatic Data Curation for Self-Supervised Learning: A Clustering-Based Approach" (2024),
algorithm 1: the first level clusters rows, each further one the centres below it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.assign import RowParams, label_rows, nearest_function, prepare_rows
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.labelled import (
    CHOOSE,
    PICK,
    Choice,
    ChoiceParams,
    OneCluster,
    PickedRows,
    PickParams,
    Ranking,
)
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.data.open import open_chunk
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError, ModelFormatError, WrongTypeError
from daskcluster.estimators.loop import Limits
from daskcluster.events import StopReason
from daskcluster.methods.kmeans.algorithm import CentresState, lloyd
from daskcluster.methods.kmeans.initial import initial_centres, method_for
from daskcluster.models.fitted import KMeansModel
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows, join_rows
from daskcluster.storage.document import Shapes, check_numbers
from daskcluster.typing import Dataset, Range

_PENDING = 1 << 16
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class DistinctParams:
    """Centres, and the limits of the counts.

    Attributes
    ----------
    centres : ndarray of shape (c, d)
    most : ndarray of shape (c,), int64
        Limit of each centre; rows of one whose limit is 0 are left out.
    labels : ndarray of shape (n,), int32, or None
        The nearest centre of every row, if it is known in this process.
    """

    centres: np.ndarray
    most: np.ndarray
    labels: np.ndarray | None = None


@dataclass
class DistinctRows:
    """The smallest hashes of different rows of each cell, sorted by cell, then by hash.

    Attributes
    ----------
    most : ndarray of shape (c,), int64
    cells : ndarray of shape (m,), int32
    hashes : ndarray of shape (m,), uint64
    """

    most: np.ndarray
    cells: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    hashes: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    _pending: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    _n_pending: int = 0

    def __post_init__(self) -> None:
        self._limits = np.where(self.most > 0, _ALL, np.uint64(0))

    @property
    def counts(self) -> np.ndarray:
        """Different rows of each cell, (c,) int64; a cell that has reached its limit may have more."""
        self._settle()
        return np.bincount(self.cells, minlength=len(self.most)).astype(np.int64)

    def add(self, cells: np.ndarray, hashes: np.ndarray) -> None:
        """Add rows by cell and hash."""
        kept = hashes < self._limits[cells]
        self._pending.append((cells[kept], hashes[kept]))
        self._n_pending += int(kept.sum())
        if self._n_pending > max(_PENDING, len(self.cells)):
            self._settle()

    def combine(self, other: DistinctRows) -> DistinctRows:
        other._settle()
        self._pending.append((other.cells, other.hashes))
        self._settle()
        return self

    def _settle(self) -> None:
        if not self._pending:
            return
        cells = np.concatenate([self.cells, *(pair[0] for pair in self._pending)])
        hashes = np.concatenate([self.hashes, *(pair[1] for pair in self._pending)])
        self._pending, self._n_pending = [], 0
        order = np.lexsort((hashes, cells))
        cells, hashes = cells[order], hashes[order]
        fresh = np.ones(len(cells), bool)
        fresh[1:] = (cells[1:] != cells[:-1]) | (hashes[1:] != hashes[:-1])
        cells, hashes = cells[fresh], hashes[fresh]
        counts = np.bincount(cells, minlength=len(self.most))
        firsts = np.cumsum(counts) - counts
        rank = np.arange(len(cells)) - firsts[cells]
        kept = rank < self.most[cells]
        self.cells, self.hashes = cells[kept], hashes[kept]
        full = np.flatnonzero((counts >= self.most) & (self.most > 0))
        self._limits[full] = hashes[firsts[full] + self.most[full] - 1]


def row_hashes(rows: Rows) -> np.ndarray:
    """Return 64 bits for each row, uint64 (n,): equal for equal rows, dense or sparse.

    A sum over the values that are not zero, so 0.0, -0.0 and what CSR leaves out are the same.
    """
    if isinstance(rows, SparseRows):
        parts = _mixed(rows.data, rows.indices)
        sums = np.concatenate([[np.uint64(0)], np.cumsum(parts, dtype=np.uint64)])
        return np.asarray(sums[rows.offsets[1:]] - sums[rows.offsets[:-1]])
    columns = np.arange(rows.shape[1])
    return np.asarray(_mixed(rows, columns).sum(axis=1, dtype=np.uint64))


def _mixed(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood, 2014) of each value and its column."""
    bits = np.ascontiguousarray(values).view(f"u{values.itemsize}").astype(np.uint64)
    bits += (columns.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    bits[values == 0] = 0
    return bits


def _prepare(params: DistinctParams) -> tuple[DistinctParams, PreparedCentres]:
    return params, PreparedCentres(params.centres)


def _zero(prepared: tuple[DistinctParams, PreparedCentres]) -> DistinctRows:
    return DistinctRows(prepared[0].most)


def _distinct_chunk(
    chunk: Chunk, prepared: tuple[DistinctParams, PreparedCentres], into: DistinctRows
) -> None:
    params, centres = prepared
    for block in chunk.cache_blocks():
        if params.labels is None:
            labels = np.empty(block.n_rows, np.int32)
            centres.nearest(block.rows, labels)
        else:
            labels = params.labels[block.start : block.stop]
        hashes = row_hashes(block.rows)
        if block.weights is not None:
            weighty = block.weights > 0.0  # a row without weight is never a centre
            labels, hashes = labels[weighty], hashes[weighty]
        into.add(labels, hashes)


DISTINCT = Reduction(
    name="distinct rows",
    prepare=_prepare,
    zero=_zero,
    chunk=_distinct_chunk,
)
"""`DistinctParams` -> `DistinctRows`."""


_SHARE, _LEAST_BYTES, _MOST_BYTES = 16, 64 << 20, 4 << 30


def gather_cells(
    dataset: Dataset,
    centres: np.ndarray,
    sizes: np.ndarray,
    span: Range,
    *,
    labels: np.ndarray | None = None,
    on_read: Callable[[int], None] | None = None,
) -> list[Chunk]:
    """Return the rows of some consecutive cells, each in the order of the dataset.

    Parameters
    ----------
    dataset : Dataset
    centres : ndarray of shape (c, d)
        Centres of all cells.
    sizes : ndarray of shape (c,), int64
        Rows of each cell.
    span : (first, last)
        Cells `first` to below `last`.
    labels : ndarray of shape (n,), int32, optional
        The cell of every row, if known; else rows are labelled while they are read.
    on_read : callable (int) -> None
        Called with the decoded bytes of every block fetched from the store.

    Returns
    -------
    list of Chunk
        In the dtype of the source; their ``start`` is meaningless.

    Notes
    -----
    Cost: one pass, c distances a row unless `labels` are given. Memory: the rows of the cells, twice
    if they are sparse.
    """
    first, last = span
    edges = np.concatenate([[0], np.cumsum(sizes[first:last], dtype=np.int64)])
    filled, n = edges[:-1].copy(), int(edges[-1])
    weights = None if dataset.weights is None else np.empty(n)
    dense: np.ndarray | None = None
    parts, places = list[SparseRows](), list[np.ndarray]()
    dtype = compute_dtype(dataset.dtype)
    prepared = prepare_rows(RowParams(np.ascontiguousarray(centres, dtype)))
    for chunk in dataset.chunks(dataset.partitions, on_read=on_read):
        found = label_rows(chunk, prepared) if labels is None else labels[chunk.start : chunk.stop]
        which = np.flatnonzero((found >= first) & (found < last))
        # Where the rows go: to what is filled of their cell, in the order of the chunk.
        which = which[np.argsort(found[which], kind="stable")]
        counts = np.bincount(found[which] - first, minlength=last - first)
        starts = filled - (np.cumsum(counts) - counts)
        at = np.arange(len(which)) + np.repeat(starts, counts)
        filled += counts
        if weights is not None and chunk.weights is not None:
            weights[at] = chunk.weights[which]
        if isinstance(chunk.rows, SparseRows):
            parts.append(chunk.rows[which])
            places.append(at)
        else:
            dense = np.empty((n, dataset.n_features), dataset.dtype) if dense is None else dense
            dense[at] = chunk.rows[which]
        del chunk
    rows: Rows = np.empty((n, dataset.n_features), dataset.dtype) if dense is None else dense
    order = np.empty(n if parts else 0, np.int64)
    if parts:
        # The inverse of the destinations gives the next row of each cell.
        order[np.concatenate(places)] = np.arange(n)
        rows = join_rows(parts)
    cells = []
    for start, stop in pairwise(edges.tolist()):
        own = rows[order[start:stop]] if parts else rows[start:stop]
        of_cell = None if weights is None else weights[start:stop]
        cells.append(Chunk(own, 0, of_cell, dataset.normalize))
    return cells


def n_groups(n_bytes: int) -> int:
    """Return the number of groups in which cells are gathered, for rows of that many bytes.

    Each is a sixteenth of the rows, but at least 64 MB, and at most 4 GB.

    Examples
    --------
    >>> n_groups(10 << 20), n_groups(256 << 20), n_groups(10 << 30), n_groups(1 << 40)
    (1, 4, 16, 256)
    """
    return max(1, -(-n_bytes // group_bytes(n_bytes)))


def group_bytes(n_bytes: int) -> int:
    """Return the bytes of rows of a group, of `n_bytes` in total."""
    return min(max(-(-n_bytes // _SHARE), _LEAST_BYTES), _MOST_BYTES)


def cell_groups(sizes: np.ndarray, groups: int) -> Sequence[Range]:
    """Cut cells into at most that many groups of consecutive cells of about the same number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> cell_groups(np.array([5, 1, 1, 3, 0, 6]), 3)
    [(0, 1), (1, 5), (5, 6)]
    """
    ends = np.cumsum(sizes)
    middles = ends - sizes / 2.0
    group_numbers = np.minimum((middles * groups / max(1, ends[-1])).astype(np.int64), groups - 1)
    cuts = [0, *(np.flatnonzero(np.diff(group_numbers)) + 1).tolist(), len(sizes)]
    return list(pairwise(cuts))


def apportion(weights: np.ndarray, seats: int, most: np.ndarray) -> np.ndarray:
    """Return the number of seats of each cell.

    Parameters
    ----------
    weights : ndarray of shape (c,)
        Finite and >= 0. Cells without weight get nothing; there are at most `seats` others.
    seats : int
    most : ndarray of shape (c,), int64
        Maximum number of seats of each cell.

    Returns
    -------
    ndarray of shape (c,), int64
        At least 1 and at most `most` for each cell with weight. The sum is `seats`, or that of `most`
        where it is less. Ties go to the lowest cell.

    Examples
    --------
    >>> import numpy as np
    >>> apportion(np.array([60.0, 30.0, 9.0, 1.0, 0.0]), 10, np.array([99, 2, 99, 99, 99])).tolist()
    [6, 2, 1, 1, 0]
    """
    given = ((weights > 0.0) & (most > 0)).astype(np.int64)
    open_cells = np.flatnonzero(given & (most > 1))
    heap = [(-float(weights[cell]) / 3.0, int(cell)) for cell in open_cells]
    heapq.heapify(heap)
    for _ in range(seats - int(given.sum())):
        if not heap:
            break
        cell = heap[0][1]
        given[cell] += 1
        if given[cell] < most[cell]:
            heapq.heapreplace(heap, (-float(weights[cell]) / (2.0 * given[cell] + 1.0), cell))
        else:
            heapq.heappop(heap)
    return given


def quota_shares(weights: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return how many of all clusters each cell should get, float64 (c,), up to a factor.

    A cell of cost c with m clusters costs about c m^(-2/e) in e effective dimensions. The total is least
    for m in proportion to c^(e / (e + 2)). Few rows fill more than two dimensions at the scale of their
    clusters, and with e = 2 no measured set did notably worse than with any other e: the square root.

    Parameters
    ----------
    weights, costs : ndarray of shape (c,)
        Weight of the rows of each cell, and the weighted sum of their squared distances to its centre.

    Examples
    --------
    >>> quota_shares(np.array([6.0, 6.0, 6.0, 0.0]), np.array([9.0, 1.0, 0.0, 0.0])).tolist()
    [3.0, 1.0, 5e-324, 0.0]
    """
    least = np.nextafter(0.0, 1.0)  # rows that are all alike need one cluster
    return np.where(weights > 0.0, np.maximum(np.sqrt(costs), least), 0.0)


def cell_method(init: str, n_clusters: int, n_values: int) -> str:
    """Return the seeding method within a cell with so many values of rows.

    By default k-means++, and AFK-MC2 of many clusters of many rows: greedy k-means++ takes six times as
    long where a cell has hundreds of them, for a quarter of a percent of its inertia, which the refinement
    levels.

    Examples
    --------
    >>> cell_method("auto", 20, 10**9), cell_method("auto", 200, 10**9), cell_method("random", 20, 100)
    ('k-means++', 'afk-mc2', 'random')
    """
    if init == "auto":
        few = n_clusters <= _FEW_CLUSTERS or n_clusters * n_values <= _FEW_PRODUCTS
        return "k-means++" if few else "afk-mc2"
    return method_for(init, in_memory=True)


_FEW_CLUSTERS, _FEW_PRODUCTS = 64, 1 << 27
_SLACK = 4
"""Distinct rows of a cell are counted up to its quota plus a quarter, which it may still get."""


@dataclass(frozen=True)
class CellParameters:
    """Parameters of the fits in cells: plain values sent to a worker.

    Attributes
    ----------
    init, chain_length, max_iter, tol
        Parameters of each fit.
    seed : int
        Seed from which that of each cell is derived.
    """

    init: str
    chain_length: int
    max_iter: int
    tol: float
    seed: int


@dataclass(frozen=True)
class HierarchicalState:
    """State of a fit between groups of cells, or between iterations of all centres.

    Attributes
    ----------
    coarse : ndarray of shape (c, d)
        Centres of the cells.
    sizes, quotas : ndarray of shape (c,), int64
        Rows of each cell, and its number of clusters.
    n_cells : int
        Number of cells, from the first one on, whose centres are found.
    centres : ndarray of shape (m, d), or None
        Their centres, one cell after the other; all k once all cells are done. None before the first.
    history, reason
        History of the iterations of all centres together, see `daskcluster.estimators.loop.LoopState`.
    rounds : int
        Rounds of resampling that followed.
    """

    coarse: np.ndarray
    sizes: np.ndarray
    quotas: np.ndarray
    n_cells: int = 0
    centres: np.ndarray | None = None
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    rounds: int = 0

    def joined(self, n_cells: int, centres: np.ndarray) -> Self:
        """Return the state with the centres (m, d) of the next cells, those before `n_cells`."""
        both = centres if self.centres is None else np.concatenate([self.centres, centres])
        return replace(self, n_cells=n_cells, centres=both if len(both) else None)

    def filled(self, k: int) -> Self:
        """Return the state with k centres: if fewer rows differ, the first centre is repeated."""
        assert self.centres is not None
        missing = k - len(self.centres)
        again = np.repeat(self.centres[:1], missing, axis=0)
        return replace(self, centres=np.concatenate([self.centres, again]))

    @staticmethod
    def shapes(n_features: int) -> Shapes:
        """Return the shapes of the arrays."""
        rows: Shapes = dict.fromkeys(("coarse", "centres"), (None, n_features))
        return {**rows, **dict.fromkeys(("sizes", "quotas"), (None,))}

    def check(self, n_rows: int, k: int) -> None:
        """Refuse cells that do not belong to that many rows and clusters.

        Raises
        ------
        ModelFormatError
        """
        check_numbers("sizes", self.sizes, n_rows + 1)
        check_numbers("quotas", self.quotas, k + 1)
        c = len(self.coarse)
        whole = int(self.sizes.sum()) == n_rows and int(self.quotas.sum()) <= k
        if not (whole and len(self.sizes) == len(self.quotas) == c and 0 <= self.n_cells <= c):
            raise ModelFormatError("its cells are not those of these rows.")
        n_centres = 0 if self.centres is None else len(self.centres)
        if n_centres > k or (self.n_cells == c and n_centres < k):
            raise ModelFormatError(f"its {n_centres} centres are not those of {k} clusters.")


def fit_cells(
    dataset: Dataset,
    cells: HierarchicalState,
    parameters: CellParameters,
    span: Range,
    labels: np.ndarray | None = None,
) -> tuple[np.ndarray, int]:
    """Gather the rows of cells, and cluster each: on one thread, in the cells' order.

    Returns
    -------
    centres : ndarray of shape (m, d)
        Those of one cell after the other.
    bytes_read : int
    """
    read: list[int] = []
    gathered = gather_cells(
        dataset, cells.coarse, cells.sizes, span, labels=labels, on_read=read.append
    )
    found = [np.empty((0, dataset.n_features), compute_dtype(dataset.dtype))]
    for number, rows in zip(range(*span), gathered, strict=True):
        if (quota := int(cells.quotas[number])) > 0:
            engine, key = LocalEngine(n_threads=1), Key(parameters.seed, "cell", number)
            found.append(fit_centres(engine, rows, quota, key, parameters))
    return np.concatenate(found), sum(read)


def fit_centres(
    engine: Engine, rows: Chunk, n_clusters: int, key: Key, parameters: CellParameters
) -> np.ndarray:
    """Return the centres (k, d) of weighted k-means of rows in memory."""
    dataset = open_chunk(rows)
    with engine.place(dataset) as placement:
        scaled = ScaledPlacement(placement)
        centres = initial_centres(
            cell_method(parameters.init, n_clusters, rows.n_rows * dataset.n_features),
            scaled,
            n_clusters,
            key.derived_seed(),
            source=None,
            chain_length=parameters.chain_length,
        )
        state, limits = CentresState(centres), Limits(parameters.max_iter)
        return np.asarray(lloyd(scaled, state, limits, tol=parameters.tol).centres)


def find_quotas(
    weights: np.ndarray,
    sizes: np.ndarray,
    n_clusters: int,
    count: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the number of clusters of each cell, at most the number of its different rows.

    Parameters
    ----------
    weights : ndarray of shape (c,)
    sizes : ndarray of shape (c,), int64
        Rows of each cell.
    n_clusters : int
    count : callable
        (most (c,)) -> different rows of each cell, counted up to so many. It is called once, and again
        only where cells with few of them leave their share to cells whose rows were not counted so far.

    Examples
    --------
    >>> import numpy as np
    >>> distinct = np.array([2, 500])
    >>> count = lambda most: np.minimum(distinct, most)
    >>> find_quotas(np.array([500.0, 500.0]), np.array([500, 500]), 10, count).tolist()
    [2, 8]
    """
    most, counted = sizes.astype(np.int64).copy(), np.zeros(len(sizes), np.int64)
    quotas = apportion(weights, n_clusters, most)
    while (wanting := quotas > counted).any():
        asked = np.where(wanting, np.minimum(quotas + quotas // _SLACK + _SLACK, most), 0)
        found = count(asked)
        counted = np.maximum(counted, asked)
        few = wanting & (found < asked)
        most[few] = found[few]
        quotas = apportion(weights, n_clusters, most)
    return quotas


ROUNDS, FIRST_ROUNDS = 10, 2
"""Rounds of resampling in each level, by default; in the first one, which reads the rows in each."""
PASSES_OF_A_ROUND = 2
"""One finds the nearest rows, one fetches them."""
_FACTOR = 10.0
"""Clusters of a level for each of the next one; less where there are few."""
_LEAST_SIZE, _MOST_SIZE = 2, 20


def sizes_above(
    n_clusters: int, n_levels: int, level_sizes: str | Sequence[int] | None
) -> list[int]:
    """Return the numbers of clusters of the levels above the first.

    Raises
    ------
    InvalidParameterError
        They do not decrease from `n_clusters` to 1 or more, or contradict `n_levels`.
    WrongTypeError
        They are not whole numbers.

    Examples
    --------
    >>> sizes_above(5000, 3, None), sizes_above(64, 3, None), sizes_above(1000, 1, "50, 5")
    ([500, 50], [16, 4], [50, 5])
    """
    if level_sizes is None:
        factor = min(_FACTOR, n_clusters ** (1.0 / n_levels))
        sizes = [round(n_clusters / factor**level) for level in range(1, n_levels)]
        given, remedy = f"n_levels={n_levels}", "ask for fewer levels or more clusters"
    else:
        sizes = _whole_numbers(level_sizes)
        given, remedy = f"level_sizes={sizes}", "leave out the number of the first level"
        if n_levels not in (1, len(sizes) + 1):
            raise InvalidParameterError(
                f"n_levels={n_levels} and {given} were both given, which are {len(sizes) + 1} levels with "
                "the first; give one of them."
            )
    every = [n_clusters, *sizes]
    if any(below <= above for below, above in zip(every, sizes, strict=False)) or every[-1] < 1:
        raise InvalidParameterError(
            f"{given} gives levels of {every} clusters, which should decrease and be >= 1; {remedy}."
        )
    return sizes


def _whole_numbers(values: str | Sequence[int]) -> list[int]:
    parts = values.split(",") if isinstance(values, str) else values
    try:
        found = [int(part) for part in parts]
        exact = all(
            isinstance(part, str) or number == part
            for number, part in zip(found, parts, strict=True)
        )
    except (TypeError, ValueError):
        exact = False
    if not exact:
        raise WrongTypeError(
            f"level_sizes={values!r} should be whole numbers, such as [500, 20] or '500,20'."
        )
    return found


def resample_rounds(parameters: Mapping[str, Any], *, first: bool = True) -> int:
    """Return the rounds of resampling in the first level, or in each other one.

    Examples
    --------
    >>> given = {"n_levels": 2, "level_sizes": None, "resample_rounds": "auto"}
    >>> resample_rounds(given), resample_rounds(given, first=False)
    (2, 10)
    """
    given = parameters["resample_rounds"]
    if given != "auto":
        return int(given)
    if parameters["n_levels"] == 1 and parameters["level_sizes"] is None:
        return 0
    return FIRST_ROUNDS if first else ROUNDS


def resample_size(given: int | str, n_rows: int, n_clusters: int) -> int:
    """Return how many nearest rows of each cluster a round takes.

    Examples
    --------
    >>> resample_size("auto", 1000, 100), resample_size("auto", 10**9, 100), resample_size(7, 9, 3)
    (5, 20, 7)
    """
    if given != "auto":
        return int(given)
    return min(max(n_rows // (2 * n_clusters), _LEAST_SIZE), _MOST_SIZE)


def nearest_rows(rows: ScaledPlacement, centres: np.ndarray, size: int) -> Chunk:
    """Return the `size` nearest rows of each cluster, in the order of the dataset; two passes.

    Clusters with fewer rows give all of them, rows without weight are left out, and those that are
    returned have none.
    """
    placement = rows.placement
    labels = nearest_function(RowParams(centres), normalize=rows.normalize)
    most = np.full(len(centres), size, np.int64)
    ranking = Ranking("nearest", centres=centres)
    found: Choice = placement.reduce(CHOOSE, ChoiceParams(labels, ranking, most))
    found.chosen.settle()
    chosen = np.sort(found.chosen.rows)
    if not len(chosen):
        return rows.chunk(np.empty((0, centres.shape[1]), centres.dtype))
    picked: PickedRows = placement.reduce(PICK, PickParams(OneCluster(), chosen))
    return rows.chunk(picked.joined()[0])


@dataclass(frozen=True, eq=False)
class HierarchicalModel(KMeansModel):
    """A fitted k-means whose clusters belong to clusters of further levels.

    Attributes
    ----------
    parents : tuple of ndarray of int32
        For each level but the last, the cluster of the next level that each cluster belongs to. At least
        one.
    level_sizes : tuple of int
        Numbers of clusters of the levels above the first.
    centres, weights, sizes, costs, metric, inertia
        Figures of the first level, as in `daskcluster.models.fitted.KMeansModel`.

    Raises
    ------
    ModelFormatError
        The levels do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> parents = (np.array([0, 1, 0], np.int32),)
    >>> model = HierarchicalModel(np.eye(3), np.ones(3), parents=parents, level_sizes=(2,), n_rows=3)
    >>> model.facts()["levels"]
    '3 clusters in 2'
    """

    kind: ClassVar[str] = "hierarchical-kmeans"

    parents: tuple[np.ndarray, ...] = field(kw_only=True)
    level_sizes: tuple[int, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.parents) == len(self.level_sizes):
            raise ModelFormatError("a model of levels should have a parent of every cluster.")
        below = (self.n_clusters, *self.level_sizes)
        for level, (found, n, most) in enumerate(
            zip(self.parents, below, self.level_sizes, strict=False), start=1
        ):
            if found.shape != (n,) or (found < 0).any() or (found >= most).any():
                raise ModelFormatError(
                    f"the parents of level {level} should be {n} numbers from 0 to {most - 1}."
                )

    @classmethod
    def array_names(cls) -> frozenset[str]:
        return super().array_names() | {"parents", "level_sizes"}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save, by name."""
        return super().arrays() | {
            "parents": np.concatenate(self.parents).astype(np.int64),
            "level_sizes": np.array(self.level_sizes, np.int64),
        }

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        shown = " in ".join(f"{size:,}" for size in self.level_sizes)
        return super().facts() | {"levels": f"{self.n_clusters:,} clusters in {shown}"}

    @classmethod
    def shared_parts(
        cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return the constructor arguments of `from_parts`; the arrays of all levels are one in a file."""
        found = super().shared_parts(body, arrays)
        sizes = tuple(int(size) for size in found["level_sizes"].ravel())
        if any(size < 1 for size in sizes):
            raise ModelFormatError(f"level sizes {sizes} should be >= 1.")
        below = np.cumsum((len(found["centres"]), *sizes[:-1]))
        parents = np.split(found["parents"].astype(np.int32), below[:-1])
        return {**found, "parents": tuple(parents), "level_sizes": sizes}
