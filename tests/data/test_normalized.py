"""Normalized datasets: chunks whose blocks have rows of length one, wherever the rows are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.chunk import Chunk
from daskcluster.data.partitioned import PartitionedDataset
from daskcluster.methods.nested.gathered import NestedOrder
from daskcluster.methods.nested.stored import NestedBatchDataset
from daskcluster.sparse_rows import dense_rows, join_rows

ROWS = np.random.default_rng(0).integers(-9, 9, (60, 3)).astype(np.float32)
WEIGHTS = np.arange(1.0, 61.0)


def _zarr(folder: Path) -> Any:
    zarr.create_array(folder / "rows", data=ROWS, chunks=(8, 3))
    return dc.open_dataset(str(folder / "rows"))


def _mapped(folder: Path) -> Any:
    np.save(folder / "rows.npy", ROWS)
    return dc.open_dataset(str(folder / "rows.npy"))


SOURCES: dict[str, Callable[[Path], Any]] = {
    "array": lambda folder: dc.open_dataset(ROWS),
    "weighted": lambda folder: dc.open_dataset(ROWS, weights=WEIGHTS),
    "sparse": lambda folder: dc.open_dataset(sparse.csr_array(ROWS)),
    "zarr": _zarr,
    "mapped": _mapped,
    "dask": lambda folder: dc.open_dataset(da.from_array(ROWS, chunks=(20, 3))),
    "partitioned": lambda folder: PartitionedDataset(_zarr(folder), np.array([0, 24, 60])),
    "nested": lambda folder: NestedBatchDataset(_zarr(folder), NestedOrder(60, None), 5, 50),
}


def computed(dataset: Any) -> np.ndarray:
    chunks = list(dataset.chunks(dataset.partitions))
    assert all(chunk.normalize for chunk in chunks)
    return dense_rows(join_rows([chunk.computed() for chunk in chunks]))


@pytest.mark.parametrize("name", SOURCES)
def test_blocks_have_length_one_and_rows_stay_as_they_are(name: str, tmp_path: Path) -> None:
    dataset = SOURCES[name](tmp_path)
    normalized = dataset.normalized()
    assert not dataset.normalize
    rows = dataset.to_numpy()
    expected = Chunk(rows, normalize=True).computed()
    assert np.allclose(np.linalg.norm(expected, axis=1)[rows.any(axis=1)], 1.0)
    assert np.array_equal(computed(normalized), expected)
    loaded = normalized.load((3, 9))
    assert np.array_equal(dense_rows(loaded.computed()), expected[3:9])
    assert np.array_equal(dense_rows(loaded.slice(1, 4).computed()), expected[4:7])
    assert np.array_equal(normalized.to_numpy(), rows)
    assert np.array_equal(normalized.take(np.array([4, 2])), rows[[4, 2]])
    opened = pickle.loads(pickle.dumps(normalized.recipe())).open()
    assert np.array_equal(computed(opened), expected)
    assert not dataset.recipe().open().normalize


@pytest.mark.parametrize("name", ["array", "sparse", "zarr"])
def test_features_are_scaled_before_rows_are(name: str, tmp_path: Path) -> None:
    dataset = SOURCES[name](tmp_path)
    scaled = dc.open_dataset(dataset, scale="standard")
    expected = Chunk(scaled.to_numpy(), normalize=True).computed()
    for each in (scaled.normalized(), dataset.normalized().with_scaling(scaled.scaling)):
        assert np.allclose(computed(each), expected, rtol=1e-14)
