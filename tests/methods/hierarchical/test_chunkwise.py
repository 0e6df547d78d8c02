"""Different rows of each cell: against numpy, dense and sparse, up to limits, in any pieces."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from daskcluster import open_dataset
from daskcluster.chunk import Chunk
from daskcluster.methods.hierarchical.cells import (
    DISTINCT,
    DistinctParams,
    DistinctRows,
    row_hashes,
)

CENTRES = np.array([[-5.0, 0.0], [0.0, 0.0], [5.0, 0.0]], np.float32)


def duplicates(n: int = 900, seed: int = 0) -> np.ndarray:
    """Rows of small integers: about forty different ones around each centre."""
    rng = np.random.default_rng(seed)
    return (CENTRES[rng.integers(0, 3, n)] + rng.integers(-1, 2, (n, 2))).astype(np.float32)


def count(rows: object, most: list[int], weights: np.ndarray | None = None) -> DistinctRows:
    params = DistinctParams(CENTRES, np.array(most))
    prepared = DISTINCT.prepare(params)
    found: DistinctRows = DISTINCT.zero(prepared)
    DISTINCT.chunk(Chunk(rows, 0, weights), prepared, found)
    return found


def truth(rows: np.ndarray) -> np.ndarray:
    labels = ((rows[:, None] - CENTRES) ** 2).sum(axis=2).argmin(axis=1)
    return np.array([len(np.unique(rows[labels == cell], axis=0)) for cell in range(3)])


def test_counts_are_those_of_numpy() -> None:
    X = duplicates()
    assert count(X, [1000, 1000, 1000]).counts.tolist() == truth(X).tolist()
    assert count(X, [4, 0, 1000]).counts.tolist() == [4, 0, truth(X)[2]]


def test_many_rows_are_settled_on_the_way() -> None:
    X = np.random.default_rng(0).normal(size=(200_000, 2)).astype(np.float32)
    X[:, 0] += 5 * np.random.default_rng(1).integers(-1, 2, len(X))
    found = count(X, [300, 50_000, 1_000_000])
    expected = truth(X)
    assert found.counts.tolist() == [300, 50_000, expected[2]]


def test_rows_without_weight_do_not_count() -> None:
    X = duplicates()
    weights = (X[:, 1] > 0).astype(np.float64)
    assert count(X, [99, 99, 99], weights).counts.tolist() == truth(X[weights > 0]).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_hash_as_dense_ones(dtype: type) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(-1, 2, (500, 7)).astype(dtype)
    X[X == 0] *= rng.choice([-1.0, 1.0], (X == 0).sum()).astype(dtype)  # -0.0 is 0.0
    X[3] = 0
    dense = row_hashes(X)
    rows = open_dataset(sparse.csr_array(X)).held  # type: ignore[attr-defined]
    assert np.array_equal(row_hashes(rows), dense)
    assert np.array_equal(row_hashes(rows[7:300]), dense[7:300])
    assert len(np.unique(dense)) == len(np.unique(np.abs(X) * np.sign(X), axis=0))
    assert dense[3] == 0


@given(cuts=st.tuples(st.integers(0, 900), st.integers(0, 900)))
def test_pieces_add_up(cuts: tuple[int, int]) -> None:
    X, most = duplicates(), [5, 20, 99]
    first, second = sorted(cuts)
    whole = count(X, most)
    expected = whole.counts
    a, b, c = (count(X[i:j], most) for i, j in ((0, first), (first, second), (second, 900)))
    one = copy.deepcopy(a).combine(copy.deepcopy(b)).combine(copy.deepcopy(c))
    other = c.combine(b.combine(a))
    for found in (one, other, DISTINCT.zero(DISTINCT.prepare(DistinctParams(CENTRES, whole.most)))):
        found.combine(copy.deepcopy(one))
        assert found.counts.tolist() == expected.tolist()
        assert np.array_equal(found.hashes, whole.hashes)
