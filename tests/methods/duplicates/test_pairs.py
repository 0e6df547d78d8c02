"""All pairs of near-duplicates, against brute force: no pair is missing, and none is false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskcluster.methods.duplicates import chunkwise, search
from daskcluster.methods.duplicates.kernels import hash_rows, verify
from tests.methods.duplicates.oracle import found_pairs, measures, pairs_of, planted

METRICS = pytest.mark.parametrize("metric", ["cosine", "euclidean"])


def threshold_of(values: np.ndarray, metric: str, share: float) -> float | None:
    """Return a threshold that about this share of pairs is beyond, well between two values."""
    each = np.sort(values[np.tril_indices(len(values), -1)])
    each = each if metric == "euclidean" else each[::-1]
    wide = np.flatnonzero(np.abs(np.diff(each)) > 1e-9 * np.abs(each).max())
    if not len(wide):
        return None
    at = wide[min(np.searchsorted(wide, int(share * len(each))), len(wide) - 1)]
    return float(0.5 * (each[at] + each[at + 1]))


@METRICS
@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(2, 260),
    d=st.integers(1, 9) | st.sampled_from([64, 97]),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(["f2", "f4", "f8"]),
    share=st.floats(0.001, 0.3),
    cells=st.integers(1, 12),
    block=st.sampled_from([5, 33, 200]),
    copies=st.sampled_from([0, 0, 3, 60]),
)
def test_they_are_those_of_brute_force(
    metric: str,
    n: int,
    d: int,
    seed: int,
    dtype: str,
    share: float,
    cells: int,
    block: int,
    copies: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    X = planted(n, d, seed, dtype=dtype, copies=min(copies, n))
    values = measures(X, metric)
    threshold = threshold_of(values, metric, share)
    if threshold is None or (metric == "cosine" and not 0.0 < threshold <= 1.0 - 1e-12):
        return
    folder = tmp_path_factory.mktemp("scratch")
    found = found_pairs(X, metric, threshold, folder, n_cells=cells, block_rows=block)
    assert found == pairs_of(values, metric, threshold)
    assert not list(folder.iterdir())


@METRICS
@pytest.mark.parametrize("d", [7, 96])
def test_products_without_integers_find_the_same(
    metric: str, d: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = planted(300, d, 1, copies=20)
    values = measures(X, metric)
    threshold = threshold_of(values, metric, 0.02)
    monkeypatch.setattr(search, "integer_tile", lambda: (None, 0))
    found = found_pairs(X, metric, threshold, tmp_path, n_cells=6, block_rows=40)
    assert found == pairs_of(values, metric, threshold)


@METRICS
@pytest.mark.parametrize("origin", [0.0, 1e3, 1e5])
def test_rows_far_from_the_origin(metric: str, origin: float, tmp_path: Path) -> None:
    X = planted(200, 20, 2, dtype="f8") + origin
    values = measures(X, metric)
    threshold = threshold_of(values, metric, 0.05)
    if threshold is None:
        pytest.skip("all similarities are the same")
    found = found_pairs(X, metric, threshold, tmp_path, n_cells=5, block_rows=30)
    assert found == pairs_of(values, metric, threshold)


def test_clusters_of_different_scales(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(80, 12)) * scale + scale for scale in (1e-4, 1.0, 1e4)])
    values = measures(X, "euclidean")
    for threshold in (2.5e-4, 3.0, 2e4):
        found = found_pairs(X, "euclidean", threshold, tmp_path, n_cells=9, block_rows=30)
        assert found == pairs_of(values, "euclidean", threshold)


@METRICS
def test_equal_rows_are_near_at_the_strictest_threshold(metric: str, tmp_path: Path) -> None:
    X = np.random.default_rng(4).integers(-3, 4, (120, 5)).astype(np.float32)
    X[5] = -0.0 * X[5]
    X[90:100] = X[7]
    X[100:104], X[104] = 0.0, -0.0
    strictest = 1.0 if metric == "cosine" else 0.0
    found = found_pairs(X, metric, strictest, tmp_path, n_cells=6, block_rows=16)
    equal = {(i, j) for i in range(120) for j in range(i) if (X[i] == X[j]).all()}
    assert equal <= found
    if metric == "euclidean":
        assert equal == found


def test_a_row_of_zeros_is_near_no_other(tmp_path: Path) -> None:
    X = np.abs(np.random.default_rng(5).normal(size=(40, 6)))
    X[3] = 0.0
    found = found_pairs(X, "cosine", 1e-9, tmp_path, n_cells=3, block_rows=9)
    assert found == {(i, j) for i in range(40) for j in range(i) if 3 not in (i, j)}


def test_rows_with_the_same_hash_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(rows: np.ndarray, out: np.ndarray) -> None:
        out[:] = 7

    monkeypatch.setattr(chunkwise, "hash_rows", same)
    # Rows on a circle are as far from their centre, so hash and distance do not tell them apart.
    X = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]] * 5)
    found = found_pairs(X, "euclidean", 0.5, tmp_path, n_cells=1, block_rows=3)
    assert found == pairs_of(measures(X, "euclidean"), "euclidean", 0.5)


def test_measures_do_not_depend_on_the_order_of_the_rows() -> None:
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(2, 50, 37))
    pairs = np.stack([np.arange(50)] * 2, axis=1).astype(np.int32)
    for rule in ({"cosine": True, "threshold": -2.0}, {"cosine": False, "threshold": np.inf}):
        settings_: Any = rule
        one, other = verify(X, Y, pairs, **settings_), verify(Y, X, pairs, **settings_)
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i8"])
def test_hashes_are_those_of_values(dtype: str) -> None:
    X = np.random.default_rng(7).integers(0, 3, (500, 4)).astype(dtype)
    out = np.empty(500, np.uint64)
    hash_rows(X, out)
    _, first = np.unique(X, axis=0, return_inverse=True)
    _, second = np.unique(out, return_inverse=True)
    assert len(np.unique(first)) == len(np.unique(second)) == len(np.unique(first * 1000 + second))
