"""Grids with any number of axes: which hold features, how codes are decoded, and values back in shape."""

from __future__ import annotations

import base64
import math
import struct
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from typing import Any

import numpy as np

from daskcluster.data.checks import is_masked
from daskcluster.data.dataset import RowDataset, refuse_replacing
from daskcluster.data.label_files import (
    GridShape,
    is_file_output,
    unflattened,
    write_grid,
    write_label_file,
)
from daskcluster.data.nodes import metadata_digest, open_node
from daskcluster.data.recipes import places_behind
from daskcluster.data.zarr import ZarrDataset, ZarrRecipe, all_positions, row_axes
from daskcluster.errors import (
    DaskClusterError,
    InvalidDataError,
    InvalidParameterError,
    WrongTypeError,
)
from daskcluster.extras import import_extra
from daskcluster.storage.location import Location, locate
from daskcluster.storage.zarr_stores import open_store
from daskcluster.typing import Dataset

NAMES = ("band", "bands", "channel", "channels", "feature", "features", "variable", "variables")
"""Names of dimensions that hold features."""
STACKED = "variable"
"""The dimension along which the variables of a Dataset lie."""
_MANY_TIMES = 8
"""A last axis so many times as long as the first hardly holds features."""

Axes = str | int | Sequence[str | int]


class Grid:
    """Cells of a grid as rows, made by `open_grid`.

    Attributes
    ----------
    dataset : Dataset
        A row for each cell that has data, in C order of the grid's axes. Labels of these rows that are
        saved to Zarr get the shape of the grid.
    shape : tuple of int
        Shape of the grid, without the features.
    mask : ndarray of shape `shape`, bool, or None
        Where there are data; None: everywhere.
    """

    def __init__(self, dataset: RowDataset, cells: GridShape) -> None:
        self._cells, self.shape, self.mask = cells, cells.shape, cells.mask
        self.dataset: Dataset = dataset.with_facts(grid=cells)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise WrongTypeError(
            "A Grid is no array: pass its rows, grid.dataset, and bring their labels back to the grid with "
            "grid.unflatten(labels)."
        )

    def __repr__(self) -> str:
        axes = " x ".join(map(str, self.shape))
        n, d = self.dataset.n_rows, self.dataset.n_features
        return f"Grid({axes}, {n} rows with data, {d} features)"

    def unflatten(self, values: Any, fill: Any = -1) -> Any:
        """Return the values of rows as a grid: labels where there are data, `fill` elsewhere.

        Parameters
        ----------
        values : array-like of shape (n,) or (n, w)
            For each row of ``dataset``, e.g. ``labels_`` or what `transform` returns.
        fill : scalar, default -1

        Returns
        -------
        ndarray of `shape`, or of (*shape, w)
            An xarray.DataArray with the coordinates of the source, if that has named dimensions and
            xarray is installed; the w values are then along a dimension "value", and where cells have no
            data, the attribute ``nodata`` is `fill`.

        Raises
        ------
        InvalidDataError
            Not one value, or w values, for each row.

        Notes
        -----
        Cost: no pass; memory for all values, twice.
        """
        flat = np.asarray(np.ma.filled(values, fill) if is_masked(values) else values)
        self._check(flat.shape)
        return unflattened(self._cells, flat, fill)

    def save(
        self,
        values: Any,
        url: Any,
        *,
        name: str = "label",
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write values of rows as a map, as `predict(output=)` writes labels.

        Parameters
        ----------
        values : array-like of shape (n,) or (n, w)
            For each row of ``dataset``, e.g. labels that you have merged. What has a shape and can be
            sliced, such as `labels_` of stored rows, is read slab by slab.
        url : str
            URL of a Zarr group, which `xarray.open_zarr` opens with the coordinates of the grid, or of a
            ``.tif`` or other file, as of `predict`. Cells without data have -1, or NaN where values are
            floats. Integers are written as int32, as labels are.
        name : str, default "label"
            Name of the array in the group.
        overwrite : bool, default False
            Replace a map at `url`.
        storage_options : mapping, optional

        Raises
        ------
        InvalidDataError
            Not one value, or w values, for each row; or an integer beyond the range of int32.
        InvalidParameterError, OutputExistsError, MissingExtraError

        Notes
        -----
        Cost: no pass; memory of a slab of about 8 MB, or of all values for a ``.tif`` file.
        """
        if not (hasattr(values, "shape") and hasattr(values, "__getitem__")):
            values = np.asarray(values)
        self._check(tuple(values.shape))
        place = locate(url, storage_options)
        refuse_replacing(self.dataset, url=place)

        def read(start: int, stop: int) -> np.ndarray:
            part = values[start:stop]
            part = np.asarray(np.ma.filled(part, -1) if is_masked(part) else part)
            if part.dtype.kind not in "iu":
                return part
            labels = part.astype(np.int32)
            if (labels != part).any():
                raise InvalidDataError(
                    f"values should be in the range of int32, but one is {part[labels != part][0]}; pass "
                    "labels, or floats."
                )
            return labels

        columns = {name: read}
        if is_file_output(str(url), maps=True):
            write_label_file(place, self.dataset, columns, overwrite=overwrite)
            return
        options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
        write_grid(str(url), self._cells, columns, **options)

    def _check(self, shape: tuple[int, ...]) -> None:
        if len(shape) not in (1, 2) or shape[0] != self.dataset.n_rows:
            raise InvalidDataError(
                f"values of shape {shape} should be of shape ({self.dataset.n_rows},): one for each row of "
                "the grid's dataset."
            )


def blank_cells(
    shape: tuple[int, ...],
    dims: Sequence[Any],
    coordinates: Mapping[Any, Any],
    attributes: Mapping[str, str],
) -> Any:
    """Return a DataArray without content, and without the name, attributes and encoding of its source.

    Labels are in no units, and are not packed as the values of the source may be.
    """
    import xarray

    empty = np.broadcast_to(np.zeros((), np.int8), shape)
    return xarray.DataArray(empty, coordinates, dims, attrs=attributes)


def variables_as_features(source: Any, features: Axes | None = None) -> Any:
    """Return the variables of a Dataset along a dimension ``variable``; a DataArray as it is.

    Variables that others name as their bounds are left out, and one that is their coordinate reference
    system becomes a coordinate. If one variable is left that has several dimensions, it is returned as it
    is, unless `features` has ``"variable"``.

    Raises
    ------
    InvalidDataError
        Variables have other dimensions than the others.
    WrongTypeError
        A DataTree, which holds many Datasets.
    """
    if hasattr(source, "to_dataset") and hasattr(source, "subtree"):
        nodes = ", ".join(node.path for node in source.subtree if node.data_vars)
        raise WrongTypeError(
            f"source is a DataTree with variables at {nodes}; pass one of its nodes as a Dataset, e.g. "
            f"tree[{nodes.partition(',')[0]!r}].to_dataset()."
        )
    if not hasattr(source, "data_vars"):
        return with_reference_system(source)
    every = source.variables.values()
    bounds = {each.attrs.get("bounds", each.encoding.get("bounds")) for each in every}
    source = with_reference_system(source)
    source = source.drop_vars([name for name in source.data_vars if name in bounds])
    dims = {name: each.dims for name, each in source.data_vars.items()}
    widest: tuple[Any, ...] = max(dims.values(), key=len, default=())
    odd = [f"{name!r} {each}" for name, each in dims.items() if set(each) != set(widest)]
    if odd:
        raise InvalidDataError(
            f"The variables of a Dataset are the features of its cells and need dimensions {widest}, but "
            f"these have others: {', '.join(odd)}. Choose some, e.g. dataset[['red', 'nir']], or broadcast "
            "them."
        )
    asked = features if isinstance(features, (list, tuple)) else [features]
    if len(dims) > 1 or len(widest) < 2 or STACKED in asked:
        return source.to_array(STACKED).assign_attrs(grid_mapping(source))
    (name,) = dims
    if (
        len(widest) == 2
        and features is None
        and not {str(dim).lower() for dim in widest} & {*NAMES}
    ):
        warnings.warn(
            f"The Dataset has one variable, {name!r}, whose last dimension {widest[-1]!r} was taken for "
            "the features. If its value is the only feature of a cell, open it with open_grid and "
            f"features={STACKED!r}.",
            UserWarning,
            stacklevel=6,
        )
    return source[name]


def with_reference_system(source: Any) -> Any:
    """Return an array or a Dataset with the variable of its coordinate reference system as a coordinate.

    An array of a Dataset lacks it, unless that was opened with ``decode_coords="all"``. It is then read
    from the Zarr group that the array reads lazily, if there is one.
    """
    name = grid_mapping(source).get("grid_mapping")
    if name is None or name in source.coords:
        return source
    if name in getattr(source, "data_vars", ()):
        return source.set_coords(name)
    for each in getattr(source, "data_vars", {"": source}).values():
        for place in places_behind(each.data) if each.chunks is not None else ():
            group = replace(place, url=place.url.rpartition("/")[0])
            with suppress(DaskClusterError):
                facts = dict(open_node(group, name).attrs)
                return source.assign_coords({name: ((), 0, facts)})
    return source


def grid_mapping(source: Any) -> dict[str, str]:
    """Return the attribute of an array or Dataset that names its coordinate reference system, if any."""
    for each in (source, *getattr(source, "data_vars", {}).values()):
        facts = {**getattr(each, "encoding", {}), **each.attrs}
        if facts.get("grid_mapping") is not None:
            return {"grid_mapping": facts["grid_mapping"]}
    return {}


def names_along(
    *coordinates: Any, lengths: Sequence[int] = (), bands: Any = None
) -> tuple[str, ...] | None:
    """Return the names of features: the labels along their axes, such as ``2020/nir``; None without any.

    Along an axis without labels, of several, positions count. In place of the numbers of bands, `bands`
    may have a name for each number from 1 on, as rioxarray has the descriptions of a GeoTIFF.

    Parameters
    ----------
    *coordinates : xarray.DataArray or None
        The labels along each axis, if there are any.
    lengths : sequence of int
        Lengths of the axes.
    bands : sequence of str, optional

    Examples
    --------
    >>> names_along(None, None, lengths=(2, 3)) is None
    True
    """
    if all(each is None for each in coordinates):
        return None
    known = list(map(str, bands)) if isinstance(bands, (tuple, list)) else []
    labels = []
    for each, length in zip_longest(coordinates, lengths):
        if each is None:
            labels.append([str(position) for position in range(length)])
            continue
        found = list(map(_name_of, np.asarray(each).ravel()))
        if each.dtype.kind in "iu" and each.dims[:1] and each.dims[0] in NAMES:
            numbers = np.asarray(each).ravel().tolist()
            named = len(set(known)) == len(known) >= max(numbers, default=1)
            if named and min(numbers, default=0) > 0:
                found = [known[number - 1] for number in numbers]
        labels.append(found)
    names = tuple("/".join(parts) for parts in product(*labels))
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        warnings.warn(
            f"{Counter(names)[twice]} features of the grid are called {twice!r}, so that no model can find "
            "them by name: those of other grids are taken in their order, unchecked. Give each a label of "
            "its own.",
            UserWarning,
            stacklevel=5,
        )
        return None
    return names


def _name_of(label: Any) -> str:
    if isinstance(label, np.datetime64):
        day = label.astype("datetime64[D]")
        return str(day if day == label else label)
    return str(label)


def feature_axes(
    shape: tuple[int, ...], names: Sequence[Any] | None, features: Axes | None
) -> tuple[int, ...]:
    """Return the axes of the features of an array, in the order in which they were given.

    Parameters
    ----------
    shape : tuple of int
    names : sequence of str or None
        Names of the dimensions.
    features : str, int or a sequence of these, or None
        None: a dimension whose name says so, else the last one.

    Raises
    ------
    InvalidDataError
        No axis is left for the cells.
    InvalidParameterError
        No such axis, the same one twice, or nothing says which it is.

    Examples
    --------
    >>> feature_axes((3, 40, 50), ("band", "y", "x"), None), feature_axes((4, 5, 6), None, (0, -1))
    ((0,), (0, 2))
    """
    if features is None:
        features = _axis_by_name(shape, names) if len(shape) > 1 else 0
    wanted = [features] if isinstance(features, str | int) else list(features)
    found = tuple(_axis(each, shape, names) for each in wanted)
    if not found or len(set(found)) < len(found):
        raise InvalidParameterError(f"features={features!r} should be axes, each of them once.")
    if len(shape) <= len(found):
        raise InvalidDataError(
            f"a grid of shape {shape} should have an axis other than that of the features."
        )
    return found


def _axis(wanted: str | int, shape: tuple[int, ...], names: Sequence[Any] | None) -> int:
    if isinstance(wanted, str):
        if wanted in (names or ()):
            return list(names or ()).index(wanted)
        if names:
            raise InvalidParameterError(
                f"features={wanted!r} should be one of the dimensions {', '.join(map(str, names))}."
            )
    elif -len(shape) <= wanted < len(shape):
        return wanted % len(shape)
    raise InvalidParameterError(
        f"features={wanted!r} should be an axis of the array, -{len(shape)} to {len(shape) - 1}."
    )


def _axis_by_name(shape: tuple[int, ...], names: Sequence[Any] | None) -> int:
    known = [axis for axis, name in enumerate(names or ()) if str(name).lower() in NAMES]
    if len(known) == 1:
        return known[0]
    if names is not None and len(shape) > 2:
        raise InvalidParameterError(
            f"Which of the dimensions {', '.join(map(str, names))} holds the features? Say so with "
            f"open_grid(source, features=...) (--features), e.g. features={str(names[0])!r}, and fit its "
            "dataset."
        )
    if names is None and len(shape) == 3 and shape[0] * _MANY_TIMES < shape[-1]:
        warnings.warn(
            f"The last axis of the grid of shape {shape} was taken for the features, of which each "
            f"cell then has {shape[-1]}. If the first axis holds them, as bands do in rasterio's "
            "order, pass features=0; otherwise features=-1.",
            UserWarning,
            stacklevel=6,
        )
    return len(shape) - 1


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
        Type of the values, and of each step to them, as in xarray; empty: float32, rounded once.
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
    need = "Several arrays of a group, and select= by coordinates, need xarray"
    xarray = import_extra("xarray", "xarray", need)
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
    labels = (each if each is None else each[at] for each, at in taken)
    lengths = [len(positions[axis]) for axis in features]
    names = names_along(*labels, lengths=lengths, bands=coordinates.attrs.get("long_name"))
    spans = {dims[axis]: slice(*positions[axis]) for axis in row_axes(len(dims), features)}
    others = [name for name, each in coordinates.coords.items() if not set(each.dims) <= set(spans)]
    kept = coordinates.drop_vars(others).isel(spans, missing_dims="ignore")
    shape = tuple(span.stop - span.start for span in spans.values())
    return blank_cells(shape, list(spans), kept.coords, mapping), names
