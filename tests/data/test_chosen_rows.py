"""Rows by their numbers, as the dataset has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.data.chosen import chosen_rows
from daskcluster.sparse_rows import SparseRows

ROWS = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
NUMBERS = np.array([99, 0, 41, 40, 0, 17])


def test_rows_in_memory_and_in_a_store(tmp_path: Path) -> None:
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=ROWS, chunks=(7, 3))
    for source in (ROWS, url):
        found = chosen_rows(dc.open_dataset(source), NUMBERS)
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, ROWS[NUMBERS])


def test_only_chunks_with_such_rows_are_read(tmp_path: Path) -> None:
    url = tmp_path / "rows.zarr"
    zarr.create_array(url, data=ROWS, chunks=(10, 3))
    (url / "c" / "5" / "0").write_bytes(b"no chunk")
    np.testing.assert_array_equal(chosen_rows(dc.open_dataset(str(url)), NUMBERS), ROWS[NUMBERS])


def test_sparse_rows_keep_all_that_is_stored() -> None:
    matrix = sparse.random_array((50, 20), density=0.3, format="csr", rng=np.random.default_rng(1))
    matrix.data[::3] = 0.0
    numbers = np.array([49, 3, 3, 20])
    found = chosen_rows(dc.open_dataset(matrix), numbers)
    assert isinstance(found, SparseRows)
    assert found.data.tolist() == matrix[numbers].data.tolist()
    np.testing.assert_array_equal(found.toarray(), matrix.toarray()[numbers])
