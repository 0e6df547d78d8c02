"""Chunks that are taken over as they were decoded: Zarr's values, and no copy of whole chunks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.data.nodes import read_zero_copy

ROWS = np.arange(70, dtype=np.float32).reshape(10, 7)


def made(folder: Path, **options: Any) -> zarr.Array[Any]:
    array = zarr.create_array(
        str(folder / "x.zarr"), shape=(10, 7), **{"chunks": (4, 7), "dtype": "f4", **options}
    )
    array[:] = ROWS
    return array


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compressors": None},
        {"zarr_format": 2},
        {"zarr_format": 2, "order": "F"},
        {"dtype": ">f4", "zarr_format": 2},
        {"chunks": (4, 3)},
        {"chunks": (2, 7), "shards": (4, 7)},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    ],
    ids=str,
)
def test_rows_are_those_of_zarr(options: dict[str, Any], tmp_path: Path) -> None:
    array = made(tmp_path, **options)
    for index in [(0, 4), (4, 8), (8, 10), (1, 3), (0, 10), (3, 9)]:
        found, expected = read_zero_copy(array, slice(*index)), np.asarray(array[slice(*index)])
        np.testing.assert_array_equal(found, ROWS[slice(*index)])
        assert found.dtype == expected.dtype
        assert found.flags.c_contiguous == expected.flags.c_contiguous, index


def test_a_whole_chunk_is_not_copied_and_others_keep_only_their_rows(tmp_path: Path) -> None:
    array = made(tmp_path)
    whole, part, last = (read_zero_copy(array, slice(*span)) for span in [(0, 4), (4, 6), (8, 10)])
    assert not whole.flags.owndata, "a decoded chunk was copied"
    assert not whole.flags.writeable
    for rows in (part, last):
        assert rows.base is None or rows.base.nbytes == rows.nbytes


def test_chunks_that_were_never_written_are_the_fill_value(tmp_path: Path) -> None:
    array = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=(8, 3), chunks=(4, 3), dtype="f8", fill_value=2.5
    )
    array[:4] = 1.0
    assert read_zero_copy(array, slice(4, 8)).tolist() == [[2.5] * 3] * 4


def test_axes_before_the_rows(tmp_path: Path) -> None:
    values = np.arange(48.0).reshape(2, 6, 4)
    zarr.create_array(str(tmp_path / "x.zarr"), data=values, chunks=(1, 3, 4))
    dataset = open_dataset(str(tmp_path / "x.zarr"), flatten=True)
    np.testing.assert_array_equal(dataset.to_numpy(), values.reshape(12, 4))
