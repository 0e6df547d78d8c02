"""Datasets of integers, and a local engine to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset

N_ROWS, N_FEATURES = 100_000, 64


@pytest.fixture(scope="session")
def integers() -> np.ndarray:
    """Return rows whose sums are exact in any order."""
    rng = np.random.default_rng(7)
    return rng.integers(-100, 100, (N_ROWS, N_FEATURES)).astype(np.float32)


@pytest.fixture(scope="session")
def stored(integers: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Zarr array of 25 partitions of 4,000 rows."""
    path = tmp_path_factory.mktemp("rows") / "rows.zarr"
    array = zarr.create_array(
        str(path), shape=integers.shape, chunks=(4000, N_FEATURES), dtype="f4"
    )
    array[:] = integers
    return path


@pytest.fixture
def dataset(stored: Path) -> Any:
    return open_dataset(str(stored))
