"""Drift: the distances that centres moved since a bound was set, by which bounds are relaxed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskcluster.kernels.distance import sqdist_to_assigned
from daskcluster.kernels.tile import nearest_two, pack
from daskcluster.methods.kmeans.kernels.gaps import HalfDistances

_SAFE = 1e-9
"""More than the rounding of any sum here, relatively."""
_WORN = 0.03
"""Share of a half gap that may be lost before it is measured again."""
REPAID = 8
"""Gaps are measured again once rows have computed this many times as many distances."""
_MOST = 1e15
"""Scores of centres beyond might overflow in float32."""


class Drift:
    """Sum of the steps of every centre.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
        Starting positions.
    groups : sequence of ndarray of int
        Centres whose longest step counts for all of them.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        Current positions.
    of_groups : ndarray of shape (g,), float64
        Accumulated drift of each group.
    """

    def __init__(self, centres: np.ndarray, groups: Sequence[np.ndarray] = ()) -> None:
        self.centres = centres
        self.groups = tuple(groups)
        self.of_groups = np.zeros(len(self.groups))
        self._own = np.zeros(len(centres))
        self._others = np.zeros(len(centres))

    def move(self, centres: np.ndarray) -> None:
        """Take one step."""
        steps = lengths(self.centres, centres) * (1.0 + _SAFE)
        self.centres = centres
        self._own += steps
        self._others += _fastest_other(steps)
        for number, group in enumerate(self.groups):
            self.of_groups[number] += steps[group].max()

    def table(self, gaps: Gaps) -> np.ndarray:
        """Return the table that `kernels.bounds.filter_rows` takes, shape (3, k)."""
        return np.stack([self._own, self._others, gaps.of(self.centres)])


class Gaps:
    """Half gaps of the current centres, computed once for all users of bounds.

    While centres have moved little since then, or rows have computed few distances, the largest possible
    loss is subtracted instead.

    Parameters
    ----------
    filled : float
        Share of the features that rows store: a distance of theirs costs that share of one between centres.
    """

    def __init__(self, filled: float = 1.0) -> None:
        self._filled = filled
        self._n_distances = 0.0
        self._centres: np.ndarray | None = None
        self._halves = np.empty(0)
        self._between: np.ndarray | None = None
        self._measured: tuple[np.ndarray, np.ndarray] | None = None
        self._followed: HalfDistances | None = None

    def of(self, centres: np.ndarray) -> np.ndarray:
        """Return `half_gaps` of centres that are never changed in place."""
        if self._centres is not centres:
            self._centres, self._halves, self._between = centres, self._of(centres), None
        return self._halves

    def note(self, n_distances: float) -> None:
        """Note how many distances from rows to centres a pass has computed."""
        self._n_distances += self._filled * n_distances

    def between(self, centres: np.ndarray) -> np.ndarray:
        """Return `half_distances` of centres that are never changed in place; `of` follows from them."""
        if self._centres is not centres or self._between is None:
            if self._followed is None:
                self._followed = HalfDistances(centres.shape, centres.dtype, _WORN)
            halves = self._followed.of(centres)
            least = halves.min(axis=1).astype(np.float64)
            self._halves = np.where(least < _MOST, least, 0.0)
            self._centres, self._between = centres, halves
        return self._between

    def _of(self, centres: np.ndarray) -> np.ndarray:
        if self._measured is not None:
            before, halves = self._measured
            moved = lengths(before, centres) * (1.0 + _SAFE)
            lost = 0.5 * (moved + _fastest_other(moved))
            would_cost = REPAID * len(centres) ** 2
            if self._n_distances < would_cost or (lost <= _WORN * halves).all():
                return np.asarray((halves - lost) * (1.0 - _SAFE))
        halves = half_gaps(centres)
        self._measured, self._n_distances = (centres, halves), 0
        return halves


def lengths(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the distance that each centre moved, shape (k,), float64."""
    k = len(before)
    squared = np.empty(k)
    sqdist_to_assigned(after, before, np.arange(k, dtype=np.int32), squared)
    return np.asarray(np.sqrt(squared, out=squared))


def _fastest_other(steps: np.ndarray) -> np.ndarray:
    """Return for each centre the longest step of any other one."""
    if len(steps) == 1:
        return np.zeros(1)
    second, first = np.argsort(steps, kind="stable")[-2:]
    others = np.full(len(steps), steps[first])
    others[first] = steps[second]
    return others


def half_gaps(centres: np.ndarray) -> np.ndarray:
    """Return a lower bound of half the distance of each centre to the nearest other one."""
    k = len(centres)
    first, second = np.empty(k, np.int32), np.empty(k, np.int32)
    panels = pack(centres)
    nearest_two(centres, panels, first, second)
    other = np.where(first == np.arange(k), second, first)
    gaps = centres.astype(np.float64) - centres[other]
    squared = (gaps * gaps).sum(axis=1)
    # Another centre may be nearer by a difference that scores cannot resolve.
    wide = centres.astype(np.float64) - panels.offset
    far = np.sqrt((wide * wide).sum(axis=1).max())
    squared -= 16 * (centres.shape[1] + 4) * np.finfo(centres.dtype).eps * far * far
    halves = 0.5 * np.sqrt(np.maximum(squared, 0.0)) * (1.0 - _SAFE)
    return np.where((other >= 0) & np.isfinite(halves) & (far < _MOST), halves, 0.0)


def half_distances(centres: np.ndarray) -> np.ndarray:
    """Return lower bounds of half the distances between centres, (k, k), float32; a centre's own: inf."""
    return HalfDistances(centres.shape, centres.dtype, _WORN).of(centres)
