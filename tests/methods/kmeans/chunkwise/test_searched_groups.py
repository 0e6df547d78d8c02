"""Yinyang's groups whose bounds a search sets: results are those of full comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.methods.kmeans import bounds
from daskcluster.methods.kmeans.assignment import Assigned, BoundedAssignment, FullAssignment
from daskcluster.methods.kmeans.bounds import automatic
from daskcluster.methods.kmeans.chunkwise.grouped import YINYANG
from tests.chunkwise.test_pruned import no_tile
from tests.kernels.test_pruned_search import spectrum

N, D, K = 3200, 256, 512
STEPS = 6


@pytest.fixture(autouse=True)
def _few_rows_repay_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskcluster.chunkwise.pruned._EXPECTED_CENTRES", 0)


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, list[np.ndarray]]:
    """Return rows along few directions, and the centres of some iterations of k-means."""
    rows = spectrum(N, D, 0, 0.9, np.float32)
    rows[5] = rows[3]  # a tie
    rows[-2:] *= 5.0  # beyond the levels of the others
    centres = [rows[:K]]
    for _ in range(STEPS - 1):
        centres.append(dc.KMeans(K, init=centres[-1], max_iter=1, tol=0).fit(rows).cluster_centers_)
    return rows, centres


def passes(rows: np.ndarray, centres: Sequence[np.ndarray]) -> list[Assigned]:
    """Return what passes with bounds found, and check it."""
    kept, expected = np.empty((2, N), np.int32)
    with dc.LocalEngine(2).place(dc.open_dataset(rows)) as placement:
        placed = ScaledPlacement(placement)
        placed.known()
        bounded, plain = BoundedAssignment(placed, YINYANG, kept), FullAssignment(placed, expected)
        found = []
        for each in centres:
            here, wanted = bounded(each), plain(each).statistics
            assert np.array_equal(kept, expected)
            assert np.array_equal(here.statistics.sums, wanted.sums)
            assert np.array_equal(here.statistics.counts, wanted.counts)
            found.append(here)
        bounded.close()
        return found


@no_tile
def test_rows_are_searched_first_and_visited_later(
    problem: tuple[np.ndarray, list[np.ndarray]],
) -> None:
    rows, centres = problem
    found = passes(rows, centres)
    assert found[0].n_searched > 0.9 * N  # the others are given up
    assert found[0].n_distances >= N * K
    last = found[-1]
    assert last.n_searched < 0.5 * N  # a group is a panel, which is larger with wider vectors
    assert last.n_distances < 0.65 * N * K
    # Rows whose bounds are too wide are searched once more, and compared with what this leaves.
    again = passes(rows, [*centres, centres[-1], centres[-1]])[-1]
    assert again.n_searched == 0
    assert again.n_distances <= N


@no_tile
def test_rows_whose_centres_have_no_levels_are_visited(
    problem: tuple[np.ndarray, list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, centres = problem
    monkeypatch.setattr("daskcluster.chunkwise.pruned.FixedSearch.pack", lambda *_, **__: None)
    found = passes(rows, centres[:3])
    assert [each.n_searched for each in found] == [0, 0, 0]


@no_tile
def test_auto_takes_groups_once_they_hold(
    problem: tuple[np.ndarray, list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "_SMALL", 0.0)
    monkeypatch.setattr(bounds, "_PROBE", 0.0)
    monkeypatch.setattr(bounds, "_WORTH_PROBES", 0.0)
    monkeypatch.setattr(bounds, "_CHEAP", 0.75)
    monkeypatch.setattr("daskcluster.chunkwise.pruned._MOST_SHARE", 0.75)
    rows, centres = problem
    kept, expected, kinds = np.empty(N, np.int32), np.empty(N, np.int32), []
    with dc.LocalEngine(2).place(dc.open_dataset(rows)) as placement:
        placed = ScaledPlacement(placement)
        placed.known()
        chosen = bounds.AutoAssignment(placed, automatic(D, K, placed.dtype), kept)
        plain = FullAssignment(placed, expected)
        for each in [*centres, *centres[-1:] * 9]:
            found = chosen(each)
            assert np.array_equal(found.statistics.sums, plain(each).statistics.sums)
            assert np.array_equal(kept, expected)
            kinds.append(chosen.kind)
        assert chosen._pruned < bounds._CHEAP
        chosen.close()
    assert kinds[: bounds._OPENING - 1] == [None] * (bounds._OPENING - 1)
    assert kinds[-1] == YINYANG
    assert found.n_distances <= N
