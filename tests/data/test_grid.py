"""Grids as rows and back: masks, axes, coordinates, stores."""

from __future__ import annotations

import pickle
import warnings

import dask.array as da
import numpy as np
import pytest
import zarr
from sklearn.metrics import adjusted_rand_score

import daskcluster as dc
from daskcluster import jobs
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.features import FeatureSpec
from daskcluster.data.info import describe
from daskcluster.errors import InvalidDataError, InvalidParameterError, OutputExistsError


def raster(y=12, x=9, bands=3):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(y, x, bands)).astype(np.float32)
    values[:, x // 2 :] += 20
    return values


def test_a_full_grid_is_a_view():
    values = raster()
    grid = dc.open_grid(values)
    assert (grid.shape, grid.mask, grid.dataset.n_rows) == ((12, 9), None, 108)
    assert np.shares_memory(grid.dataset.held, values)
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


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_a_stored_grid_with_cells_without_data(tmp_path, dtype):
    values = raster(y=40).astype(dtype)
    values[3:20, 2:5, 1] = -99
    values[30, 4] = np.nan if dtype == np.float32 else -99
    zarr.create_array(tmp_path / "r", data=values, chunks=(7, 9, 3))
    grid = dc.open_grid(str(tmp_path / "r"), nodata=-99)
    expected = dc.open_grid(values, nodata=-99)
    assert not grid.dataset.in_memory
    assert np.array_equal(grid.mask, expected.mask)
    assert np.array_equal(grid.dataset.to_numpy(), expected.dataset.to_numpy())
    model = dc.KMeans(2, random_state=0).fit(grid.dataset)
    image = grid.unflatten(model.labels_)
    assert image.shape == (40, 9)
    assert (image[3:20, 2:5] == -1).all()
    assert (image == -1).sum() == 17 * 3 + 1
    distances = grid.unflatten(model.transform(grid.dataset), fill=np.nan)
    assert distances.shape == (40, 9, 2)
    assert np.array_equal(np.isnan(distances[..., 0]), image == -1)
    full = dc.open_grid(str(tmp_path / "r"), nodata=7777)
    assert (full.mask is None) == (dtype == np.int16)
    zarr.create_array(tmp_path / "none", data=np.full((4, 5, 3), -99, dtype))
    with pytest.raises(ValueError, match="no cell of the grid"):
        dc.open_grid(str(tmp_path / "none"), nodata=-99)


@pytest.mark.parametrize("features", [1, (3, 0)])
@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
def test_features_on_any_axes_of_any_array(tmp_path, features, kind):
    values = np.random.default_rng(1).integers(0, 99, (4, 13, 11, 3)).astype(np.uint8)
    wanted = (features,) if isinstance(features, int) else features
    rest = [axis for axis in range(4) if axis not in wanted]
    d = int(np.prod([values.shape[axis] for axis in wanted]))
    expected = values.transpose(*rest, *wanted).reshape(-1, d)
    source = values
    if kind == "zarr":
        zarr.create_array(tmp_path / "r", data=values, chunks=(1, 5, 4, 2))
        source = str(tmp_path / "r")
    elif kind == "dask":
        source = da.from_array(values, chunks=(1, 5, 4, 2))
    grid = dc.open_grid(source, features=features)
    assert grid.shape == tuple(values.shape[axis] for axis in rest)
    assert np.array_equal(grid.dataset.to_numpy(), expected)
    assert grid.dataset.dtype == np.uint8
    rows = np.array([len(expected) - 1, 0, 7])
    assert np.array_equal(grid.dataset.take(rows), expected[rows])
    if kind == "zarr":
        again = pickle.loads(pickle.dumps(grid.dataset))
        assert np.array_equal(again.to_numpy(), expected)
    # A part of it: positions, as there are no coordinates.
    some = {rest[0]: slice(2, 9), wanted[0]: [0, 2] if values.shape[wanted[0]] > 2 else [0]}
    part = dc.open_grid(source, features=features, select=some)
    picked = values
    for axis, at in some.items():
        picked = picked[(slice(None),) * axis + (at,)]
    assert np.array_equal(
        part.dataset.to_numpy(), picked.transpose(*rest, *wanted).reshape(part.dataset.n_rows, -1)
    )


@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
def test_codes_are_decoded_as_they_are_read(tmp_path, kind):
    codes = np.random.default_rng(2).integers(0, 5, (2, 30, 20)).astype(np.uint8)
    codes[0, 3:7, 5] = 255
    source = codes
    if kind == "zarr":
        zarr.create_array(tmp_path / "r", data=codes, chunks=(1, 10, 20))
        source = str(tmp_path / "r")
    elif kind == "dask":
        source = da.from_array(codes, chunks=(1, 10, 20))
    known = codes[0] != 255
    grid = dc.open_grid(source, features=0, nodata=255, dequantize=(0.5, -1))
    assert np.array_equal(grid.mask, known)
    expected = np.moveaxis(codes, 0, -1)[known]
    assert grid.dataset.dtype == np.float32
    assert np.array_equal(grid.dataset.to_numpy(), (expected * 0.5 - 1).astype(np.float32))
    table = [0.0, 10, 20, 30, 45]
    of_table = dc.open_grid(source, features=0, nodata=255, dequantize=table)
    assert np.array_equal(of_table.dataset.to_numpy(), np.take(table, expected).astype(np.float32))
    with pytest.raises(InvalidDataError, match=r"holds the code 4, and the table"):
        dc.open_grid(source, features=0, nodata=255, dequantize=table[:4])
    with pytest.raises(InvalidParameterError, match=r"should be \(scale, offset\), or a table"):
        dc.open_grid(source, features=0, dequantize=3.0)


@pytest.mark.parametrize(
    ("zarr_format", "dtype", "encoding"),
    [
        (3, "int16", {"scale_factor": 0.0001, "add_offset": 0.0, "_FillValue": -9999}),
        (2, "int16", {"scale_factor": 0.0001}),
        (3, "uint8", {"_FillValue": 255}),
        (3, "int32", {"scale_factor": 0.5, "add_offset": 3.0}),
        (3, "int16", {"scale_factor": 1.0, "_FillValue": -9999}),
        (3, "float32", {"_FillValue": -1.0}),
        (3, "float32", {}),
    ],
)
def test_packed_arrays_are_decoded_as_xarray_does(tmp_path, zarr_format, dtype, encoding):
    """An array opened alone has the values that it has as one of several, or through xarray."""
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    values = np.random.default_rng(0).integers(0, 50, (30, 20, 3)) * encoding.get("scale_factor", 1)
    values = values + encoding.get("add_offset", 0.0)
    if "_FillValue" in encoding:
        values[3:7, 5, 0] = np.nan
    url = str(tmp_path / "packed.zarr")
    xr.Dataset({"refl": (("y", "x", "band"), values)}).to_zarr(
        url,
        encoding={"refl": {"dtype": dtype, **encoding}},
        zarr_format=zarr_format,
        consolidated=False,
    )
    expected = xr.open_zarr(url, consolidated=False)["refl"]
    rows = expected.to_numpy().reshape(-1, 3)
    whole = dc.open_dataset(url, array="refl", flatten=True)
    np.testing.assert_array_equal(whole.to_numpy(), rows)
    assert whole.dtype == expected.dtype
    by_object = dc.open_dataset(zarr.open_array(f"{url}/refl", mode="r"), flatten=True)
    np.testing.assert_array_equal(by_object.to_numpy(), rows)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(whole)).to_numpy(), rows)
    alone, lazy = dc.open_grid(url, array="refl"), dc.open_grid(expected)
    several = dc.open_grid(url, array=["refl"], features=("variable", "band"))
    assert several.dataset.dtype == alone.dataset.dtype == expected.dtype
    known = ~np.isnan(rows).any(axis=1)
    if encoding.get("_FillValue") is not None:
        assert np.array_equal(alone.mask, lazy.mask)
        assert not alone.mask[3:7, 5].any()
        raw = xr.open_zarr(url, consolidated=False, mask_and_scale=False)["refl"]
        assert np.array_equal(dc.open_grid(raw, nodata=encoding["_FillValue"]).mask, alone.mask)
    assert f"{known.sum()} rows with data" in repr(lazy)
    np.testing.assert_array_equal(alone.dataset.to_numpy(), rows[known])
    model = dc.KMeans(2, init=rows[known][:2]).fit(expected)
    labels = dc.KMeans(2, init=rows[known][:2]).fit(rows[known]).labels_
    assert np.array_equal(np.asarray(model.labels_), labels)
    image = model.predict(expected)
    assert image.chunks is not None
    assert np.array_equal(image.values.ravel() != -1, known)
    assert np.array_equal(image.values.ravel()[known], labels)
    assert dc.open_grid(url, array="refl", dequantize=(1.0, 0.0)).dataset.n_rows == len(rows)
    # Nor does it matter who decodes: an array that xarray left as it is has the attributes.
    raw = xr.open_zarr(url, consolidated=False, mask_and_scale=False)["refl"]
    bands = [raw.isel(band=number).drop_vars("band", errors="ignore") for number in range(3)]
    for given in (raw, raw.load().copy(), xr.Dataset(dict(zip("abc", bands, strict=True)))):
        np.testing.assert_array_equal(dc.open_grid(given).dataset.to_numpy(), rows[known])
        np.testing.assert_array_equal(model.predict(given), image)
    np.testing.assert_array_equal(
        dc.open_grid(raw, decode=False).dataset.to_numpy(), raw.to_numpy().reshape(-1, 3)
    )


def test_a_map_of_stacked_cells_keeps_the_levels_of_their_index(tmp_path):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    coords = {"y": np.arange(12) * 10.0, "x": np.arange(9)}
    cells = xr.DataArray(raster(), coords, ("y", "x", "band")).stack(cell=("y", "x"))
    grid = dc.open_grid(cells)
    model = dc.KMeans(2, random_state=0).fit(grid.dataset)
    model.predict(grid.dataset, output=str(tmp_path / "map.zarr"))
    labels = model.predict(grid.dataset)
    found = xr.open_zarr(tmp_path / "map.zarr", consolidated=False)["label"]
    image = found.set_index(cell=("y", "x")).unstack("cell")
    assert np.array_equal(image.transpose("y", "x"), labels.reshape(12, 9))
    assert np.array_equal(image.y, coords["y"])


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_stored_numbers_without_decoding(tmp_path, zarr_format):
    """``decode=`` means the same for an array, a grid and several arrays; Zarr's zeros stay values."""
    pytest.importorskip("xarray", reason="xarray is not installed")
    codes = np.random.default_rng(5).integers(0, 9, (6, 5, 2)).astype(np.int16)
    codes[1, 2, 0], codes[4, 3, 1] = -9999, -1
    names, url = ["y", "x", "band"], str(tmp_path / "g.zarr")
    group = zarr.open_group(url, mode="w", zarr_format=zarr_format)
    packing = {"scale_factor": 0.5, "_FillValue": -9999}
    for name, attributes in (("plain", {}), ("packed", packing)):
        more = {"dimension_names": names}
        if zarr_format == 2:
            attributes, more = {**attributes, "_ARRAY_DIMENSIONS": names}, {}
        group.create_array(name, data=codes, fill_value=0, attributes=attributes, **more)
    rows = codes.reshape(-1, 2)
    values, kept = rows * 0.5, (rows != -9999).all(axis=1)
    values[rows == -9999] = np.nan
    both = {"array": ["packed", "plain"], "features": ("variable", "band")}
    for decode in (None, True):
        opened = dc.open_dataset(url, array="packed", flatten=True, decode=decode)
        np.testing.assert_array_equal(opened.to_numpy(), values)
        alone = dc.open_grid(url, array="packed", decode=decode)
        assert np.array_equal(alone.mask.ravel(), kept)
        several = dc.open_grid(url, decode=decode, **both)
        assert np.array_equal(several.dataset.to_numpy(), np.hstack([values, rows])[kept])
        assert opened.decoded is alone.dataset.decoded is several.dataset.decoded
        assert opened.decoded is (None if decode else True)
        # What means no data is a stored code, of which -0.5 is the value.
        some = kept & (rows != -1).all(axis=1)
        for more in ({"array": "packed"}, both):
            assert np.array_equal(
                dc.open_grid(url, nodata=-1, decode=decode, **more).mask.ravel(), some
            )
    alone = dc.open_grid(url, array="packed")
    derived = FeatureSpec(2).align(alone.dataset).with_scaling(FeatureScaling.filling(values[0]))
    assert derived.decoded is True
    opened = dc.open_dataset(url, array="packed", flatten=True, decode=False)
    alone = dc.open_grid(url, array="packed", decode=False)
    assert np.array_equal(opened.to_numpy(), rows)
    assert np.array_equal(alone.dataset.to_numpy(), rows)
    several = dc.open_grid(url, decode=False, **both)
    assert np.array_equal(several.dataset.to_numpy(), np.hstack([rows, rows]))
    assert several.dataset.dtype == np.int16
    assert opened.decoded is alone.dataset.decoded is several.dataset.decoded is False
    for decode in (None, False):
        plain = dc.open_grid(url, array="plain", decode=decode).dataset
        assert (plain.decoded, plain.n_rows, plain.dtype) == (None, 30, np.int16)
        assert dc.open_grid(codes, decode=decode).dataset.decoded is None
    # The same in a store of this process.
    here = zarr.create_array({}, data=codes, attributes=packing)
    assert np.array_equal(dc.open_grid(here).dataset.to_numpy(), values[kept])
    assert np.array_equal(dc.open_grid(here, decode=False).dataset.to_numpy(), rows)
    assert dc.open_dataset(here, flatten=True, decode=False).decoded is False


@pytest.mark.parametrize("kind", ["memory", "dask", "zarr", "xarray", "masked"])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_cells_that_lack_some_dates(tmp_path, kind, dtype):
    """A stack of dates of which one is cloudy, and a cell of sea, which has no value on any date."""
    values = np.random.default_rng(6).integers(0, 40, (3, 8, 9)).astype(dtype)
    values[:, :, 4:] += 100
    values[1, 2:5, 3:6], values[:, 7, 8] = -99, -99
    cells = np.moveaxis(values, 0, -1).reshape(-1, 3).astype(float)
    cells[cells == -99] = np.nan
    known = ~np.isnan(cells).all(axis=1)
    source, nodata = values, -99
    if dtype == "float32" and kind != "masked":
        source, nodata = np.where(values == -99, np.float32(np.nan), values), np.nan
    if kind == "masked":
        source, nodata = np.ma.masked_equal(values, -99), None
    elif kind == "dask":
        source = da.from_array(source, chunks=(2, 3, 9))
    elif kind == "zarr":
        zarr.create_array(tmp_path / "r", data=source, chunks=(1, 3, 9))
        source = str(tmp_path / "r")
    elif kind == "xarray":
        xr = pytest.importorskip("xarray", reason="xarray is not installed")
        source = xr.DataArray(source, dims=("band", "y", "x"), coords={"y": np.arange(8)})
        source = source.chunk({"y": 3})
    given = {"features": 0, "nodata": nodata}
    for missing in ("mean", "partial"):
        grid = dc.open_grid(source, missing=missing, **given)
        assert np.array_equal(grid.mask.ravel(), known)
        expected = dc.open_dataset(cells[known], missing=missing)
        filled = np.where(np.isnan(cells), np.nanmean(cells, axis=0), cells)[known]
        np.testing.assert_allclose(grid.dataset.to_numpy(), filled, rtol=1e-6)
        again = pickle.loads(pickle.dumps(grid.dataset))
        np.testing.assert_array_equal(again.to_numpy(), grid.dataset.to_numpy())
        model = dc.KMeans(2, init=filled[[0, 5]]).fit(grid.dataset)
        image = np.asarray(grid.unflatten(model.labels_)).ravel()
        assert np.array_equal(image == -1, ~known)
        labels = dc.KMeans(2, init=filled[[0, 5]]).fit(expected).labels_
        assert np.array_equal(image[known], labels)
        assert np.array_equal(np.asarray(model.predict(grid.dataset)), labels)
        if kind == "xarray":
            stack = source.where(source != -99)
            for cells_of in (stack, stack.compute()):
                image = np.asarray(model.predict(cells_of)).ravel()
                assert np.array_equal(image == -1, ~known)
                assert np.array_equal(image[known], labels)
    complete = ~np.isnan(cells).any(axis=1)
    assert np.array_equal(dc.open_grid(source, **given).mask.ravel(), complete)
    with pytest.raises(
        InvalidDataError, match=r"^Cell \(2, 3\) of the grid of shape \(8, 9\) lacks"
    ):
        dc.open_grid(source, missing="error", **given)
    sea = dc.open_grid(
        source,
        missing="error",
        features=0,
        nodata=nodata,
        select={"y" if kind == "xarray" else 1: slice(5, 8)},
    )
    assert np.array_equal(sea.mask.ravel(), known[-27:])
    with pytest.raises(InvalidParameterError, match="missing='some' should be one of error, drop"):
        dc.open_grid(source, missing="some", **given)


def test_zeros_of_zarr_are_values_and_attributes_must_be_numbers(tmp_path):
    stored = zarr.create_array(tmp_path / "r", data=np.zeros((8, 2), np.int16), fill_value=0)
    stored[:2] = 1
    assert dc.open_dataset(str(tmp_path / "r")).to_numpy().sum() == 4
    stored.attrs["scale_factor"] = "a tenth"
    for opened in (dc.open_dataset, dc.open_grid):
        with pytest.raises(InvalidDataError, match=r"scale_factor of the array at .* is 'a tenth'"):
            opened(str(tmp_path / "r"))
    raw = dc.open_grid(str(tmp_path / "r"), decode=False).dataset
    assert (raw.to_numpy().sum(), raw.decoded) == (4, False)


def test_a_land_cover_map(tmp_path, client):
    """A (time, y, x, band) int8 raster with nodata, on a cluster of processes, and back to xarray."""
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    rng = np.random.default_rng(3)
    cover = np.repeat(np.repeat(rng.integers(0, 3, (6, 5)), 10, 0), 10, 1)
    values = (cover[None, :, :, None] * 30 + rng.integers(0, 9, (4, 60, 50, 3))).astype(np.int8)
    values[:, 20:30, 7] = -128
    raster = xr.DataArray(
        values,
        dims=("time", "y", "x", "band"),
        coords={
            "time": np.array(["2024-01", "2024-04", "2024-07", "2024-10"], "datetime64[ns]"),
            "y": np.arange(60)[::-1] * 10.0,
            "x": np.arange(50) * 10.0,
            "band": ["red", "green", "nir"],
            "spatial_ref": 0,
        },
        attrs={"grid_mapping": "spatial_ref"},
    )
    raster.spatial_ref.attrs["crs_wkt"] = "EPSG:32632"
    url = str(tmp_path / "raster.zarr")
    raster.chunk({"time": 1, "y": 16, "x": 50, "band": 3}).to_dataset(name="reflectance").to_zarr(
        url, zarr_format=3, consolidated=False
    )
    part = {"time": slice("2024-04", "2024-12"), "y": slice(500, 100), "band": ["nir", "red"]}
    grid = dc.open_grid(
        url, array="reflectance", features=("time", "band"), nodata=-128, select=part
    )
    expected = raster.sel(part).transpose("y", "x", "time", "band").values.reshape(41, 50, 6)
    known = (expected != -128).all(axis=-1)
    assert (grid.shape, grid.dataset.n_features, grid.dataset.dtype) == ((41, 50), 6, np.int8)
    assert np.array_equal(grid.mask, known)
    assert np.array_equal(grid.dataset.to_numpy(), expected[known])
    fitted = dc.KMeans(3, random_state=0).fit(grid.dataset)
    output = str(tmp_path / "cover.zarr")
    fitted.labels_.save(output)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xr.open_zarr(output, consolidated=False)["label"]
    assert found.dims == ("y", "x")
    assert found.dtype == np.int32
    assert np.array_equal(found.y, raster.y.sel(y=slice(500, 100)))
    assert found.spatial_ref.attrs["crs_wkt"] == "EPSG:32632"
    assert np.array_equal(found.values == -1, ~known)
    labels = np.asarray(fitted.labels_)
    assert np.array_equal(found.values[known], labels)
    assert adjusted_rand_score(cover[9:50][known], labels) == 1.0
    image = grid.unflatten(fitted.labels_)
    assert found.attrs["grid_mapping"] == "spatial_ref"
    assert image.equals(found)
    with pytest.raises(OutputExistsError):
        fitted.labels_.save(output)
    fitted.labels_.save(output, overwrite=True)
    rows = pytest.importorskip("pyarrow.parquet")
    fitted.labels_.save(str(tmp_path / "labels.parquet"))
    numbers = rows.read_table(tmp_path / "labels.parquet").column("row")
    assert np.array_equal(numbers, np.flatnonzero(known))
    # The same from xarray, lazily, and from a cluster of processes.
    lazy = xr.open_zarr(url, consolidated=False)["reflectance"].sel(part)
    of_dask = dc.open_grid(lazy, features=("time", "band"), nodata=-128)
    assert not of_dask.dataset.in_memory
    assert np.array_equal(of_dask.dataset.to_numpy(), expected[known])
    more = {"features": ("time", "band"), "nodata": -128, "select": part}
    spread = dc.open_grid(url, array="reflectance", engine=client, **more)
    other = dc.KMeans(3, random_state=0, engine=client).fit(spread.dataset)
    assert np.array_equal(other.cluster_centers_, fitted.cluster_centers_)
    assert np.array_equal(np.asarray(other.labels_), labels)


def test_invalid_selections_are_refused(tmp_path):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    raster = xr.DataArray(
        np.zeros((3, 6, 5), np.float32), dims=("band", "y", "x"), coords={"y": np.arange(6) * 2.0}
    )
    raster.to_dataset(name="v").to_zarr(tmp_path / "r", zarr_format=3, consolidated=False)
    for source, more in ((raster, {}), (str(tmp_path / "r"), {"array": "v"})):
        with pytest.raises(InvalidParameterError, match=r"should be one of the dimensions band, y"):
            dc.open_grid(source, select={"z": 3}, **more)
        with pytest.raises(InvalidParameterError, match=r"is not found"):
            dc.open_grid(source, select={"y": 3.0}, **more)
        assert dc.open_grid(source, select={"y": 4.0}, **more).shape == (1, 5)
        with pytest.raises(InvalidParameterError, match=r"cells that follow each other"):
            dc.open_grid(source, select={"y": [0.0, 4.0]}, **more)
        with pytest.raises(InvalidParameterError, match=r"leaves nothing"):
            dc.open_grid(source, select={"y": slice(50, 60)}, **more)
    with pytest.raises(InvalidParameterError, match=r"Which of the dimensions a, b, c holds"):
        dc.open_grid(raster.rename(band="a", y="b", x="c"))
    with pytest.raises(InvalidParameterError, match=r"should be axes, each of them once"):
        dc.open_grid(raster, features=("band", 0))


def test_several_arrays_of_a_group(tmp_path):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    rng = np.random.default_rng(4)
    bands = {name: (("y", "x"), rng.normal(size=(8, 9))) for name in ("red", "nir", "swir")}
    xr.Dataset(bands).to_zarr(tmp_path / "r", zarr_format=3, consolidated=False)
    grid = dc.open_grid(str(tmp_path / "r"), array=["nir", "red"])
    expected = np.stack([bands["nir"][1], bands["red"][1]], -1).reshape(-1, 2)
    assert np.array_equal(grid.dataset.to_numpy(), expected)
    model = dc.KMeans(2, random_state=0).fit(grid.dataset)
    with pytest.raises(InvalidParameterError, match=r"replace|lies in|is read"):
        model.predict(grid.dataset, output=str(tmp_path / "r"), overwrite=True)
    with pytest.raises(InvalidParameterError, match=r"There is no array 'blue' in"):
        dc.open_grid(str(tmp_path / "r"), array=["blue"])


def test_invalid_grids_are_refused():
    with pytest.raises(ValueError, match="no cell of the grid"):
        dc.open_grid(np.full((2, 2, 2), np.nan))
    with pytest.raises(ValueError, match=r"a grid of shape \(3,\)"):
        dc.open_grid(np.zeros(3))
    with pytest.raises(ValueError, match="features=5 should be an axis"):
        dc.open_grid(np.zeros((3, 3)), features=5)
    with pytest.raises(TypeError, match="which is no grid"):
        dc.open_grid({"a": 1})
    for given in (dc.open_dataset, dc.KMeans(2).fit):
        with pytest.raises(TypeError, match=r"^A Grid is no array: pass its rows, grid.dataset"):
            given(dc.open_grid(raster()))
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


PACKING = {
    "_FillValue": -9999,
    "missing_value": -9999,
    "scale_factor": 0.1,
    "add_offset": 2.0,
    "units": "1",
    "long_name": "reflectance",
    "standard_name": "surface_albedo",
    "valid_range": [0, 1],
}
"""What describes the values of a source, and none of its labels."""


def scene(where):
    """Return a named raster (band, y, x) with a gap, attributes and a coordinate reference system."""
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    values = np.moveaxis(raster(), -1, 0).copy()
    values[0, 3:5, 2] = np.nan
    found = xr.DataArray(
        values,
        dims=("band", "y", "x"),
        name="refl",
        coords={
            "y": ("y", np.arange(12) * 10.0, {"units": "m"}),
            "x": np.arange(9.0),
            "spatial_ref": ((), 0, {"crs_wkt": "EPSG:32632"}),
        },
    )
    found.attrs, found.encoding = (PACKING, {}) if where == "attrs" else ({}, PACKING)
    getattr(found, where)["grid_mapping"] = "spatial_ref"
    return found


@pytest.mark.parametrize("where", ["attrs", "encoding"])
@pytest.mark.parametrize("kind", ["lazy", "variables"])
def test_labels_take_neither_units_nor_packing_from_the_grid(tmp_path, kind, where):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    source = scene(where)
    if kind == "variables":
        source = xr.Dataset({f"b{i}": source[i] for i in range(3)}, attrs=PACKING)
    source = source.chunk({"y": 5}) if kind == "lazy" else source
    grid = dc.open_grid(source)
    assert grid.dataset.n_rows == 106
    model = dc.KMeans(2, random_state=0).fit(grid.dataset)
    image = grid.unflatten(model.labels_)
    assert (image.name, image.dtype, image.encoding) == ("label", np.int32, {})
    assert image.attrs == {"grid_mapping": "spatial_ref", "nodata": -1}
    assert (image.values == -1).sum() == 2
    far = grid.unflatten(model.transform(grid.dataset), fill=np.nan)
    assert (far.name, far.attrs, far.dims) == (
        None,
        {"grid_mapping": "spatial_ref"},
        ("y", "x", "value"),
    )
    model.predict(grid.dataset, output=str(tmp_path / "l"), return_distance=True)
    opened = xr.open_zarr(tmp_path / "l", consolidated=False)
    labels, distance = opened["label"], opened["distance"]
    assert labels.dtype == np.int32
    assert labels.equals(image)
    assert labels.attrs == {"grid_mapping": "spatial_ref", "nodata": -1}
    assert not {*PACKING} & {*labels.encoding}
    assert labels.spatial_ref.attrs["crs_wkt"] == "EPSG:32632"
    assert labels.y.attrs == {"units": "m"}
    assert distance.attrs == {"grid_mapping": "spatial_ref"}
    assert np.array_equal(np.isnan(distance.values), image.values == -1)
    assert np.allclose(
        distance.values[image.values >= 0], model.transform(grid.dataset).min(axis=1), rtol=1e-5
    )


def test_the_reference_system_of_a_stored_grid_is_a_coordinate(tmp_path):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    source = scene("attrs").rename(spatial_ref="crs")
    source.attrs = {"grid_mapping": "crs", "units": "1"}
    stored = source.to_dataset(name="refl").reset_coords("crs")
    stored = stored.assign(other=stored["refl"][0].drop_vars("band", errors="ignore"))
    stored.to_zarr(tmp_path / "r", zarr_format=3, consolidated=False)
    for given in ({"array": "refl", "nodata": np.nan}, {"array": ["other"]}):
        grid = dc.open_grid(str(tmp_path / "r"), **given)
        assert grid.dataset.n_rows == 106
        model = dc.KMeans(1, random_state=0).fit(grid.dataset)
        model.predict(grid.dataset, output=str(tmp_path / "l"), overwrite=True)
        found = xr.open_zarr(tmp_path / "l", consolidated=False)["label"]
        assert found.attrs == {"grid_mapping": "crs", "nodata": -1}
        assert found.crs.attrs["crs_wkt"] == "EPSG:32632"


def test_values_of_cells_are_saved_as_a_map(tmp_path):
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    values = raster().astype(float)
    values[2, 3] = np.nan
    coordinates = {"y": np.arange(12) * 10.0, "x": np.arange(9) * 10.0}
    grid = dc.open_grid(xr.DataArray(values, coordinates, ("y", "x", "band")))
    labels = np.asarray(dc.KMeans(3, random_state=0).fit(grid.dataset).labels_)
    merged = (labels > 0).astype(np.uint8)
    for kind, given in (("array", merged), ("dask", da.from_array(merged, chunks=20))):
        grid.save(given, tmp_path / kind, name="cover")
        found = xr.open_zarr(tmp_path / kind, consolidated=False)["cover"]
        assert found.dtype == np.int32
        assert found.rename("label").equals(grid.unflatten(merged.astype(int)))
    grid.save(np.ma.masked_equal(labels, 1), tmp_path / "masked")
    found = xr.open_zarr(tmp_path / "masked", consolidated=False)["label"]
    assert np.array_equal(found.to_numpy()[grid.mask], np.where(labels == 1, -1, labels))
    with pytest.raises(OutputExistsError):
        grid.save(merged, tmp_path / "array")
    with pytest.raises(InvalidDataError, match=r"one for each row"):
        grid.save(merged[1:], tmp_path / "short")
    with pytest.raises(InvalidDataError, match=r"range of int32, but one is 3000000000"):
        grid.save(np.full(len(labels), 3 * 10**9), tmp_path / "large")
    with pytest.raises(InvalidParameterError, match="written as Zarr, a folder"):
        grid.save(merged, tmp_path / "cover.nc")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["array", "dask", "masked"]


@pytest.mark.parametrize("name", ["lc.jp2", "lc.nc4", "a.b.geotiff", "cells.h5ad"])
def test_a_map_is_written_as_zarr(tmp_path, name):
    values = raster()
    grid = dc.open_grid(values)
    model = dc.KMeans(2, random_state=0).fit(values.reshape(-1, 3))
    stored = str(tmp_path / "r.zarr")
    zarr.create_array(stored, data=values, chunks=(6, 9, 3))
    url = str(tmp_path / name)
    of_store = dc.KMeans(2, random_state=0).fit(dc.open_grid(stored).dataset)
    stem = name.rpartition(".")[0]
    for write in (
        lambda: model.predict(grid.dataset, output=url),
        lambda: model.predict(values.reshape(-1, 3), output=url),
        lambda: of_store.labels_.save(url),
        lambda: jobs.fit(stored, n_clusters=2, model=str(tmp_path / "m"), labels=url, grid={}),
    ):
        with pytest.raises(InvalidParameterError, match=rf"written as Zarr, a folder.*{stem}.zarr"):
            write()
    assert [each.name for each in tmp_path.iterdir()] == ["r.zarr"]


def test_a_geotiff_and_its_map(tmp_path):
    """Bands of a GeoTIFF are features, its nodata is missing, and labels keep the reference system."""
    rioxarray = pytest.importorskip("rioxarray", reason="rioxarray is not installed")
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    codes = np.random.default_rng(0).integers(1, 200, (3, 40, 50)).astype(np.int16)
    codes[:, 3, 4] = codes[0, 7, 8] = -9999
    coordinates = {"band": [1, 2, 3], "y": np.arange(40)[::-1] * 10.0, "x": np.arange(50) * 10.0}
    descriptions = {"long_name": ("red", "green", "infrared")}
    bands = xr.DataArray(codes, coordinates, ("band", "y", "x"), attrs=descriptions)
    path = tmp_path / "x.tif"
    bands.rio.write_crs("EPSG:32633").rio.write_nodata(-9999).rio.to_raster(path)
    grid = dc.open_grid(path)
    wanted = codes.transpose(1, 2, 0)[grid.mask].astype(np.float32)
    assert np.array_equal(grid.dataset.to_numpy(), wanted)
    assert len(wanted) == 1998
    assert dc.open_dataset(path, missing="mean").n_rows == 1999
    model = dc.KMeans(3, random_state=0).fit(path)
    labels = grid.unflatten(np.asarray(model.labels_))
    assert labels.rio.crs.to_epsg() == 32633
    labels.rio.to_raster(tmp_path / "by_rio.tif")
    opened = rioxarray.open_rasterio(path)  # an integer array, with the nodata among its attributes
    assert np.array_equal(model.predict(opened), labels)
    assert list(model.feature_names_in_) == ["red", "green", "infrared"]
    assert np.array_equal(model.predict(opened.isel(band=[2, 0, 1])), labels)
    chosen = dc.open_grid(path, select={"band": [3, 1]}).dataset
    assert chosen.feature_names == ("infrared", "red")
    facts = describe(dc.open_dataset(path))
    assert (facts["feature_names"], facts["grid_shape"]) == (["red", "green", "infrared"], [40, 50])
    assert np.array_equal(dc.KMeans(3, random_state=0).fit_predict(opened) == -1, ~grid.mask)
    for overwrite in (False, True):
        model.predict(grid.dataset, output=str(tmp_path / "labels.tif"), overwrite=overwrite)
    model.predict(opened).rio.to_raster(tmp_path / "predicted.tif")
    grid.save(np.asarray(model.labels_).astype(int), tmp_path / "saved.tif")
    for name in ("labels", "by_rio", "predicted", "saved"):
        again = rioxarray.open_rasterio(tmp_path / f"{name}.tif")[0]
        assert np.array_equal(again.to_numpy(), labels.to_numpy())
        assert (again.rio.crs.to_epsg(), again.rio.nodata) == (32633, -1)
    with pytest.raises(InvalidParameterError, match="a GeoTIFF holds the labels of a grid"):
        model.predict(wanted, output=str(tmp_path / "rows.tif"))
    assert (labels.to_numpy()[~grid.mask] == -1).all()
    raw = dc.open_grid(path, decode=False).dataset
    assert (raw.dtype, raw.n_rows, raw.decoded) == (np.int16, 2000, False)


@pytest.mark.parametrize("door", ["memory", "lazy", "stored", "job"])
def test_stacked_features_are_selected_by_their_labels(door, tmp_path):
    """Dates, years and wavelengths are names as bands are: an order that changed is put right."""
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    values = np.random.default_rng(0).normal(size=(2, 3, 8, 9)) * np.arange(1, 7).reshape(
        2, 3, 1, 1
    )
    along = {"date": [2020, 2021], "band": ["red", "nir", "swir"], "y": np.arange(8.0)}
    cube = xr.DataArray(values, along, ("date", "band", "y", "x"), name="refl")

    def opened(cells, features, name):
        if door in ("memory", "lazy"):
            return dc.open_grid(cells.chunk() if door == "lazy" else cells, features=features)
        url = str(tmp_path / f"{name}.zarr")
        cells.to_dataset().to_zarr(url, zarr_format=2, consolidated=False)
        return dc.open_grid(url, array="refl", features=features)

    both = ("date", "band")
    grid = opened(cube, both, "fit")
    assert grid.dataset.feature_names[:4] == ("2020/red", "2020/nir", "2020/swir", "2021/red")
    model = dc.KMeans(3, random_state=0).fit(grid.dataset)
    model.save(str(tmp_path / "model"))
    other = cube[::-1, [2, 0, 1]]
    found = opened(other, both, "other").dataset
    expected = np.asarray(model.predict(grid.dataset))
    assert np.array_equal(np.asarray(model.predict(found)), expected)
    if door == "job":
        url, labels = str(tmp_path / "other.zarr"), str(tmp_path / "labels.npy")
        more = {"array": "refl", "grid": {"features": both}}
        jobs.predict(str(tmp_path / "model"), url, output=labels, **more)
        assert np.array_equal(np.load(labels).ravel(), expected)
    renamed = opened(cube.assign_coords(date=[2021, 2022]), both, "renamed").dataset
    with pytest.raises(InvalidDataError, match=r"now missing:\n- 2020/nir"):
        dc.load_model(str(tmp_path / "model")).predict(renamed)
    times = cube[:, 0].assign_coords(date=np.array(["2020-01-01", "2020-06-01T12"], "M8[ns]"))
    days = opened(times.drop_vars("band"), "date", "days").dataset.feature_names
    assert days == ("2020-01-01", "2020-06-01T12:00:00.000000000")
    waves = cube[0].assign_coords(band=np.array([0.5, 0.66, 1.6], np.float32)).drop_vars("date")
    assert opened(waves, "band", "waves").dataset.feature_names == ("0.5", "0.66", "1.6")
    assert opened(cube[0, 0].drop_vars(["date", "band"]), "x", "x").dataset.feature_names is None


@pytest.mark.parametrize("n_bands", [2, 4])
@pytest.mark.parametrize("hides", ["alpha", "mask"])
def test_a_mask_or_an_opacity_of_a_geotiff_says_where_there_are_no_data(n_bands, hides, tmp_path):
    rioxarray = pytest.importorskip("rioxarray", reason="rioxarray is not installed")
    rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed")
    codes = np.random.default_rng(0).integers(0, 99, (n_bands, 12, 9)).astype(np.uint8)
    seen = np.full((12, 9), 255, np.uint8)
    seen[:3], seen[5, 5] = 0, 7  # hardly opaque, but there
    options = {"driver": "GTiff", "width": 9, "height": 12, "dtype": "uint8", "count": n_bands}
    options["photometric"] = "MINISBLACK"
    if hides == "alpha":
        options |= {"alpha": "yes", "photometric": "RGB" if n_bands == 4 else "MINISBLACK"}
        codes[-1] = seen
    url = tmp_path / "x.tif"
    with rasterio.open(url, "w", crs="EPSG:32633", **options) as file:
        file.write(codes)
        if hides == "mask":
            file.write_mask(seen)
    bands = codes[:-1] if hides == "alpha" else codes
    grid = dc.open_grid(url)
    assert np.array_equal(grid.mask, seen > 0)
    assert np.array_equal(grid.mask, rioxarray.open_rasterio(url, masked=True)[0].notnull())
    assert np.array_equal(grid.dataset.to_numpy(), bands[:, seen > 0].T)
    doubled = dc.open_grid(url, dequantize=np.arange(256.0) * 2).dataset.to_numpy()
    assert np.array_equal(doubled, bands[:, seen > 0].T * 2)
    raw = dc.open_grid(url, decode=False).dataset
    assert (raw.n_rows, raw.n_features, raw.decoded) == (108, len(bands), False)
    model = dc.KMeans(2, random_state=0).fit(url)
    assert len(np.asarray(model.labels_)) == 9 * 9
    record = jobs.fit(str(url), n_clusters=2, model=str(tmp_path / "model"))
    assert record.n_rows == 9 * 9
    model.predict(url, output=str(tmp_path / "labels.tif"))
    found = rioxarray.open_rasterio(tmp_path / "labels.tif")[0].to_numpy()
    assert np.array_equal(found >= 0, seen > 0)
