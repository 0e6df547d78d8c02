"""Weighted sums of Gram values against plain NumPy; the exponential against libm."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.methods.kernel_kmeans import kernels as gram
from daskcluster.sparse_rows import SparseRows
from tests.reference import kernel_kmeans as reference

FUNCTIONS = {
    "rbf": (gram.SQUARE, (-0.3, 0.0, 1), {"gamma": 0.3}),
    "laplacian": (gram.ABSOLUTE, (-0.3, 0.0, 1), {"gamma": 0.3}),
    "polynomial": (gram.PRODUCT, (0.5, 1.0, 3), {"gamma": 0.5, "degree": 3, "coef0": 1.0}),
    "linear": (gram.PRODUCT, (1.0, 0.0, 1), {}),
}
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-14}


def problem(n, m, d, dtype, seed=0):
    rng = np.random.default_rng(seed)
    X, Y = (rng.normal(size=(size, d)).astype(dtype) for size in (n, m))
    X[rng.random(X.shape) < 0.5] = 0
    Y[rng.random(Y.shape) < 0.3] = 0
    return X, Y, rng.normal(size=m), rng.integers(0, 4, m)


def csr(dense):
    rows = SparseRows.of(dense)
    return rows.data, rows.indices, rows.indptr


def dense_sums(X, Y, factors, groups, term, numbers):
    out = np.empty((len(X), 4))
    gram.gram_sums(X, gram.pack_points(Y), factors, groups, term, numbers, out)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_of_dense_and_sparse_rows(name, dtype):
    term, numbers, parameters = FUNCTIONS[name]
    for n, m, d in ((1, 1, 1), (5, 3, 2), (70, 45, 3), (33, 17, 19)):
        X, Y, factors, groups = problem(n, m, d, dtype)
        wanted = reference.gram(X, Y, name, **parameters) @ (factors[:, None] * np.eye(4)[groups])
        size = np.abs(wanted).max() + 1.0
        found = dense_sums(X, Y, factors, groups, term, numbers)
        assert np.abs(found - wanted).max() <= TOLERANCE[dtype] * size * m
        out = np.empty((n, 4))
        gram.gram_sums_sparse(csr(X), csr(Y), factors, groups, term, numbers, d, out)
        assert np.abs(out - wanted).max() <= 1e-14 * size * m


def test_the_sums_of_a_row_do_not_depend_on_its_position():
    X, Y, factors, groups = problem(257, 50, 20, np.float32)
    term, numbers, _ = FUNCTIONS["rbf"]
    whole = dense_sums(X, Y, factors, groups, term, numbers)
    for cut in (slice(0, 1), slice(3, 40), slice(100, 257)):
        part = dense_sums(np.ascontiguousarray(X[cut]), Y, factors, groups, term, numbers)
        assert part.tobytes() == whole[cut].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_exponential_is_accurate_to_two_ulps(dtype):
    squares = np.concatenate([np.linspace(0, 80, 4001), 2.0 ** np.arange(-40, 6)]).astype(dtype)
    rows = np.sqrt(squares)[:, None]
    squares = (rows * rows)[:, 0].astype(np.float64)
    found = dense_sums(
        rows, np.zeros((1, 1), dtype), np.ones(1), np.zeros(1, int), gram.SQUARE, (-1.0, 0.0, 1)
    )[:, 0]
    assert np.abs(found / np.exp(-squares) - 1.0).max() <= 2.0 * np.finfo(dtype).eps
    assert found[0] == 1.0


def test_values_of_far_points_are_tiny_and_finite():
    rows = np.array([[1e4], [3e4]])
    found = dense_sums(
        rows, np.zeros((1, 1)), np.ones(1), np.zeros(1, int), gram.SQUARE, (-1.0, 0.0, 1)
    )[:, 0]
    assert (found >= 0).all()
    assert found.max() <= np.exp(-699.0)


def test_columns_of_precomputed_values_are_summed():
    values = np.arange(12.0).reshape(3, 4)
    out = np.empty((3, 2))
    gram.add_columns(
        values, np.array([3, 0, 3]), np.array([1.0, 2.0, 10.0]), np.array([0, 1, 1]), out
    )
    assert out.tolist() == [[3.0, 30.0], [7.0, 78.0], [11.0, 126.0]]
