"""Rows gathered by cell: in the order of the dataset, whatever the chunks, and in how many groups."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster import open_dataset
from daskcluster.methods.hierarchical.cells import cell_groups, gather_cells
from daskcluster.sparse_rows import dense_rows

CENTRES = np.array([[-4.0, 0, 0], [0, 0, 0], [0, 9, 0], [4, 0, 0]], np.float32)


def rows(n: int = 700) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (CENTRES[rng.integers(0, 4, n)] + rng.normal(size=(n, 3)).round(1)).astype(np.float32)


def label(X: np.ndarray) -> np.ndarray:
    return ((X[:, None].astype(np.float64) - CENTRES) ** 2).sum(axis=2).argmin(axis=1)


@pytest.mark.parametrize("kind", ["array", "labelled", "zarr", "sparse"])
@pytest.mark.parametrize("span", [(0, 4), (1, 3)])
def test_cells_hold_their_rows_in_order(tmp_path, kind, span):
    X, w = rows(), np.random.default_rng(1).random(700)
    labels = label(X).astype(np.int32)
    sizes = np.bincount(labels, minlength=4)
    source = X
    if kind == "sparse":
        source = sparse.csr_array(X)
    if kind == "zarr":
        zarr.create_array(tmp_path / "x", data=X, chunks=(60, 2))
        source = str(tmp_path / "x")
    read = []
    found = gather_cells(
        open_dataset(source, weights=w),
        CENTRES,
        sizes,
        span,
        labels=labels if kind == "labelled" else None,
        on_read=read.append,
    )
    for cell, chunk in zip(range(*span), found, strict=True):
        assert np.array_equal(dense_rows(chunk.rows), X[labels == cell])
        assert np.array_equal(chunk.weights, w[labels == cell])
    assert sum(read) == (X.nbytes if kind == "zarr" else 0)


def test_an_empty_cell_has_no_rows():
    X = rows()
    far = np.concatenate([CENTRES, [[1e6, 0, 0]]]).astype(np.float32)
    sizes = np.bincount(label(X), minlength=5)
    found = gather_cells(open_dataset(X), far, sizes, (3, 5))
    assert [chunk.n_rows for chunk in found] == [sizes[3], 0]
    assert gather_cells(open_dataset(X), far, sizes, (4, 5))[0].rows.shape == (0, 3)


def test_groups_are_even_and_cover_all_cells():
    sizes = np.random.default_rng(0).integers(0, 100, 500)
    for groups in (1, 7, 600):
        spans = cell_groups(sizes, groups)
        assert [a for a, _ in spans] == [0, *(b for _, b in spans[:-1])]
        assert spans[-1][1] == 500
        assert len(spans) <= groups
        if groups == 7:
            rows_of = [sizes[a:b].sum() for a, b in spans]
            assert max(rows_of) - min(rows_of) <= 200
    assert cell_groups(np.zeros(3, np.int64), 4) == [(0, 3)]
