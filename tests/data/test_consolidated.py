"""Metadata that were consolidated before rows were appended: every door has the length that is stored."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import jobs
from daskcluster.data.info import arrays_at
from daskcluster.data.spec import RowsSpec
from daskcluster.errors import InvalidDataError
from daskcluster.methods.streaming.sources import open_stream_source


def consolidate(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr v3 does not specify consolidated metadata
        zarr.consolidate_metadata(url)


@pytest.fixture(params=[2, 3])
def grown(request: Any, tmp_path: Path) -> str:
    """Return the path of a group that was consolidated when its array of 200 rows had 100."""
    url, rows = str(tmp_path / "a.zarr"), np.random.default_rng(0).random((200, 2))
    group = zarr.open_group(url, mode="w", zarr_format=request.param)
    group.create_array("e", data=rows[:100], chunks=(50, 2))
    consolidate(url)
    zarr.open_array(f"{url}/e", mode="r+").append(rows[100:])
    assert zarr.open_group(url, mode="r")["e"].shape == (100, 2)
    return url


def put_csr(group: Any, rows: Any) -> None:
    group.attrs.update({"encoding-type": "csr_matrix", "shape": list(rows.shape)})
    for name in ("data", "indices", "indptr"):
        values = getattr(rows, name)
        if name not in group:
            group.create_array(name, data=values, chunks=(100,))
        array: Any = group[name]
        array.resize(values.shape)
        array[:] = values


def test_every_door_reads_the_rows_that_were_appended(grown: str, tmp_path: Path) -> None:
    group = zarr.open_group(grown, mode="r")
    assert dc.open_dataset(grown, array="e").n_rows == 200
    assert dc.open_dataset(f"{grown}/e").n_rows == 200
    assert dc.open_dataset(group, array="e").n_rows == 200
    assert dc.open_grid(grown, array="e").shape == dc.open_grid(group, array="e").shape == (200,)
    assert arrays_at(grown) == {"e": "200 x 2 float64"}
    fitted = jobs.fit(grown, model=str(tmp_path / "model"), n_clusters=2, array="e")
    assert fitted.n_rows == 200
    source = open_stream_source(grown, RowsSpec.of(array="e"))
    assert source.look({})[0].n_rows == 200
    with pytest.raises(InvalidDataError, match=r"with array=. Arrays there: e \(200 x 2 float64\)"):
        dc.open_dataset(group)


def test_an_object_of_another_length_is_refused(grown: str) -> None:
    array = zarr.open_group(grown, mode="r")["e"]
    for opens in (dc.open_dataset, dc.open_grid, dc.KMeans(2).fit):
        with pytest.raises(
            InvalidDataError, match=r"shape \(100, 2\), and .* has shape \(200, 2\)"
        ):
            opens(array)
    assert dc.open_dataset(zarr.open_group(grown, use_consolidated=False)["e"]).n_rows == 200


def test_csr_rows(tmp_path: Path) -> None:
    url, rows = str(tmp_path / "a.zarr"), sparse.random(200, 5, 0.5, format="csr", rng=0)
    put_csr(zarr.open_group(url, mode="w").create_group("c"), rows[:100])
    consolidate(f"{url}/c")
    consolidate(url)
    before = zarr.open_group(url, mode="r")["c"]
    put_csr(zarr.open_group(f"{url}/c", mode="r+", use_consolidated=False), rows)
    for found in (
        dc.open_dataset(url, array="c"),
        dc.open_dataset(f"{url}/c"),
        dc.open_dataset(zarr.open_group(url, mode="r"), array="c"),
    ):
        assert np.array_equal(found.to_numpy(), rows.toarray())
    with pytest.raises(InvalidDataError, match=r"shape \(100, 5\), and .* has shape \(200, 5\)"):
        dc.open_dataset(before)
