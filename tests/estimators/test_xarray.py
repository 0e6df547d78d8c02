"""Estimators take DataArrays and give DataArrays back, with coordinates, lazily for dask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError

xr = pytest.importorskip("xarray", reason="xarray is not installed")

RNG = np.random.default_rng(4)
COVER = np.kron(RNG.integers(0, 3, (4, 5)), np.ones((6, 4), int))
VALUES = np.eye(3)[:, COVER] * 20 + RNG.normal(size=(3, 24, 20))


def raster(*, lazy: bool = False, gaps: bool = True) -> Any:
    values = VALUES.copy()
    if gaps:
        values[1, 3:6, 2] = np.nan
    found = xr.DataArray(
        values,
        dims=("band", "y", "x"),
        coords={"y": np.arange(24) * 10.0, "x": np.arange(20) * 5.0, "spatial_ref": 7},
    )
    return found.chunk({"band": 1, "y": 7, "x": 20}) if lazy else found


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "estimator",
    [
        dc.KMeans(3, random_state=0, init="k-means++"),
        dc.VariationalGaussianMixture(3, random_state=0),
        dc.KernelKMeans(3, random_state=0),
    ],
    ids=lambda each: type(each).__name__,
)
def test_cells_are_labelled(estimator: Any, lazy: bool) -> None:
    rows = raster(lazy=lazy)
    labels = estimator.fit_predict(rows)
    assert (labels.chunks is not None) == lazy
    assert (labels.dims, labels.dtype) == (("y", "x"), np.int32)
    assert labels.spatial_ref.item() == 7
    assert np.array_equal(labels.x, rows.x)
    found = labels.values
    assert np.array_equal(found == -1, np.isnan(raster().values[1]))
    for label in range(3):
        assert len(np.unique(COVER[found == label])) == 1
    assert np.array_equal(estimator.predict(rows.transpose("y", "x", "band")).values, found)


def test_distances_datasets_and_weights() -> None:
    model = dc.KMeans(3, random_state=0).fit(raster())
    distances = model.transform(raster(lazy=True))
    assert distances.dims == ("y", "x", "value")
    assert np.array_equal(np.isnan(distances.values[..., 0]), np.isnan(raster().values[1]))
    whole = raster(gaps=False)
    variables = xr.Dataset({str(i): whole[i] for i in range(3)})
    assert np.array_equal(model.predict(variables), model.predict(whole))
    with pytest.raises(InvalidParameterError, match="sample_weight cannot be given for the cells"):
        dc.KMeans(3).fit(whole, sample_weight=np.ones(480))


def test_variables_that_are_no_features() -> None:
    """Bounds and reference systems are left out; variables that differ in their dimensions are refused."""
    whole = raster(gaps=False).drop_vars("spatial_ref")
    bands = xr.Dataset({str(i): whole[i] for i in range(3)})
    model = dc.KMeans(3, random_state=0).fit(bands)
    other = bands.assign(y_bnds=(("y", "nv"), np.zeros((24, 2))), crs=0)
    other["y"].attrs["bounds"], other["1"].encoding["grid_mapping"] = "y_bnds", "crs"
    assert dc.open_grid(other).dataset.feature_names == ("0", "1", "2")  # type: ignore[attr-defined]
    found = dc.KMeans(3, random_state=0).fit_predict(other)
    assert (found.dims, found.attrs) == (("y", "x"), {"grid_mapping": "crs", "nodata": -1})
    assert set(found.coords) == {"y", "x", "crs"}
    assert np.array_equal(found, model.predict(bands))
    assert np.array_equal(dc.open_grid(bands).dataset.to_numpy(), whole.values.reshape(3, -1).T)  # type: ignore[attr-defined]
    with pytest.raises(InvalidDataError, match=r"dimensions \('y', 'x'\), but .*'slope' \('y',\)"):
        dc.open_grid(bands.assign(slope=("y", np.zeros(24))))
    with pytest.raises(WrongTypeError, match=r"DataTree with variables at /a; .*tree\['/a'\]"):
        dc.KMeans(3).fit(xr.DataTree.from_dict({"a": bands}))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("where", ["attrs", "encoding"])
def test_results_are_not_packed_as_the_cells_are(lazy: bool, where: str, tmp_path: Path) -> None:
    packing = {"_FillValue": -9999.0, "scale_factor": 0.1, "grid_mapping": "spatial_ref"}
    packing |= {"units": "1"}
    rows = raster(lazy=lazy).rename("refl")
    rows.attrs, rows.encoding = (packing, {}) if where == "attrs" else ({}, packing)
    for cells in (rows, xr.Dataset({f"b{i}": rows[i] for i in range(3)})):
        model = dc.KMeans(3, random_state=0).fit(cells)
        labels = model.predict(cells)
        assert (labels.name, labels.attrs, labels.encoding) == (
            "label",
            {"grid_mapping": "spatial_ref", "nodata": -1},
            {},
        )
        assert dict(rows.attrs) == (packing if where == "attrs" else {}), "the source is unchanged"
        distances = model.transform(cells)
        assert (distances.name, distances.attrs) == (None, {"grid_mapping": "spatial_ref"})
        for zarr_format in (2, 3):
            url = tmp_path / f"{zarr_format}.zarr"
            labels.to_zarr(url, mode="w", zarr_format=zarr_format, consolidated=False)
            found = xr.open_zarr(url, consolidated=False)["label"]
            assert found.dtype == np.int32
            assert np.array_equal(found.values, labels.values)
            assert (found.values == -1).sum() == 3


def test_numbers_of_bands_are_names() -> None:
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(3, 20, 30)) * np.array([1, 5, 20])[:, None, None]
    scene = xr.DataArray(cells, dims=("band", "y", "x"), coords={"band": [4, 3, 8]})
    model = dc.KMeans(4, random_state=0).fit(scene)
    assert model.feature_names_in_.tolist() == ["4", "3", "8"]
    for other in (scene.sel(band=[8, 4, 3]), scene.chunk({"y": 7}).sel(band=[3, 8, 4])):
        assert np.array_equal(model.predict(other), model.predict(scene))
    with pytest.raises(dc.errors.InvalidDataError, match="feature names should match"):
        model.predict(scene.assign_coords(band=[1, 2, 3]))


def test_a_dataset_of_one_variable_is_that_variable() -> None:
    cube = raster(gaps=False).drop_vars("spatial_ref").assign_coords(band=["r", "g", "n"])
    alone = xr.Dataset({"refl": cube})
    model = dc.KMeans(3, random_state=0).fit(cube)
    for lazy in (False, True):
        given = alone.chunk({"y": 7}) if lazy else alone
        fitted = dc.KMeans(3, random_state=0).fit(given)
        assert np.array_equal(fitted.cluster_centers_, model.cluster_centers_)
        assert fitted.feature_names_in_.tolist() == ["r", "g", "n"]
        swapped = given.isel(band=[2, 0, 1])
        assert np.array_equal(fitted.predict(swapped), model.predict(cube))
    times = xr.Dataset({"ndvi": cube.rename(band="time")})
    grid, expected = (dc.open_grid(each, features="time") for each in (times, times["ndvi"]))
    assert repr(grid) == repr(expected) == "Grid(24 x 20, 480 rows with data, 3 features)"
    assert np.array_equal(grid.dataset.to_numpy(), expected.dataset.to_numpy())  # type: ignore[attr-defined]
    for each in (times, times["ndvi"]):
        with pytest.raises(
            InvalidParameterError, match=r"dimensions time, y, x .*open_grid\(source"
        ):
            dc.KMeans(3).fit(each)
    single = xr.Dataset({"height": cube[0].drop_vars("band")})
    with pytest.warns(UserWarning, match=r"one variable, 'height', whose last dimension 'x'"):
        dc.KMeans(2).fit(single)
    cells = dc.open_grid(single, features="variable")
    assert cells.dataset.feature_names == ("height",)  # type: ignore[attr-defined]
    fitted = dc.KMeans(2, random_state=0).fit(cells.dataset)
    assert fitted.predict(single).dims == ("y", "x")


@pytest.mark.parametrize("kind", ["array", "variables"])
def test_a_reference_system_is_found_in_the_store(kind: str, tmp_path: Path) -> None:
    whole = raster(gaps=False).drop_vars("spatial_ref")
    whole.attrs["grid_mapping"] = "crs"
    stored = xr.Dataset({"refl": whole, "a": whole[0], "b": whole[1], "crs": 0})
    stored["crs"].attrs["crs_wkt"] = "LOCAL_CS"
    stored.to_zarr(tmp_path / "x.zarr", consolidated=False)
    for chunks in ({}, None):
        opened = xr.open_zarr(tmp_path / "x.zarr", chunks=chunks, consolidated=False)
        cells = opened["refl"] if kind == "array" else opened[["a", "b"]]
        assert "crs" not in cells.coords
        grid, url = dc.open_grid(cells), str(tmp_path / f"map-{chunks}.zarr")
        labels = np.zeros(grid.dataset.n_rows, np.int32)
        if chunks is None:  # values of which nothing says where they come from
            with pytest.warns(
                UserWarning, match=r"no coordinate reference system: grid_mapping='crs'"
            ):
                grid.save(labels, url)
            continue
        grid.save(labels, url)
        found = xr.open_zarr(url, consolidated=False, decode_coords="all")["label"]
        assert found.crs.attrs["crs_wkt"] == "LOCAL_CS"
        assert dc.KMeans(2).fit_predict(cells).crs.attrs["crs_wkt"] == "LOCAL_CS"


def test_features_of_one_name_are_taken_in_order_with_a_warning() -> None:
    cells = xr.DataArray(np.zeros((3, 4, 5)), dims=("band", "y", "x"), coords={"band": list("aba")})
    with pytest.warns(UserWarning, match="2 features of the grid are called 'a'"):
        assert dc.open_grid(cells).dataset.feature_names is None
