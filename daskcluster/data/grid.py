"""Grids with any number of axes: which axes hold features, and values of rows back in the grid's shape."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from daskcluster.data.dataset import RowDataset, refuse_replacing
from daskcluster.data.label_files import GridShape, unflattened, write_grid
from daskcluster.data.masked import is_masked
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.storage.location import locate
from daskcluster.typing import Dataset

NAMES = ("band", "bands", "channel", "channels", "feature", "features", "variable", "variables")
"""Names of dimensions that hold features."""
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
        Of the grid, without the features.
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
        fill : scalar

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
        flat = _filled(values, fill)
        self._refuse_others(flat.shape[:1] if flat.ndim == 2 else flat.shape)
        return unflattened(self._cells, flat, fill)

    def _refuse_others(self, shape: tuple[int, ...]) -> None:
        if shape != (self.dataset.n_rows,):
            raise InvalidDataError(
                f"values of shape {shape} should be of shape ({self.dataset.n_rows},): one for each row of "
                "the grid's dataset."
            )

    def save(
        self,
        values: Any,
        url: str,
        *,
        name: str = "label",
        fill: Any = -1,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the values of rows as a grid, to Zarr that `xarray.open_zarr` opens or to a GeoTIFF.

        Parameters
        ----------
        values : array-like of shape (n,)
            For each row of ``dataset``. Anything with a shape and a dtype is read slab by slab.
        url : str
            URL of a Zarr group, which appears when it is complete. It holds an array `name`, with the names
            of its dimensions, and their coordinates. If it ends in .tif, the labels of a map become a
            GeoTIFF, whose nodata is `fill`.
        name : str
        fill : scalar
            Value of cells without data.
        overwrite : bool
        storage_options : mapping, optional

        Raises
        ------
        InvalidDataError
            Not one value for each row.
        OutputExistsError

        Notes
        -----
        Cost: no pass over the rows; memory of a slab of about 8 MB, or of all labels for a GeoTIFF.
        """
        if not (hasattr(values, "shape") and hasattr(values, "__getitem__")):
            values = np.asarray(values)
        self._refuse_others(tuple(values.shape))
        refuse_replacing(self.dataset, url=locate(url, storage_options))
        write_grid(
            url,
            self._cells,
            {name: lambda start, stop: _filled(values[start:stop], fill)},
            fill=fill,
            overwrite=overwrite,
            storage_options=storage_options,
        )


def _filled(values: Any, fill: Any) -> np.ndarray:
    """Return values of rows as an array, with `fill` where they are masked."""
    return np.asarray(np.ma.filled(values, fill) if is_masked(values) else values)


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


def variables_as_features(source: Any) -> Any:
    """Return the variables of a Dataset along a dimension ``variable``; a DataArray as it is.

    Variables that others name as their bounds are left out, and one that is their coordinate reference
    system becomes a coordinate.

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
        return source
    every = source.variables.values()
    bounds = {each.attrs.get("bounds", each.encoding.get("bounds")) for each in every}
    source = with_reference_system(source)
    source = source.drop_vars([name for name in source.data_vars if name in bounds])
    dims = {name: each.dims for name, each in source.data_vars.items()}
    widest = max(dims.values(), key=len, default=())
    odd = [f"{name!r} {each}" for name, each in dims.items() if set(each) != set(widest)]
    if odd:
        raise InvalidDataError(
            f"The variables of a Dataset are the features of its cells and need dimensions {widest}, but "
            f"these have others: {', '.join(odd)}. Choose some, e.g. dataset[['red', 'nir']], or broadcast "
            "them."
        )
    return source.to_array("variable")


def with_reference_system(source: Any) -> Any:
    """Return a Dataset with the variable of its coordinate reference system, if any, as a coordinate."""
    name = grid_mapping(source).get("grid_mapping")
    return source.set_coords(name) if name in source else source


def grid_mapping(source: Any) -> dict[str, str]:
    """Return the attribute of an array or Dataset that names its coordinate reference system, if any."""
    for each in (source, *getattr(source, "data_vars", {}).values()):
        facts = {**getattr(each, "encoding", {}), **each.attrs}
        if facts.get("grid_mapping") is not None:
            return {"grid_mapping": facts["grid_mapping"]}
    return {}


def names_along(*coordinates: Any) -> tuple[str, ...] | None:
    """Return the names of features: the labels along their axes, if they name them; else None.

    Text does, and so do the numbers of bands and channels. Other labels, such as times, may differ between
    the grids of a fit and of its predictions.
    """
    labels = []
    for each in coordinates:
        values = np.empty(0) if each is None else np.asarray(each).ravel()
        found = values.tolist()
        if values.dtype.kind in "iu" and each.dims[:1] and each.dims[0] in NAMES:
            found = list(map(str, found))
        if not found or not all(isinstance(label, str) for label in found):
            return None
        labels.append(found)
    return tuple("/".join(parts) for parts in product(*labels)) if labels else None


def feature_axes(
    shape: tuple[int, ...], names: Sequence[Any] | None, features: Axes | None
) -> tuple[int, ...]:
    """Return the axes of the features of an array, in the order in which they were given.

    Parameters
    ----------
    shape : tuple of int
    names : sequence of str or None
        Of the dimensions.
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
            "features=, e.g. features=" + repr(str(names[-1])) + " (--features)."
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
