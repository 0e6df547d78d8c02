"""CSR rows as datasets: in memory."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.chunk import Chunk
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.sparse_rows import dense_rows, join_rows


def make(n: int = 5000, d: int = 300, *, dtype: Any = np.float32, density: float = 0.05) -> Any:
    rows = sparse.random_array((n, d), density=density, format="csr", rng=np.random.default_rng(0))
    rows.sort_indices()
    return rows.astype(dtype)


def gathered(chunks: list[Chunk]) -> np.ndarray:
    return dense_rows(join_rows([chunk.rows for chunk in chunks]))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_every_format_of_scipy(layout: str, kind: str) -> None:
    matrix = make(200, 30)
    given = (matrix if kind == "array" else sparse.csr_matrix(matrix)).asformat(layout)
    dataset = open_dataset(given)
    assert (dataset.n_rows, dataset.n_features, dataset.dtype) == (200, 30, np.float32)
    assert dataset.in_memory
    assert np.array_equal(dataset.to_numpy(), matrix.toarray())
    assert np.array_equal(dataset.to_scipy().toarray(), matrix.toarray())


def test_chunks_are_views_cut_by_bytes() -> None:
    matrix = make(40_000, 300)
    dataset = open_dataset(matrix)
    assert dataset.partitions[0][0] == 0
    assert dataset.partitions[-1][1] == 40_000
    assert len(dataset.partitions) > 3
    sizes = [dataset.bytes_of(span) for span in dataset.partitions]
    assert sum(sizes) == dataset.bytes_of((0, 40_000)) == matrix.nnz * 8 + 40_000 * 8
    assert max(sizes) <= 1 << 20
    chunks = list(dataset.chunks(dataset.partitions))
    assert all(np.shares_memory(chunk.rows.data, matrix.data) for chunk in chunks)
    assert np.array_equal(gathered(chunks), matrix.toarray())
    some = dataset.load((100, 300))
    assert not np.shares_memory(some.rows.data, matrix.data)
    assert np.array_equal(some.rows.toarray(), matrix[100:300].toarray())
    assert np.array_equal(dataset.take([7, 39_999, 7]), matrix[[7, 39_999, 7]].toarray())
    with pytest.raises(InvalidParameterError, match="row 40000 should be in 0 to 39999"):
        dataset.take([40_000])


def test_weights_ride_along() -> None:
    matrix, weights = make(3000), np.arange(1.0, 3001.0)
    dataset = open_dataset(matrix, weights=weights)
    chunks = list(dataset.chunks([(10, 20), (100, 2000)]))
    assert np.array_equal(chunks[0].weights, weights[10:20])
    assert np.array_equal(chunks[-1].weights[-5:], weights[1995:2000])
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(again.to_numpy(), matrix.toarray())
    assert np.array_equal(again.weights, weights)


def test_disordered_rows_are_sorted_and_duplicates_added() -> None:
    data = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], np.float32)
    indices, indptr = np.array([3, 1, 3, 0, 2, 2]), np.array([0, 3, 3, 6])
    matrix = sparse.csr_array((data, indices, indptr), shape=(3, 4))
    before = matrix.copy()
    dataset = open_dataset(matrix)
    assert np.array_equal(dataset.to_numpy(), matrix.toarray())
    assert dataset.held.indices.tolist() == [1, 3, 0, 2]
    assert dataset.held.data.tolist() == [2.0, 5.0, 8.0, 48.0]
    assert np.array_equal(matrix.indices, before.indices)  # the caller's stays as it is


def broken(**parts: Any) -> Any:
    matrix = make(20, 8)
    for name, value in parts.items():
        getattr(matrix, name)[:] = value
    return matrix


@pytest.mark.parametrize(
    ("matrix", "text"),
    [
        (
            broken(indices=9),
            r"Row \d+ of the sparse matrix has a value in column 9; columns should",
        ),
        (broken(indices=-1), r"has a value in column -1; columns should be in 0 to 7"),
        (broken(indptr=[0, 5, 3, *([8] * 18)]), r"indptr that falls from 5 to 3 at row 1"),
        (broken(indptr=[1, *([8] * 20)]), r"an indptr from 1 to 8; it should go from 0"),
        (broken(indptr=7), r"8 values in data, 8 in indices, and an indptr from 7 to 7"),
        (make(20, 8).astype(complex), r"Complex data not supported"),
        (make(20, 8)[:0], r"0 sample"),
        (sparse.coo_array([1.0, 2.0]), r"Expected 2D array, got 1D array"),
    ],
)
def test_invalid_csr_matrices_are_refused(matrix: Any, text: str) -> None:
    with pytest.raises(InvalidDataError, match=text):
        open_dataset(matrix)


def test_too_many_columns() -> None:
    matrix = sparse.csr_array((2, 2**31 + 5), dtype=np.float32)
    with pytest.raises(InvalidDataError, match=r"2147483653 columns, at most 2147483647 are taken"):
        open_dataset(matrix)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("init", ["random", "k-means++", "k-means||"])
def test_rows_that_are_not_finite_are_named(value: float, init: str) -> None:
    matrix = make()
    matrix.data[matrix.indptr[1234]] = value
    with pytest.raises(InvalidDataError, match="first in row 1234"):
        dc.KMeans(3, init=init, random_state=0).fit(matrix)
    model = dc.KMeans(3, random_state=0).fit(make())
    for method in (model.predict, model.transform):
        with pytest.raises(InvalidDataError, match="first in row 1234"):
            method(matrix)


def test_functions_take_sparse_rows() -> None:
    matrix = make(800, 50)
    centres, indices = dc.kmeans_plusplus(matrix, 4, random_state=0)
    assert np.array_equal(centres, matrix[indices].toarray())
    dense = dc.kmeans_parallel(matrix.toarray(), 4, random_state=0)
    assert np.array_equal(dc.kmeans_parallel(matrix, 4, random_state=0), dense)
    error = dc.quantization_error(matrix, centres)
    assert error == pytest.approx(dc.quantization_error(matrix.toarray(), centres), rel=1e-12)


@pytest.mark.parametrize("algorithm", ["hamerly", "elkan", "yinyang"])
def test_algorithms_for_dense_rows_name_their_replacement(algorithm: str) -> None:
    heard: list[Any] = []
    plain = dc.KMeans(3, random_state=0, algorithm="lloyd").fit(make(100))
    model = dc.KMeans(3, random_state=0, algorithm=algorithm, callbacks=[heard.append])
    assert model.fit(make(100)).inertia_ == plain.inertia_
    text = f"algorithm={algorithm!r} is for dense rows; lloyd takes its place"
    assert any(text in getattr(event, "text", "") for event in heard)


def test_columns_of_64_bits_are_converted_once() -> None:
    rows = make(100)
    wide = sparse.csr_array(rows)
    wide.indices, wide.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    assert open_dataset(wide).held.indices.dtype == np.int32
