"""Grids as rows and back: masks, axes, coordinates, stores."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.errors import OutputExistsError


def raster(y=12, x=9, bands=3):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(y, x, bands)).astype(np.float32)
    values[:, x // 2 :] += 20
    return values


def test_a_full_grid_is_a_view():
    values = raster()
    grid = dc.open_grid(values)
    assert (grid.shape, grid.mask, grid.dataset.n_rows) == ((12, 9), None, 108)
    assert np.shares_memory(grid.dataset.array, values)
    labels = dc.KMeans(2, random_state=0).fit(grid.dataset).labels_
    found = grid.unflatten(labels)
    assert found.shape == (12, 9)
    assert len(np.unique(found[:, :4])) == len(np.unique(found[:, 4:])) == 1
    assert "12 x 9" in repr(grid)


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
def test_cells_without_data(dtype):
    values = np.abs(raster()).astype(dtype)
    values[values == 7] = 6
    values[3, 4, 1] = values[5, 5, 0] = values[5, 5, 2] = 7
    grid = dc.open_grid(values, nodata=7)
    assert grid.dataset.n_rows == 106
    assert grid.dataset.dtype == dtype
    back = grid.unflatten(np.arange(106))
    assert (back[3, 4], back[5, 5], back[0, 0], back[-1, -1]) == (-1, -1, 0, 105)
    assert np.array_equal(grid.dataset.to_numpy(), values[grid.mask])
    assert grid.unflatten(np.ones(106, np.uint8), fill=255).dtype == np.uint8
    assert np.isnan(grid.unflatten(np.ones(106), fill=np.nan)[3, 4])


def test_nan_is_no_data():
    values = raster()
    values[0, 0, 1] = np.nan
    grid = dc.open_grid(values)
    labels = dc.KMeans(2, random_state=0).fit_predict(grid.dataset)
    assert (np.asarray(grid.unflatten(np.asarray(labels))) == -1).sum() == 1


def test_features_on_any_axis():
    values = raster()
    one = dc.open_grid(np.moveaxis(values, -1, 0), features=0)
    assert one.shape == (12, 9)
    assert np.array_equal(one.dataset.to_numpy(), values.reshape(-1, 3))
    volume = dc.open_grid(np.zeros((2, 3, 4, 5)))
    assert (volume.shape, volume.dataset.n_rows) == ((2, 3, 4), 24)


def test_xarray_keeps_its_coordinates():
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    values = raster()
    values[1, 2, 0] = -9999
    source = xr.DataArray(
        np.moveaxis(values, -1, 0),
        dims=("band", "y", "x"),
        coords={"y": np.arange(12) * 10.0, "x": np.arange(9) - 4.0, "band": ["r", "g", "b"]},
    )
    grid = dc.open_grid(source, features="band", nodata=-9999)
    found = grid.unflatten(np.arange(107, dtype=np.int32))
    assert found.dims == ("y", "x")
    assert found.sel(y=10.0, x=-2.0).item() == -1
    assert found.sel(y=110.0, x=4.0).item() == 106
    assert "band" not in found.coords
    with pytest.raises(
        ValueError, match="features='time' should be one of the dimensions band, y, x"
    ):
        dc.open_grid(source, features="time")


def test_a_stored_grid_is_read_by_the_fit(tmp_path):
    values = raster(y=40)
    stored = zarr.create_array(tmp_path / "r", data=values, chunks=(7, 9, 3))
    for source in (str(tmp_path / "r"), stored):
        grid = dc.open_grid(source)
        assert (grid.shape, grid.dataset.in_memory) == ((40, 9), False)
        model = dc.KMeans(2, random_state=0).fit(grid.dataset)
        assert np.array_equal(
            grid.unflatten(model.labels_).ravel(), model.predict(values.reshape(-1, 3))
        )
        with pytest.raises(ValueError, match="give cells=URL"):
            dc.open_grid(source, nodata=0)
        with pytest.raises(ValueError, match="is for grids in memory"):
            dc.open_grid(source, features=0)


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_a_stored_grid_with_cells_without_data(tmp_path, dtype):
    values = raster(y=40).astype(dtype)
    values[3:20, 2:5, 1] = -99
    values[30, 4] = np.nan if dtype == np.float32 else -99
    zarr.create_array(tmp_path / "r", data=values, chunks=(7, 9, 3))
    given = {"nodata": -99, "cells": str(tmp_path / "cells")}
    grid = dc.open_grid(str(tmp_path / "r"), **given)
    expected = dc.open_grid(values, nodata=-99)
    assert not grid.dataset.in_memory
    assert np.array_equal(grid.mask, expected.mask)
    assert np.array_equal(grid.dataset.to_numpy(), expected.dataset.to_numpy())
    labels = dc.KMeans(2, random_state=0).fit(grid.dataset).labels_
    image = grid.unflatten(labels)
    assert image.shape == (40, 9)
    assert (image[3:20, 2:5] == -1).all()
    assert (image == -1).sum() == 17 * 3 + 1
    with pytest.raises(OutputExistsError):
        dc.open_grid(str(tmp_path / "r"), **given)
    assert dc.open_grid(str(tmp_path / "r"), **given, overwrite=True).dataset.n_rows == 360 - 52
    full = dc.open_grid(str(tmp_path / "r"), nodata=7777, cells=str(tmp_path / "other"))
    assert (full.mask is None) == (dtype == np.int16)
    zarr.create_array(tmp_path / "none", data=np.full((4, 5, 3), -99, dtype))
    with pytest.raises(ValueError, match="no cell of the grid"):
        dc.open_grid(str(tmp_path / "none"), nodata=-99, cells=str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


def test_what_is_no_grid():
    with pytest.raises(ValueError, match="no cell of the grid"):
        dc.open_grid(np.full((2, 2, 2), np.nan))
    with pytest.raises(ValueError, match=r"a grid of shape \(3,\)"):
        dc.open_grid(np.zeros(3))
    with pytest.raises(ValueError, match="features=5 should be an axis"):
        dc.open_grid(np.zeros((3, 3)), features=5)
    with pytest.raises(TypeError, match="which is no grid"):
        dc.open_grid({"a": 1})
    with pytest.raises(ValueError, match=r"values of shape \(3,\) should be of shape \(108,\)"):
        dc.open_grid(raster()).unflatten(np.zeros(3))


def test_the_dimension_of_the_features_is_known_by_its_name() -> None:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    bands = np.random.default_rng(3).normal(size=(3, 5, 40)).astype(np.float32)
    raster = xarray.DataArray(bands, dims=("band", "y", "x"), coords={"y": np.arange(5)})
    grid = dc.open_grid(raster)
    assert (grid.shape, grid.dataset.n_features) == ((5, 40), 3)
    assert np.array_equal(grid.dataset.to_numpy(), np.moveaxis(bands, 0, -1).reshape(-1, 3))
    whole = xarray.Dataset({"red": raster[0].drop_vars("y"), "green": raster[1].drop_vars("y")})
    of_variables = dc.open_grid(whole)
    assert of_variables.dataset.n_features == 2
    assert of_variables.unflatten(np.zeros(200, np.int32)).dims == ("y", "x")
    with pytest.warns(UserWarning, match=r"shape \(3, 5, 40\) .* pass features=0"):
        assert dc.open_grid(bands).dataset.n_features == 40
    assert dc.open_grid(bands, features=0).dataset.n_features == 3
