"""Assignment with bounds: the parameters of a pass, the state of rows, and the statistics.

Shared by all kinds of bounds; the pass itself is in `daskcluster.methods.kmeans.chunkwise.bounded_pass`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.exact_sum import Grids, Scale
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.kernels.distance import sqdist_to_one
from daskcluster.kernels.tile import Panels
from daskcluster.methods.kmeans.chunkwise.recent import RecentRows
from daskcluster.methods.kmeans.kernels.bounds import Centres, State

_MOST_SCORE = 1e36


@dataclass(frozen=True)
class BoundedParams:
    """Centres now and before, and the distances they moved.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
    previous : ndarray of shape (k, d), or None
        Centres of the previous call, from which lost labels are recomputed; None in the first call.
    drift : ndarray of shape (3, k), float64
        See `daskcluster.methods.kmeans.kernels.bounds.filter_rows`.
    scale : Scale
    labels : ndarray of shape (n,), int32, or None
        OUT. Where labels are kept as well, by global row index (only within one process).
    relabel : bool
        `labels` was changed elsewhere since the last call: write those of all rows, not only of rows that
        moved.
    recent_bytes : int
        Bytes for each row of a unit that may be spent on copies of some of its rows, which are not read
        again (only where rows would have to be read); see `daskcluster.methods.kmeans.chunkwise.recent`.
        To be the same in all calls, and in the reduction.
    most_entries : int
        Of sparse rows: the most values that one of them stores.
    known : KnownBounds, optional
        In a first call only, and within one process: of rows that others have kept bounds of. Changes are
        then the totals of all rows.
    search : FixedSearch, optional
        For rows that need so many centres that a search of all of them is faster.
    """

    centres: np.ndarray
    previous: np.ndarray | None
    drift: np.ndarray
    scale: Scale
    labels: np.ndarray | None = None
    recent_bytes: int = 0
    relabel: bool = False
    most_entries: int = 0
    known: KnownBounds | None = None
    search: FixedSearch | None = None


@dataclass(frozen=True)
class BoundState:
    """Labels and bounds of a run of rows.

    Attributes
    ----------
    labels : ndarray of shape (n,), int32
    upper : ndarray of shape (n,), float32
    lower : ndarray of shape (n,), or of shape (n, g), float32
    recent : RecentRows or None
        Of the whole unit.
    first : int
        Start of the run in its work item.
    """

    labels: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    recent: RecentRows | None = None
    first: int = 0

    @property
    def arrays(self) -> State:
        """Labels, upper and lower bounds, as kernels take them."""
        return State(self.labels, self.upper, self.lower)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        kept = 0 if self.recent is None else self.recent.nbytes
        return sum(part.nbytes for part in self.arrays) + kept

    def rows(self, first: int, last: int) -> BoundState:
        """Return a view of rows `first` to `last`."""
        if first == 0 and last == self.n_rows:
            return self
        part = slice(first, last)
        bounds = self.upper[part], self.lower[part]
        return BoundState(self.labels[part], *bounds, self.recent, self.first + first)

    def every(self, step: int) -> BoundState:
        """Return a copy of every `step`-th row."""
        part = slice(None, None, step)
        return BoundState(
            self.labels[part].copy(), self.upper[part].copy(), self.lower[part].copy()
        )

    def filtered(self, turn: object) -> RecentRows | None:
        """Return the cached rows if their failing rows were already assigned in this turn."""
        return self.recent if self.recent is not None and self.recent.turn is turn else None


def fresh_state(n_rows: int, params: BoundedParams, *bounds: int) -> BoundState:
    """Return state in which every bound fails, with one lower bound per row, or with that many."""
    spent = params.recent_bytes
    return unproven(n_rows, bounds, RecentRows(n_rows, spent) if spent else None)


def unproven(
    n_rows: int, bounds: tuple[int, ...] = (), recent: RecentRows | None = None
) -> BoundState:
    """Return the state of new rows; `bounds` is the shape of the lower bounds of a row."""
    return BoundState(
        np.full(n_rows, -1, np.int32),
        np.full(n_rows, np.inf, np.float32),
        np.full((n_rows, *bounds), -np.inf, np.float32),
        recent,
    )


@dataclass(frozen=True)
class KnownBounds:
    """Labels and bounds of some rows, kept under the same drift by a pass over other rows.

    Attributes
    ----------
    state : BoundState
    places : ndarray of shape (n,), int64
        Position in `state` of each row of the dataset; -1 for new rows.
    """

    state: BoundState
    places: np.ndarray

    def write(self, first: int, into: BoundState) -> None:
        """Copy the known labels and bounds of the rows from `first` on into their state."""
        places = self.places[first : first + into.n_rows]
        here = np.flatnonzero(places >= 0)
        for mine, theirs in zip(self.state.arrays, into.arrays, strict=True):
            theirs[here] = mine[places[here]]


@dataclass
class Changes:
    """Changes that a pass made.

    Attributes
    ----------
    moved : KMeansStatistics
        Sums and weights that clusters gained, less those they lost.
    n_moved, n_touched, n_distances, n_searched : int
        Rows that changed their label, rows visited, distances computed, and rows that a search by bounds
        labelled, which counts all their distances.
    """

    moved: KMeansStatistics
    n_moved: int = 0
    n_touched: int = 0
    n_distances: int = 0
    n_searched: int = 0

    def combine(self, other: Changes) -> Changes:
        self.moved.combine(other.moved)
        self.n_moved += other.n_moved
        self.n_touched += other.n_touched
        self.n_distances += other.n_distances
        self.n_searched += other.n_searched
        return self


@dataclass(frozen=True)
class Prepared:
    """`BoundedParams`, prepared for the rows of a task, dense or sparse.

    `turn` distinguishes this preparation from all others, including those of earlier passes.
    """

    params: BoundedParams
    grids: Grids
    margin: np.ndarray
    turn: object

    @cached_property
    def previous(self) -> PreparedCentres | None:
        """The centres of the previous call, prepared only if labels were lost."""
        return None if self.params.previous is None else PreparedCentres(self.params.previous)


@dataclass(frozen=True)
class Bounded(Prepared):
    """`Prepared` for dense rows; kinds of bounds may add to it.

    `all_centres` are those of `panels`, if these are in order.
    """

    panels: Panels
    all_centres: PreparedCentres | None

    @cached_property
    def near(self) -> Centres:
        """The centres, as kernels take them."""
        return Centres(self.params.centres, self.panels.data, self.panels.offset)


def prepare(params: BoundedParams, panels: Panels | None = None) -> Bounded:
    """Pack centres, if not yet done, and set up grids, once per task."""
    all_centres = None
    if panels is None:
        all_centres = PreparedCentres(params.centres)
        panels = all_centres.panels
    margin = score_margin(params.centres, panels.offset, params.scale)
    return Bounded(params, Grids.of(params.scale), margin, object(), panels, all_centres)


def score_margin(
    centres: np.ndarray, offset: np.ndarray, scale: Scale, terms: float | None = None
) -> np.ndarray:
    """Return the least difference of squared distances that scores can resolve.

    A score is a chain of d + 1 roundings of terms that sum to at most |x'||c'| + |c'|^2, and x' and
    c' are rounded themselves: d + 4 `terms`, if none are given. With C the largest |c'| and |x'| <= u + C
    for a row at distance u from some centre, the squared distances of two centres are in the order of
    their scores if they differ by more than ``slope * u + constant``.

    Returns
    -------
    ndarray of shape (2,), float64
        Slope and constant; infinite where scores might overflow.
    """
    squared = np.empty(len(centres))
    sqdist_to_one(centres, offset, squared)
    far = float(np.sqrt(squared.max()))
    unit = float(np.finfo(centres.dtype).eps) / 2
    slope = 4.04 * (centres.shape[1] + 4 if terms is None else terms) * unit * far
    largest = far + sum(float(np.sqrt((v * v).sum())) for v in (scale.max_abs, offset))
    if centres.dtype == np.float32 and not far * largest < _MOST_SCORE:
        return np.array([np.inf, np.inf])
    return np.array([slope, 2.0 * slope * far])


def zero(prepared: Prepared) -> Changes:
    """Return no change."""
    scale, (k, d) = prepared.params.scale, prepared.params.centres.shape
    return Changes(KMeansStatistics.zero(k, d, weighted=scale.weighted, two_grids=scale.two_grids))
