"""Rows of a stored grid: features on any axes, a part of the array, codes decoded as they are read."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.grid import blank_cells, names_along, with_reference_system
from daskcluster.data.nodes import metadata_digest
from daskcluster.data.zarr import ZarrDataset, ZarrRecipe, all_positions, row_axes
from daskcluster.errors import InvalidDataError, InvalidParameterError, MissingExtraError
from daskcluster.extras import install_command
from daskcluster.storage.location import Location
from daskcluster.storage.zarr_stores import open_store

_PACKING = ("scale_factor", "add_offset", "_FillValue", "missing_value")
PACKING = frozenset({*_PACKING, "_Unsigned"})
"""Attributes by which values are decoded."""


@dataclass(frozen=True)
class Decoding:
    """How stored codes become values; a code that means no data becomes NaN.

    Attributes
    ----------
    table : tuple of float
        The value of each code from 0; empty for ``code * scale + offset``.
    scale, offset : float
    fills : tuple of float
        Codes that mean no data.
    dtype : str
        Of the values, and of each step to them, as in xarray; empty: float32, rounded once.
    unsigned : bool
        Codes of a signed dtype stand for unsigned ones.
    """

    table: tuple[float, ...] = ()
    scale: float = 1.0
    offset: float = 0.0
    fills: tuple[float, ...] = ()
    dtype: str = ""
    unsigned: bool = False

    @classmethod
    def of(
        cls,
        array: Any,
        where: str,
        decode: bool | None = None,
        *,
        dequantize: Any = None,
        nodata: float | None = None,
        fill: bool = False,
    ) -> tuple[Decoding | None, bool | None]:
        """Return how an array is decoded, or None, and whether its attributes ask for that.

        Those are ``scale_factor``, ``add_offset``, ``_FillValue``, ``missing_value`` and ``_Unsigned``,
        with the results and dtypes that xarray gives. Zarr's own fill value is a value.

        Parameters
        ----------
        array : array with a dtype, and with attributes if it is stored
        where : str
            For messages.
        decode : bool, optional
            False: attributes do not count.
        dequantize : (scale, offset) or sequence of float, optional
            Counts in place of the attributes.
        nodata : float, optional
            A further code that means no data.
        fill : bool
            An array that is not decoded otherwise gets NaN in place of `nodata`, too.

        Returns
        -------
        decoding : Decoding or None
        decoded : bool or None
            True if attributes decode the array by default, False if only ``decode=False`` keeps them from
            that, None if there are none or ``decode=True`` was asked for.

        Raises
        ------
        InvalidDataError
            An attribute is not a number.
        InvalidParameterError
            `dequantize` cannot decode the array.
        """
        if dequantize is not None:
            return cls._given(dequantize, array.dtype, () if nodata is None else (nodata,)), None
        found, attributes = [], getattr(array, "attrs", {})
        for name in _PACKING:
            try:
                numbers = _numbers(name, attributes.get(name, ()), array.dtype, where)
            except InvalidDataError:
                if decode is not False:
                    raise
                numbers = (0.0,)
            found.append(tuple(number for number in numbers if not math.isnan(number)))
        signed = str(attributes.get("_Unsigned")).lower() != "true" or array.dtype.kind != "i"
        decoded = (decode is not False) if any(found) or not signed else None
        scale, offset, *fills = found if decoded else ((), (), ())
        codes = tuple(code for part in fills for code in part)
        if nodata is not None and not math.isnan(nodata) and (decoded or fill):
            codes += (nodata,)
        unsigned = bool(decoded) and not signed
        if unsigned:
            codes = tuple(code % 256**array.dtype.itemsize for code in codes)
        elif not (scale or offset or codes):
            return None, None if decode else decoded
        small = array.dtype.itemsize <= (4 if array.dtype.kind == "f" else 2)
        dtype = "float32" if small and not scale and not offset else "float64"
        decoding = cls((), (*scale, 1.0)[0], (*offset, 0.0)[0], codes, dtype, unsigned)
        return decoding, None if decode else decoded

    @classmethod
    def _given(cls, given: Any, dtype: np.dtype[Any], fills: tuple[float, ...]) -> Decoding:
        values = np.asarray(given, np.float64)
        if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
            raise InvalidParameterError(
                f"dequantize={given!r} should be (scale, offset), or a table with a value for each code."
            )
        if len(values) == 2:
            return cls((), float(values[0]), float(values[1]), fills)
        if dtype.kind != "u":
            raise InvalidParameterError(
                f"a table in dequantize= needs codes of an unsigned dtype, and the array has {dtype}; "
                "give (scale, offset)."
            )
        return cls(tuple(values.tolist()), fills=fills)

    def apply(self, codes: Any) -> Any:
        """Return the values of codes, lazily of a dask array; NaN for those that are masked."""
        if hasattr(codes, "__dask_graph__"):
            return codes.map_blocks(self.apply, dtype=self.dtype or "float32")
        missing: Any = np.ma.getmask(codes)
        codes = np.ma.getdata(codes)
        if self.unsigned:
            codes = codes.view(codes.dtype.str.replace("i", "u"))
        for code in self.fills:
            missing = missing | (codes == code)
        if self.table:
            found = self._looked_up(codes, missing)
        elif self.dtype:
            found = codes.astype(self.dtype)
            found *= self.scale
            found += self.offset
        else:
            found = (codes.astype(np.float64) * self.scale + self.offset).astype(np.float32)
        if missing is not np.ma.nomask:
            found[missing] = np.nan
        return found

    def _looked_up(self, codes: np.ndarray, missing: np.ndarray) -> np.ndarray:
        known = (codes < len(self.table)) | missing
        if not known.all():
            raise InvalidDataError(
                f"The grid holds the code {int(codes[~known][0])}, and the table in dequantize= has values "
                f"for 0 to {len(self.table) - 1}; give a value for every code, or nodata=."
            )
        table = np.array(self.table, np.float32)
        found: np.ndarray = table[np.minimum(codes, len(table) - 1)]
        return found


def _numbers(name: str, given: Any, dtype: np.dtype[Any], where: str) -> tuple[float, ...]:
    """Return an attribute as numbers; xarray writes those of floats in Zarr v3 as base64."""
    if isinstance(given, str) and dtype.kind == "f" and name == "_FillValue":
        with suppress(ValueError, struct.error):
            given = struct.unpack("<d", base64.b64decode(given, validate=True))[0]
    with suppress(TypeError, ValueError):
        found = tuple(float(each) for each in np.atleast_1d(np.asarray(given, np.float64)))
        if len(found) < 2 or name not in _PACKING[:2]:
            return found
    raise InvalidDataError(
        f"The attribute {name} of the array at {where!r} is {given!r}, and should be a number, by "
        "which values are decoded; correct it, or read the stored numbers with decode=False."
    )


def packed_rows(
    array: Any, location: Location, name: str, decode: bool | None = None
) -> RowDataset:
    """Return the rows (..., d) of a Zarr array, decoded if its attributes ask for it; see `Decoding.of`."""
    decoding, decoded = Decoding.of(array, location.url, decode)
    recipe = ZarrRecipe(location, name, metadata_digest(array))
    if decoding is not None:
        axes = (array.ndim - 1,)
        positions = tuple(all_positions(array.shape, axes))
        recipe = replace(recipe, features=axes, positions=positions, decoding=decoding)
    return ZarrDataset(array, recipe).with_facts(decoded=decoded)


def dimension_names(array: Any) -> tuple[str, ...] | None:
    """Return the names of the dimensions of a Zarr array, if all have one."""
    names = getattr(array.metadata, "dimension_names", None)
    names = names or array.attrs.get("_ARRAY_DIMENSIONS")
    return tuple(map(str, names)) if names and all(names) else None


def selected_positions(
    shape: tuple[int, ...],
    names: Sequence[Any] | None,
    coordinates: Any,
    select: Mapping[Any, Any],
    features: Sequence[int],
) -> tuple[tuple[int, ...], ...]:
    """Return what is read along each axis, as `ZarrRecipe.positions` has it.

    Parameters
    ----------
    shape : tuple of int
    names : sequence of str or None
    coordinates : xarray.Dataset or None
    select : mapping of dimension or axis to label, slice or list of labels
        As ``xarray.DataArray.sel`` has them; positions where there are no coordinates.
    features : sequence of int

    Raises
    ------
    InvalidParameterError
        No such dimension or label, nothing is left, or cells that do not follow each other.
    """
    found = all_positions(shape, features)
    for key, wanted in select.items():
        axis = list(names or ()).index(key) if key in (names or ()) else key
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            known = ", ".join(map(str, names or range(len(shape))))
            raise InvalidParameterError(
                f"select has {key!r}, which should be one of the dimensions {known}."
            )
        axis %= len(shape)
        along = None if coordinates is None else coordinates.coords.get(key)
        at = np.atleast_1d(_positions(shape[axis], key, wanted, along))
        if not len(at):
            raise InvalidParameterError(
                f"select={{{key!r}: {wanted!r}}} leaves nothing; choose labels that the grid has."
            )
        if axis in features:
            found[axis] = tuple(at.tolist())
        elif np.array_equal(at, np.arange(at[0], at[0] + len(at))):
            found[axis] = int(at[0]), int(at[-1]) + 1
        else:
            raise InvalidParameterError(
                f"select={{{key!r}: {wanted!r}}} should choose cells that follow each other; use a slice "
                "without step."
            )
    return tuple(found)


def _positions(length: int, key: Any, wanted: Any, coordinate: Any) -> np.ndarray:
    try:
        if coordinate is None:
            return np.arange(length)[wanted]
        import xarray

        numbers = xarray.DataArray(np.arange(length), {key: coordinate.values}, [key])
        return np.asarray(numbers.sel({key: wanted}).values)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"select={{{key!r}: {wanted!r}}} is not found along {key!r} ({error})."
        ) from error


def open_group(location: Location, **options: Any) -> Any:
    """Open a Zarr group by xarray; see `with_reference_system`.

    Zarr's own fill value masks nothing, not even in Zarr v2, whose writers leave it at 0.

    Raises
    ------
    MissingExtraError
        Xarray is not installed.
    """
    try:
        import xarray
    except ImportError as error:
        raise MissingExtraError(
            "several arrays of a group, and select= by coordinates, need xarray; install it with: "
            f"{install_command('xarray')}."
        ) from error
    store = xarray.backends.ZarrStore.open_group(
        open_store(location), "r", consolidated=False, use_zarr_fill_value_as_mask=False
    )
    try:
        return with_reference_system(xarray.open_dataset(store, **options))
    except (KeyError, ValueError) as error:
        raise InvalidDataError(
            f"The arrays of {location.url!r} cannot be opened together by xarray ({error}); give their "
            "dimensions names, in dimension_names of Zarr v3 or _ARRAY_DIMENSIONS of v2."
        ) from error


def template_and_names(
    dims: Sequence[Any] | None,
    features: Sequence[int],
    positions: Sequence[tuple[int, ...]],
    coordinates: Any,
    mapping: Mapping[str, str],
) -> tuple[Any, tuple[str, ...] | None]:
    """Return a DataArray without content of the cells of a grid, and the names of its features.

    Parameters
    ----------
    dims : sequence or None
        Names of the dimensions. Without them, and without coordinates, both results are None.
    features : sequence of int
    positions : sequence of tuple of int
        See `ZarrRecipe`.
    coordinates : xarray.Dataset or None
    mapping : mapping
        See `grid_mapping`.
    """
    if dims is None or coordinates is None:
        return None, None
    along = (coordinates.coords.get(dims[axis]) for axis in features)
    taken = zip(along, (list(positions[axis]) for axis in features), strict=True)
    names = names_along(*(each if each is None else each[at] for each, at in taken))
    spans = {dims[axis]: slice(*positions[axis]) for axis in row_axes(len(dims), features)}
    others = [name for name, each in coordinates.coords.items() if not set(each.dims) <= set(spans)]
    kept = coordinates.drop_vars(others).isel(spans, missing_dims="ignore")
    shape = tuple(span.stop - span.start for span in spans.values())
    return blank_cells(shape, list(spans), kept.coords, mapping), names
