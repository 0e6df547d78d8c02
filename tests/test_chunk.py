"""Chunks cut and converted, dense and CSR alike."""

from __future__ import annotations

import math
import pickle
import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from daskcluster import chunk as chunk_module
from daskcluster.chunk import Chunk, widened
from daskcluster.kernels.sum_grid import grid_shift
from daskcluster.sparse_rows import SparseRows, dense_rows, join_rows, owned_rows, take_rows

DENSE = np.where(
    np.random.default_rng(0).random((500, 40)) < 0.1,
    np.random.default_rng(1).lognormal(size=(500, 40)),
    0.0,
)
DENSE[[0, 7, 499]] = 0.0


def rows_of(dense: np.ndarray, index: type = np.int32) -> SparseRows:
    matrix = sparse.csr_array(dense)
    indptr = matrix.indptr.astype(np.int64)
    return SparseRows(matrix.data, matrix.indices.astype(index), indptr, dense.shape[1])


def test_slices_are_views_and_choices_are_copies() -> None:
    rows = rows_of(DENSE)
    part = rows[100:300][50:60]
    assert np.shares_memory(part.data, rows.data)
    assert np.array_equal(part.toarray(), DENSE[150:160])
    assert np.array_equal(rows[part.shape[0] :].toarray(), DENSE[10:])
    assert np.array_equal(rows[::7].toarray(), DENSE[::7])
    assert np.array_equal(rows[5], DENSE[5])
    chosen = np.array([3, 3, 499, 0])
    assert np.array_equal(rows[chosen].toarray(), DENSE[chosen])
    assert np.array_equal(part[np.array([9, 1])].toarray(), DENSE[[159, 151]])
    assert len(rows[400:100]) == len(rows[500:]) == 0
    assert rows[500:].toarray().shape == (0, 40)


def test_joined_rows() -> None:
    rows = rows_of(DENSE)
    parts = [np.empty((0, 40)), rows[100:200], rows[:1], rows[300:300], rows[450:]]
    joined = join_rows(parts)
    expected = np.concatenate([DENSE[100:200], DENSE[:1], DENSE[450:]])
    assert np.array_equal(dense_rows(joined), expected)
    assert dense_rows(join_rows(parts[:1])).shape == (0, 40)
    dense = join_rows([DENSE[:3], DENSE[5:6]])
    assert np.array_equal(dense, DENSE[[0, 1, 2, 5]])


def test_rows_that_travel_take_only_their_own() -> None:
    rows = rows_of(DENSE)
    few = rows[10:20]
    assert len(pickle.dumps(few, protocol=5)) < few.nbytes + 1000
    assert few.nbytes <= sys.getsizeof(few) < few.nbytes + 2000
    own = owned_rows(few)
    assert not np.shares_memory(own.data, rows.data)
    assert np.array_equal(own.toarray(), DENSE[10:20])
    assert Chunk(few, 10).owned().start == 10
    whole = Chunk(DENSE.copy())
    assert whole.owned() is whole


@pytest.mark.parametrize(
    ("dtype", "index", "normalize"),
    [
        (np.float32, np.int32, True),
        (np.float64, np.int64, False),
        (np.uint8, np.int32, False),
        (np.int16, np.int64, True),
        (np.int64, np.int32, True),
    ],
)
def test_blocks_equal_those_of_dense_rows(
    monkeypatch: pytest.MonkeyPatch, dtype: type, index: type, normalize: bool
) -> None:
    monkeypatch.setattr(chunk_module, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(chunk_module, "CACHE_BYTES", 2000)
    dense = DENSE.astype(dtype)
    weights = np.arange(500.0)
    chunk = Chunk(rows_of(dense, index), 1000, weights, normalize)
    expected = dense_rows(Chunk(dense, normalize=normalize).computed())
    for cut in (chunk.blocks(), chunk.cache_blocks()):
        blocks = list(cut)
        assert len(blocks) > 3
        assert all(block.rows.indices.dtype == np.int32 for block in blocks)
        assert {block.rows.dtype for block in blocks} == {expected.dtype}
        assert not any(block.normalize for block in blocks)  # they are now
        assert [block.start for block in blocks[1:]] == [block.stop for block in blocks[:-1]]
        found = dense_rows(join_rows([block.rows for block in blocks]))
        np.testing.assert_allclose(found, expected, rtol=1e-15 if normalize else 0)
        assert np.array_equal(np.concatenate([block.weights for block in blocks]), weights)
    pieces = list(chunk.pieces())
    assert sum(piece.n_rows for piece in pieces) == 500
    assert pieces[0].rows.dtype == dtype


def test_unit_length_does_not_depend_on_where_blocks_are_cut() -> None:
    rows = rows_of(DENSE)
    parts = [rows[first : first + 7].normalized() for first in range(0, 500, 7)]
    assert np.array_equal(join_rows(parts).toarray(), rows.normalized().toarray())
    lengths = np.linalg.norm(rows.normalized().toarray(), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1.0)
    assert (lengths[[0, 7, 499]] == 0.0).all()


def test_cuts_follow_the_bytes() -> None:
    heavy = np.zeros((300, 40))
    heavy[100:110] = 1.0
    rows = rows_of(heavy)
    cuts = list(rows.cuts(2000))
    assert cuts[0][0] == 0
    assert cuts[-1][1] == 300
    assert all(b[0] == a[1] for a, b in pairwise(cuts))
    assert all(rows[first:last].nbytes <= 2000 + 8 for first, last in cuts if last - first > 1)
    assert list(rows.cuts(1)) == [(i, i + 1) for i in range(300)]
    assert list(rows[:0].cuts(1)) == []


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_taken_by_number_as_by_indexing(order):
    rows = np.asarray(np.random.default_rng(0).normal(size=(40, 3)), order=order)
    for part in (rows, rows[3:, :2]):
        numbers = np.array([30, 0, 0, 7])
        found = take_rows(part, numbers)
        assert np.array_equal(found, part[numbers])
        assert not np.shares_memory(found, rows)


def test_the_grid_of_a_number_is_that_of_an_array():
    values = np.array([0.0, 5e-324, 0.1, 1.0, 3.7e18, 1e300, math.inf])
    for n_rows in (0, 1, 3, 4, 5, 31_000):
        one_by_one = [float(grid_shift(value, n_rows)) for value in values.tolist()]
        assert one_by_one == grid_shift(values, n_rows).tolist(), n_rows


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_every_float16_is_widened_as_numpy_does(kind: str) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    finite = np.where(np.isfinite(halves), halves, np.float16(0))
    for rows in (finite, halves, finite[::2, ::3], finite[:0]):
        found = widened(rows, np.dtype(kind))
        assert found.dtype == kind
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, rows.astype(kind))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(rows))
