"""Rows by their numbers, as the dataset has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import zarr

import daskcluster as dc
from daskcluster.data.chosen import chosen_rows

ROWS = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
NUMBERS = np.array([99, 0, 41, 40, 0, 17])


def test_only_chunks_with_such_rows_are_read(tmp_path: Path) -> None:
    url = tmp_path / "rows.zarr"
    zarr.create_array(url, data=ROWS, chunks=(10, 3))
    (url / "c" / "5" / "0").write_bytes(b"no chunk")
    np.testing.assert_array_equal(chosen_rows(dc.open_dataset(str(url)), NUMBERS), ROWS[NUMBERS])
