"""Dask arrays and frames: computed here, block by block, each once per pass."""

from __future__ import annotations

import threading
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from daskcluster.data.dask_array import rows_of
from daskcluster.data.open import open_dataset
from daskcluster.errors import InvalidDataError


def test_every_block_is_computed_once_per_pass(rows: np.ndarray) -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def watch(block: np.ndarray) -> np.ndarray:
        if block.size:
            with lock:
                seen.append(len(block))
        return block

    array = da.from_array(rows, chunks=(1000, 7)).map_blocks(watch, dtype=rows.dtype)
    dataset = open_dataset(array)
    assert seen == []
    for _ in range(2):
        for _ in dataset.chunks(dataset.partitions):
            pass
    assert sorted(seen) == sorted([1000] * 10 + [3] * 2)


def test_opening_is_lazy_and_lengths_are_counted_once(rows: np.ndarray) -> None:
    calls: list[int] = []

    def keep(block: np.ndarray) -> np.ndarray:
        if len(block) > 1:  # not the sample that dask looks at
            calls.append(len(block))
        return block[block[:, 0] > 1]

    array = da.from_array(rows, chunks=(2000, 7)).map_blocks(
        keep, dtype=rows.dtype, chunks=((np.nan,) * 3, (7,))
    )
    dataset = open_dataset(array)
    assert len(calls) == 3
    assert np.array_equal(dataset.to_numpy(), rows[rows[:, 0] > 1])
    assert np.isnan(array.shape[0]), "the caller's array is left as it was"


def test_blocks_that_all_end_up_empty(rows: np.ndarray) -> None:
    array = da.from_array(rows, chunks=(2000, 7))
    with pytest.raises(InvalidDataError, match=r"Found array with 0 sample"):
        open_dataset(array[array[:, 0] < 0])


def test_the_current_client_is_not_asked(rows: np.ndarray, client: Any) -> None:
    array = da.from_array(rows, chunks=(2000, 7)).map_blocks(
        lambda block: np.full(
            block.shape, threading.get_native_id() * 0 + dask.config.get("here", 1)
        ),
        dtype=np.float64,
    )
    with dask.config.set(here=2):  # the workers do not know of it
        assert open_dataset(array).to_numpy().min() == 2


def test_blocks_persisted_on_a_cluster(rows: np.ndarray, client: Any) -> None:
    array = da.from_array(rows, chunks=(1000, 7)).persist()
    for source in (array, array + 0, array[array[:, 0] > 0]):
        assert np.array_equal(open_dataset(source).to_numpy(), rows)


def test_rows_of_computes_nothing(rows: np.ndarray) -> None:
    import dask.dataframe as dd
    import pandas as pd

    array = rows_of(da.from_array(rows, chunks=(1000, 2)))
    assert array.numblocks == (6, 1)
    frame = dd.from_pandas(pd.DataFrame(rows), npartitions=3)
    assert np.isnan(rows_of(frame).shape[0])
    mixed = dd.from_pandas(pd.DataFrame({"a": [1, 2], "b": [0.5, 1]}), npartitions=1)
    assert rows_of(mixed).dtype == np.float64
    assert np.array_equal(open_dataset(mixed).to_numpy(), [[1, 0.5], [2, 1]])
