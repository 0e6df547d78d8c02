"""Synthetic rows belong to their index, not to chunks or threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.data.generate import Mixture, generate
from daskcluster.errors import InvalidParameterError


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_do_not_depend_on_chunks_or_threads(dtype: str, tmp_path: Any) -> None:
    arrays = []
    for i, (chunk_rows, n_threads) in enumerate([(20_000, 1), (777, 2), (None, 1)]):
        options = {"n_features": 3, "n_clusters": 5, "seed": 7, "dtype": dtype}
        path = str(tmp_path / f"{i}.zarr")
        generate(path, n_rows=20_000, chunk_rows=chunk_rows, n_threads=n_threads, **options)  # type: ignore[arg-type]
        arrays.append(zarr.open_array(path, mode="r")[:])
    assert arrays[0].dtype == dtype
    assert all(np.array_equal(array, arrays[0]) for array in arrays)


def test_rows_follow_the_mixture(tmp_path: Any) -> None:
    mixture = generate(
        tmp_path / "x.zarr",
        n_rows=50_000,
        n_features=4,
        n_clusters=3,
        seed=1,
        spread=20,
        dtype="float64",
    )
    rows = open_dataset(tmp_path / "x.zarr").to_numpy()
    labels, centres = mixture.labels(0, 50_000), mixture.centres()
    assert set(labels) == {0, 1, 2}
    noise = rows - centres[labels]
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert np.array_equal(Mixture(4, 3, "float64", 1, 20).rows(40_000, 40_010), rows[40_000:40_010])
    other = Mixture(4, 3, "float64", 2, 20).rows(0, 10)
    assert not np.array_equal(other, rows[:10])


def test_bad_requests_leave_nothing(tmp_path: Any) -> None:
    good = {"n_rows": 10, "n_features": 2, "n_clusters": 2}
    for bad in ({"n_rows": 0}, {"n_features": 0}, {"n_clusters": -1}, {"dtype": "int8"}):
        with pytest.raises(InvalidParameterError, match=next(iter(bad))):
            generate(tmp_path / "x.zarr", **{**good, **bad})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
