"""Swaps of the centres of mini-batches, which lower the cost of all remembered rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daskcluster.chunk import Chunk
from daskcluster.methods.minibatch.algorithm import LabelledLeaf, swap_remembered
from daskcluster.methods.minibatch.chunkwise import MovingCentres
from daskcluster.sparse_rows import SparseRows

MIDDLES = 20.0 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])


def cloud(middle: Any, n: int, seed: int) -> np.ndarray:
    return np.asarray(middle) + np.random.default_rng(seed).normal(size=(n, 3))


def state_of(seen: Any, centres: np.ndarray = MIDDLES, dtype: Any = np.float64) -> MovingCentres:
    exact = centres.astype(np.float64)
    return MovingCentres(
        exact.copy(), exact.astype(dtype), np.array(seen, np.float64), np.zeros(len(exact))
    )


def swapped(
    state: MovingCentres, rows: Any, before: float = 0.0, *, normalize: bool = False
) -> np.ndarray | None:
    """Move centres by a leaf; `before` is the earlier cost of each cluster."""
    leaf = LabelledLeaf.of(Chunk(rows, 0, np.ones(len(rows)), normalize), state.centres)
    return swap_remembered(state, leaf, leaf.costs(len(state.seen)) + before, 7)


def farthest(state: MovingCentres) -> float:
    """Return the largest distance of a cluster to its nearest centre."""
    gaps = np.linalg.norm(state.exact[:, None] - [*MIDDLES[:3], ELSEWHERE], axis=2)
    return float(gaps.min(axis=0).max())


# 300 rows of each of the first three clouds, and 300 rows at the new place of the last.
ELSEWHERE = np.array([30.0, 5.0, 0.0])
LEAF = np.concatenate([cloud(middle, 300, i) for i, middle in enumerate([*MIDDLES[:3], ELSEWHERE])])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_centre_of_forgotten_rows_moves_to_new_rows(dtype: Any) -> None:
    state = state_of([600, 300, 300, 1e-3], dtype=dtype)
    others, rows = state.exact[1:3].copy(), LEAF.astype(dtype)
    # The nearest centre has been drawn to the middle between its rows and those that have come.
    state.exact[0] = (MIDDLES[0] + ELSEWHERE) / 2
    state.centres[0] = state.exact[0]
    costs = swapped(state, rows)
    assert costs is not None
    assert farthest(state) < 0.3
    assert np.array_equal(state.exact[1:3], others)
    assert np.array_equal(state.centres, state.exact.astype(dtype))
    assert state.seen.sum() == pytest.approx(1200, abs=1e-2)
    assert state.seen == pytest.approx(300, rel=0.01)
    assert costs == pytest.approx(900, rel=0.2)


def test_a_centre_of_remembered_rows_stays() -> None:
    """Its rows are not in this leaf, but removing it would cost more than the new rows gain."""
    state = state_of([300, 300, 600, 20_000])
    before = state.exact.copy()
    assert swapped(state, LEAF) is None
    assert np.array_equal(state.exact, before)
    assert list(state.seen) == [300, 300, 600, 20_000]


@pytest.mark.parametrize(("before", "moves"), [(0.0, False), (9e6, True)])
def test_rows_represent_earlier_rows(before: float, moves: bool) -> None:
    """Costs of clusters since the last swap count, not only those of this leaf."""
    state = state_of([300_000, 20_000, 20_000, 4_000])
    state.exact[0] = (MIDDLES[0] + ELSEWHERE) / 2
    state.centres[0] = state.exact[0]
    leaf = LabelledLeaf.of(Chunk(LEAF, weights=np.ones(len(LEAF))), state.centres)
    costs = leaf.costs(4) + np.array([before, 0.0, 0.0, 0.0])
    after = swap_remembered(state, leaf, costs, 7)
    assert (after is not None) is moves
    assert state.seen.sum() == pytest.approx(344_000)
    if after is not None:
        assert farthest(state) < 1.0
        assert state.seen[3] > 50_000
        assert after.sum() < 0.5 * costs.sum()


def test_few_rows_represent_only_themselves() -> None:
    state = state_of([5_000, 5_000, 5_000, 300])
    rows = np.concatenate([MIDDLES[0] + 0.1, MIDDLES[0] + [0, 9, 0]]).reshape(2, 3)
    assert swapped(state, rows, before=1e7) is None


def test_a_redundant_centre_is_moved() -> None:
    """A second reason to move: no centre is outdated, but two are where one would suffice."""
    start = np.array([MIDDLES[2], MIDDLES[2] + 0.2, MIDDLES[1], (MIDDLES[0] + ELSEWHERE) / 2])
    state = state_of([150, 150, 300, 600], start)
    assert swapped(state, LEAF) is not None
    assert farthest(state) < 1.0
    assert state.seen.sum() == pytest.approx(1200)


@pytest.mark.parametrize("normalize", [False, True])
def test_sparse_rows_give_the_same_as_dense_ones(normalize: bool) -> None:
    rows, start = np.where(LEAF > 1.5, LEAF, 0.0), MIDDLES.copy()
    if normalize:
        start /= np.linalg.norm(start, axis=1, keepdims=True)
        rows[:300, 2] = 2 * rows[:300, 0]  # by angles, too, elsewhere than any centre
    states = [state_of([600, 300, 300, 1e-3], start) for _ in range(2)]
    one, two = (
        swapped(state, each, normalize=normalize)
        for state, each in zip(states, (rows, SparseRows.of(rows)), strict=True)
    )
    assert one is not None
    assert two is not None
    assert not np.allclose(states[0].exact[3], start[3])
    np.testing.assert_allclose(states[0].exact, states[1].exact, rtol=1e-12)
    np.testing.assert_allclose(one, two, rtol=1e-9)
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(states[0].exact, axis=1), 1.0)


def test_a_single_centre_stays() -> None:
    assert swapped(state_of([1.0], MIDDLES[:1]), LEAF) is None
