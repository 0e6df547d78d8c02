"""What is opened by its path and as an object of its library: the same rows, names and missing values."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
ROWS[7, 1] = np.nan
NAMES = ("a", "b", "c")
CODES = np.arange(180, dtype=np.int16).reshape(60, 3)
PACKED = {"scale_factor": 0.5, "add_offset": -3.0, "_FillValue": np.int16(4)}
MIXED = np.stack([ROWS[:, 0], [*range(59), np.nan], np.arange(60) % 2 == 0], axis=1)
VALUES = np.where(CODES == 4, np.nan, CODES * 0.5 - 3)


@dataclass(frozen=True)
class Case:
    """A container.

    Attributes
    ----------
    write : callable (path)
    opened : callable (path) -> object
    expected : ndarray (n, d)
    names : tuple of str or None
    ending : str
    by_path, by_object : mapping
        Arguments of `open_dataset`, or with ``opens`` of another function.
    opens : callable
    """

    write: Callable[[str], Any]
    opened: Callable[[str], Any]
    expected: np.ndarray = field(default_factory=lambda: ROWS)
    names: tuple[str, ...] | None = None
    ending: str = ""
    by_path: Mapping[str, Any] = field(default_factory=dict)
    by_object: Mapping[str, Any] = field(default_factory=dict)
    opens: Callable[..., Any] = dc.open_dataset


def in_zarr(path: str, rows: np.ndarray = CODES, **attributes: Any) -> None:
    array = zarr.open_group(path, mode="w").create_array("deep/e", data=rows, chunks=(25, 3))
    array.attrs.update({name: np.asarray(at).item() for name, at in attributes.items()})


def in_hdf5(path: str, rows: np.ndarray = CODES, **attributes: Any) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        file["deep/e"] = rows
        file["deep/e"].attrs.update(attributes)
        file["ids"] = np.arange(60)


def hdf5(path: str, name: str = "/", mode: str = "r") -> Any:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    return h5py.File(path, mode)[name]


def pandas() -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(
        ROWS, columns=list(NAMES)
    )


def polars(path: str) -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").scan_parquet(path)


def grid(source: Any, **options: Any) -> Any:
    return dc.open_grid(source, **options).dataset


def in_xarray(path: str, name: str | None = None, **options: Any) -> Any:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    opened = xarray.open_zarr(path, consolidated=False, **options)
    return opened if name is None else opened[name]


def bands(path: str) -> None:
    """Write a Zarr group of two packed variables of 6 x 5 cells, and one array of both."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    codes = np.arange(60, dtype=np.int16).reshape(2, 6, 5)
    both = xarray.DataArray(codes, {"band": ["red", "nir"]}, ("band", "y", "x"), attrs=PACKED)
    variables = {"red": both[0].drop_vars("band"), "nir": both[1].drop_vars("band"), "both": both}
    xarray.Dataset(variables).to_zarr(path, consolidated=False)


def band_rows() -> np.ndarray:
    codes = np.arange(60).reshape(2, 30).T
    codes = codes[(codes != 4).all(axis=1)]
    found: np.ndarray = codes * 0.5 - 3
    return found


def annotated(path: str) -> None:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    index = pd.Index([str(i) for i in range(60)], dtype=object)
    columns = pd.Index(list(NAMES), dtype=object)
    frame = pd.DataFrame(ROWS, index, columns)
    mixed = frame.assign(b=pd.array([*range(59), None], "Int64"), c=np.arange(60) % 2 == 0)
    adata = anndata.AnnData(ROWS, obsm={"X_pca": ROWS, "frame": frame, "mixed": mixed})
    adata.var_names = columns
    adata.obs_names = index
    write = adata.write_zarr if path.endswith(".zarr") else adata.write_h5ad
    write(path)


def read_annotated(path: str, **options: Any) -> Any:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    return (anndata.read_zarr if path.endswith(".zarr") else anndata.read_h5ad)(path, **options)


def xarray_like(name: str | None, **options: Any) -> Callable[[str], Any]:
    return lambda path: in_xarray(path, name, **options)


def in_tif(path: str) -> None:
    """Write two bands with a scale each, and a mask that hides the first two of six rows of cells."""
    rasterio = pytest.importorskip("rasterio", reason="rasterio is not installed")
    shape: dict[str, Any] = {"width": 5, "height": 6, "count": 2, "dtype": "int16"}
    seen = np.where(np.arange(6)[:, None] < 2, 0, 255).astype(np.uint8).repeat(5, axis=1)
    with rasterio.open(path, "w", driver="GTiff", crs="EPSG:32633", **shape) as file:
        file.write(np.arange(60, dtype=np.int16).reshape(2, 6, 5))
        file.scales, file.offsets = (0.001, 0.1), (0.0, 5.0)
        file.write_mask(seen)


def by_rasterio(path: str) -> Any:
    return pytest.importorskip("rasterio", reason="rasterio is not installed").open(path)


def by_rioxarray(path: str, **options: Any) -> Any:
    library = pytest.importorskip("rioxarray", reason="rioxarray is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scales that differ
        return library.open_rasterio(path, **options)


IN_DEEP = {"array": "deep/e"}
PACKED_ZARR: dict[str, Any] = {
    "write": lambda path: in_zarr(path, **PACKED), "expected": VALUES, "ending": ".zarr",
    "by_path": IN_DEEP,
}  # fmt: skip
PACKED_HDF5: dict[str, Any] = {
    "write": lambda path: in_hdf5(path, **PACKED), "expected": VALUES, "ending": ".h5",
    "by_path": IN_DEEP,
}  # fmt: skip
BANDS: dict[str, Any] = {
    "write": bands, "expected": band_rows(), "names": ("red", "nir"), "ending": ".zarr",
    "opens": grid,
}  # fmt: skip
TABLE: dict[str, Any] = {
    "write": lambda path: pandas().to_parquet(path), "names": NAMES, "ending": ".parquet",
}  # fmt: skip
SCENE: dict[str, Any] = {
    "write": in_tif, "names": ("1", "2"), "ending": ".tif", "opens": grid,
    "expected": np.stack([np.arange(10, 30) * 0.001, np.arange(40, 60) * 0.1 + 5], axis=1),
}  # fmt: skip
BOTH, EACH = {"array": "both"}, {"array": ["red", "nir"]}
CASES: dict[str, Case] = {
    "npy": Case(
        lambda path: np.save(path, ROWS), lambda path: np.load(path, mmap_mode="r"), ending=".npy"
    ),
    "Zarr array": Case(opened=lambda path: zarr.open_array(f"{path}/deep/e"), **PACKED_ZARR),
    "Zarr group": Case(opened=zarr.open_group, by_object=IN_DEEP, **PACKED_ZARR),
    "group in Zarr": Case(
        opened=lambda path: zarr.open_group(path)["deep"], by_object={"array": "e"}, **PACKED_ZARR
    ),
    "Zarr array without a location": Case(
        lambda path: in_zarr(path),
        lambda path: zarr.create_array({}, data=CODES, chunks=(25, 3)),
        CODES, None, ".zarr", IN_DEEP,
    ),
    "HDF5 array": Case(opened=lambda path: hdf5(path, "deep/e"), **PACKED_HDF5),
    "HDF5 file": Case(opened=hdf5, by_object=IN_DEEP, **PACKED_HDF5),
    "group in HDF5": Case(
        opened=lambda path: hdf5(path, "deep"), by_object={"array": "e"}, **PACKED_HDF5
    ),
    "the only array of a group": Case(opened=lambda path: hdf5(path, "deep"), **PACKED_HDF5),
    "HDF5 array that is written": Case(
        opened=lambda path: hdf5(path, "deep/e", "r+"), **PACKED_HDF5
    ),
    "grid of Zarr": Case(
        opened=lambda path: zarr.open_group(path), by_object=BOTH, by_path=BOTH, **BANDS
    ),
    "grid of several arrays": Case(
        opened=lambda path: zarr.open_group(path), by_object=EACH, by_path=EACH, **BANDS
    ),
    "DataArray": Case(opened=xarray_like("both"), by_path=BOTH, **BANDS),
    "DataArray of codes": Case(
        opened=xarray_like("both", mask_and_scale=False), by_path=BOTH, **BANDS
    ),
    "Dataset": Case(
        opened=lambda path: in_xarray(path)[["red", "nir"]], by_path=EACH, **BANDS
    ),
    "Dataset of codes": Case(
        opened=lambda path: in_xarray(path, mask_and_scale=False)[["red", "nir"]],
        by_path=EACH, **BANDS,
    ),
    "rasterio": Case(opened=by_rasterio, **SCENE),
    "rioxarray": Case(opened=lambda path: by_rioxarray(path, masked=True), **SCENE),
    "lazy rioxarray": Case(
        opened=lambda path: by_rioxarray(path, masked=True, chunks={"x": 2}), **SCENE
    ),
    "pandas": Case(opened=lambda path: pandas(), **TABLE),
    "lazy polars": Case(opened=polars, **TABLE),
    "polars": Case(opened=lambda path: polars(path).collect(), **TABLE),
    "AnnData": Case(annotated, read_annotated, names=NAMES, ending=".h5ad"),
    "AnnData of a file": Case(
        annotated, lambda path: read_annotated(path, backed="r"), names=NAMES, ending=".h5ad"
    ),
    "AnnData, obsm": Case(
        annotated, read_annotated, ending=".h5ad",
        by_path={"array": "X_pca"}, by_object={"array": "X_pca"},
    ),
    "AnnData, a frame in obsm": Case(
        annotated, read_annotated, names=NAMES, ending=".h5ad",
        by_path={"array": "frame"}, by_object={"array": "frame"},
    ),
    "AnnData, a frame of several types": Case(
        annotated, read_annotated, MIXED, names=NAMES, ending=".h5ad",
        by_path={"array": "obsm/mixed"}, by_object={"array": "obsm/mixed"},
    ),
    "frame in HDF5": Case(
        annotated, lambda path: hdf5(path, "obsm/frame"), names=NAMES, ending=".h5ad",
        by_path={"array": "frame"},
    ),
    "frame in HDF5 that is written": Case(
        annotated, lambda path: hdf5(path, "obsm", "r+"), MIXED, names=NAMES, ending=".h5ad",
        by_path={"array": "mixed"}, by_object={"array": "mixed"},
    ),
    "AnnData in Zarr": Case(annotated, read_annotated, names=NAMES, ending=".zarr",
        by_path={"array": "X"},
    ),
    "group of an AnnData": Case(
        annotated, zarr.open_group, names=NAMES, ending=".zarr",
        by_path={"array": "X"}, by_object={"array": "X"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_a_path_and_an_object_give_the_same(kind: str, tmp_path: Path) -> None:
    case = CASES[kind]
    path = str(tmp_path / f"x{case.ending}")
    case.write(path)
    assert os.path.exists(path)
    stored, given = (
        case.opens(path, **case.by_path),
        case.opens(case.opened(path), **case.by_object),
    )
    assert np.array_equal(stored.to_numpy(), given.to_numpy(), equal_nan=True)
    assert stored.feature_names == given.feature_names == case.names
    assert stored.dtype == given.dtype
    assert np.array_equal(given.to_numpy(), case.expected, equal_nan=True)


def test_a_group_needs_the_name_of_an_array(tmp_path: Path) -> None:
    path, other = str(tmp_path / "x.h5"), str(tmp_path / "x.zarr")
    in_hdf5(path)
    with hdf5(path, mode="r+").file as file:
        file["more"] = CODES
    in_zarr(other)
    for group in (hdf5(path), zarr.open_group(other)):
        for opens in (dc.open_dataset, dc.KMeans(2).fit):
            with pytest.raises(
                InvalidDataError, match=r"array=.*rrays there: deep/e \(60 x 3 int16\)"
            ):
                opens(group)
        with pytest.raises(DatasetNotFoundError, match=r"no array 'z' in .*there: deep/e \(60 x 3"):
            dc.open_dataset(group, array="z")
        with pytest.raises((InvalidDataError, InvalidParameterError), match="is itself an array"):
            dc.open_dataset(group["deep/e"], array="z")
