"""Masked arrays: what is masked is missing, in rows, grids, weights and labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import daskcluster as dc
from daskcluster.data.label_files import open_labels
from daskcluster.errors import InvalidDataError, InvalidParameterError

FILL = -9999
ROWS = np.random.default_rng(2).normal(5, 2, size=(400, 4)).astype(np.float32)
HOLES = np.zeros(ROWS.shape, bool)
HOLES[[3, 77, 250, 399], [0, 2, 3, 1]] = True
HOLES[120:140, 1] = True
GAPPY = np.where(HOLES, np.nan, ROWS).astype(np.float32)
COMPLETE = ~HOLES.any(axis=1)
CODES = (ROWS * 100).astype(np.int16)


def masked(values: np.ndarray) -> np.ma.MaskedArray:
    """Return `values` as rasterio gives them: with a value under the mask that must not be read."""
    return np.ma.masked_equal(np.where(HOLES, FILL, values).astype(values.dtype), FILL)


def lazy(values: np.ndarray) -> Any:
    return da.from_array(masked(values), chunks=(150, 2))


def silent(values: np.ndarray) -> Any:
    """Return a dask array of masked blocks whose metadata says plain ones."""
    plain = da.from_array(np.where(HOLES, FILL, values).astype(values.dtype), chunks=(150, 4))
    meta = np.empty((0, 0), values.dtype)
    return plain.map_blocks(lambda block: np.ma.masked_equal(block, FILL), meta=meta)


def mapped(values: np.ndarray, folder: Path) -> Any:
    np.save(folder / "x.npy", np.where(HOLES, FILL, values).astype(values.dtype))
    return np.ma.masked_equal(np.load(folder / "x.npy", mmap_mode="r"), FILL, copy=False)


KINDS: dict[str, Callable[[Path], Any]] = {
    "array": lambda folder: masked(ROWS),
    "hard": lambda folder: np.ma.array(masked(ROWS), hard_mask=True, fill_value=7),
    "float64": lambda folder: masked(ROWS.astype(np.float64)),
    "list": lambda folder: list(masked(ROWS)),
    "memmap": lambda folder: mapped(ROWS, folder),
    "dask": lambda folder: lazy(ROWS),
    "dask, without metadata": lambda folder: silent(ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_masked_is_nan(kind: str, tmp_path: Path) -> None:
    source = KINDS[kind](tmp_path)
    rows: Any = dc.open_dataset(source)
    assert np.array_equal(rows.to_numpy(), GAPPY, equal_nan=True)
    dropped: Any = dc.open_dataset(source, missing="drop")
    assert np.array_equal(dropped.to_numpy(), ROWS[COMPLETE])
    means = np.nanmean(GAPPY.astype(np.float64), axis=0)
    filled = dc.open_dataset(source, missing="mean").to_numpy()  # type: ignore[attr-defined]
    assert np.allclose(filled, np.where(HOLES, means, ROWS), rtol=1e-6)
    with pytest.raises(InvalidDataError, match=r"Input X contains NaN: first in row 3"):
        dc.KMeans(3, random_state=0).fit(source)


def test_the_source_stays_as_it_is() -> None:
    source = masked(ROWS)
    values, mask = source.data.copy(), source.mask.copy()
    found: Any = dc.open_dataset(source)
    assert not np.shares_memory(found.held, source.data)
    dc.open_dataset(source, scale="standard", missing="mean")
    dc.open_grid(source.reshape(20, 20, 4))
    assert np.array_equal(source.data, values)
    assert np.array_equal(source.mask, mask)


def test_without_masked_values_it_is_its_data() -> None:
    for mask, dtype in ((np.ma.nomask, "int16"), (False, "float32"), (False, "bool")):
        values = (CODES % 2 if dtype == "bool" else CODES).astype(dtype)
        given = np.ma.array(values, mask=mask)
        rows: Any = dc.open_dataset(given)
        assert rows.dtype == dtype
        assert np.shares_memory(rows.held, values), dtype
    labels = dc.KMeans(2, random_state=0).fit_predict(given)
    assert np.array_equal(labels, dc.KMeans(2, random_state=0).fit_predict(values))


ESTIMATORS = [
    name
    for name in dc.__all__
    if inspect.isclass(getattr(dc, name)) and hasattr(getattr(dc, name), "fit")
]


def test_integers_become_floats_that_hold_them() -> None:
    for expected, dtypes in (
        ("float32", ("bool", "int8", ">i2", "uint16")),
        ("float64", ("int32", "uint64", "float64")),
        ("float16", ("float16",)),
    ):
        for dtype in dtypes:
            values = np.abs(CODES).astype(dtype)
            source = np.ma.array(values, mask=HOLES)
            holes = np.where(HOLES, np.nan, values)
            for given in (source, da.from_array(source, chunks=(100, 4))):
                rows: Any = dc.open_dataset(given)
                assert rows.dtype == expected, dtype
                assert np.array_equal(rows.to_numpy(), holes, equal_nan=True), dtype


def test_blocks_of_a_lazy_array_have_one_dtype() -> None:
    rows: Any = dc.open_dataset(lazy(CODES))
    blocks = [chunk.rows for chunk in rows.chunks([(0, 3), (150, 200), (300, 400)])]
    assert {block.dtype for block in blocks} == {np.dtype(np.float32)}
    assert not HOLES[150:200].any()
    raster = da.from_array(masked(CODES).reshape(20, 20, 4), chunks=(5, 7, 4))
    flat: Any = dc.open_dataset(raster, flatten=True, missing="drop")
    assert np.array_equal(flat.to_numpy(), CODES[COMPLETE])
    with pytest.raises(
        InvalidDataError, match=r"lacks values, .* metadata says int16, which .*astype"
    ):
        dc.KMeans(3, random_state=0).fit(silent(CODES))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_refuses_masked_values_like_nan(name: str) -> None:
    kind = getattr(dc, name)
    own = inspect.signature(kind).parameters
    given: Any = {key: 3 for key in ("n_clusters", "n_components") if key in own}
    given |= {"random_state": 0} if "random_state" in own else {}
    source = masked(ROWS)
    for method in ("fit", "fit_predict", "partial_fit"):
        if hasattr(kind, method):
            with pytest.raises(InvalidDataError, match=r"Input X contains NaN: first in row 3"):
                getattr(kind(**given), method)(source)
    model = kind(**given).fit(ROWS)
    for method in ("predict", "transform", "score", "predict_proba", "score_samples"):
        if hasattr(model, method):
            with pytest.raises(InvalidDataError, match=r"Input X contains NaN: first in row 3"):
                getattr(model, method)(source)
    weights = np.ma.masked_equal(np.arange(400.0), 11)
    with pytest.raises(InvalidParameterError, match=r"the weight of row 11 is missing"):
        kind(**given).fit(ROWS, sample_weight=weights)


def test_weights() -> None:
    weights = np.arange(400.0) + 1
    for given in (np.ma.array(weights), np.ma.array(weights, mask=False)):
        assert np.array_equal(np.asarray(dc.open_dataset(ROWS, weights=given).weights), weights)
    hidden = np.ma.masked_equal(weights, 8)
    for given in (hidden, da.from_array(hidden, chunks=90)):
        with pytest.raises(InvalidParameterError, match=r"the weight of row 7 is missing; give"):
            dc.open_dataset(ROWS, weights=given)


def test_lazy_predictions() -> None:
    for scale in (None, "standard"):
        model = dc.KMeans(3, random_state=0).fit(dc.open_dataset(ROWS, scale=scale))
        with pytest.raises(InvalidDataError, match=r"Input X contains NaN"):
            model.predict(lazy(ROWS)).compute()
        found = model.predict(lazy(ROWS)[:100, :])
        assert found.chunks == ((100,),)
        whole = np.ma.array(ROWS)
        labels = model.predict(da.from_array(whole, chunks=(150, 4)))
        assert np.array_equal(labels.compute(), model.predict(ROWS))


# -- grids -----------------------------------------------------------------------------------------


def raster(values: np.ndarray) -> np.ma.MaskedArray:
    """Return a raster (band, y, x) of 20 x 20 cells."""
    return np.ma.masked_array(np.moveaxis(masked(values).reshape(20, 20, 4), -1, 0))


@pytest.mark.parametrize("kind", ["memory", "dask", "xarray", "lazy xarray", "xarray of dask"])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_cells_with_a_masked_value_are_left_out(kind: str, dtype: str) -> None:
    values = CODES if dtype == "int16" else ROWS
    source: Any = raster(values)
    if "dask" in kind:
        source = da.from_array(source, chunks=(2, 7, 20))
    if "xarray" in kind:
        xr = pytest.importorskip("xarray", reason="xarray is not installed")
        source = xr.DataArray(source, dims=("band", "y", "x"))
        source = source.chunk({"y": 6}) if "lazy" in kind else source
    grid = dc.open_grid(source, features=0)
    assert np.array_equal(grid.mask.ravel(), COMPLETE)  # type: ignore[union-attr]
    assert np.array_equal(grid.dataset.to_numpy(), values[COMPLETE])  # type: ignore[attr-defined]
    assert f"{COMPLETE.sum()} rows with data" in repr(grid)
    if kind == "memory":
        assert grid.dataset.dtype == dtype
    model = dc.KMeans(3, init=values[COMPLETE][:3].astype(float)).fit(grid.dataset)
    expected = dc.KMeans(3, init=values[COMPLETE][:3].astype(float)).fit(values[COMPLETE])
    assert np.array_equal(np.asarray(model.labels_), expected.labels_)
    image = np.asarray(grid.unflatten(model.labels_))
    assert np.array_equal(image.ravel() == -1, ~COMPLETE)


def test_a_mask_and_nodata_and_nan() -> None:
    values = raster(ROWS)
    values[2, 5, 5] = np.nan
    values[1, 9, 9] = 77
    expected = COMPLETE.copy()
    expected[[5 * 20 + 5, 9 * 20 + 9]] = False
    for source in (values, da.from_array(values, chunks=(4, 7, 20))):
        grid = dc.open_grid(source, features=0, nodata=77)
        assert np.array_equal(grid.mask.ravel(), expected)  # type: ignore[union-attr]
    part = dc.open_grid(values, features=0, select={1: slice(0, 5), 0: [3, 0]})
    kept = ~HOLES[:100, [3, 0]].any(axis=1)
    assert np.array_equal(part.mask.ravel(), kept)  # type: ignore[union-attr]
    full = dc.open_grid(np.ma.array(ROWS.reshape(20, 20, 4)))
    assert full.mask is None
    with pytest.raises(InvalidDataError, match=r"no cell of the grid"):
        dc.open_grid(np.ma.masked_all((3, 4, 5)))


def test_masked_codes_are_no_codes() -> None:
    codes = np.ma.array(CODES.astype(np.uint8) % 8, mask=HOLES)
    codes.data[HOLES] = 255
    codes = codes.reshape(20, 20, 4)
    table = np.arange(8.0) ** 2
    expected = (CODES.astype(np.uint8) % 8).astype(np.float32)[COMPLETE]
    for source in (codes, da.from_array(codes, chunks=(6, 20, 4))):
        for given, values in ((table, expected**2), ((0.5, 1.0), expected / 2 + 1)):
            rows: Any = dc.open_grid(source, dequantize=given).dataset
            assert np.array_equal(rows.to_numpy(), values)


@pytest.mark.parametrize("kind", ["memory", "lazy", "without metadata"])
def test_maps_of_masked_cells(kind: str) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    model = dc.KMeans(3, random_state=0).fit(CODES[COMPLETE])
    source: Any = masked(CODES)
    if kind != "memory":
        source = silent(CODES) if "metadata" in kind else lazy(CODES)
    cells = xr.DataArray(source.reshape(20, 20, 4), dims=("y", "x", "band"))
    found = model.predict(cells).values.ravel()
    assert np.array_equal(found == -1, ~COMPLETE)
    assert np.array_equal(found[COMPLETE], model.labels_)


def test_masked_labels_are_missing() -> None:
    labels = np.ma.masked_equal(np.arange(6), 4)
    for given in (labels, da.from_array(labels, chunks=4)):
        with pytest.raises(InvalidDataError, match=r"labels contains NaN, or lacks values"):
            open_labels(given).read(0, 6)
        assert open_labels(given).read(0, 4).tolist() == [0, 1, 2, 3]
