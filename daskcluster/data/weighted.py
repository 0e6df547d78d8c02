"""Weights of rows: in memory, in Zarr, in columns of files; and Zarr groups of rows and their weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.annotations import unannotated
from daskcluster.data.checks import is_masked
from daskcluster.data.nodes import metadata_digest, open_array, open_node, read_chunk
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.recipes import HeldRecipe, StoredRecipe, reopen
from daskcluster.data.writer import INDICES, ROWS, WEIGHTS, RowsShape, RowsWriter
from daskcluster.errors import InvalidParameterError
from daskcluster.sparse_rows import Rows
from daskcluster.storage.location import Location
from daskcluster.storage.staging import Staging
from daskcluster.typing import Visibility

INLINE_BYTES = 1 << 20
"""Weights up to this size travel inside a recipe; larger ones are bound to their process."""

_CHECK_ROWS = 1 << 20
LEAST_WEIGHT = 1e-200
"""Weights may be less, but not all of them: their products with squares would lose digits, or vanish. None
may be more than one over this: sums of such products would overflow."""
_MOST_SPAN = 76
"""Bits by which weights may differ, less two for each doubling of the rows: in exact sums, which have 104
bits for all rows, the lightest row then keeps 28 bits of its own."""
_REMEDY = "write it to Zarr next to the rows and pass its URL as weights"


class ArrayWeights:
    """Weights in memory, float64 (n,)."""

    stored_bytes = 0
    """Bytes per row that a read fetches from a store."""

    def __init__(self, array: np.ndarray, recipe: HeldRecipe | None = None) -> None:
        array = np.ascontiguousarray(array, dtype=np.float64)
        # Compiled code treats read-only arrays as another type; a copy of n numbers is cheap.
        self.array = array if array.flags.writeable else array.copy()
        what = f"array of row weights of shape {array.shape}"
        self._recipe = recipe or HeldRecipe.of(self.array, what, ArrayWeights, remedy=_REMEDY)

    @property
    def visibility(self) -> Visibility:
        return Visibility.EVERYONE if self.array.nbytes <= INLINE_BYTES else Visibility.PROCESS

    def values(self) -> np.ndarray:
        return self.array

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.array[start:stop]

    def places(self) -> tuple[Location, ...]:
        return ()

    def recipe(self) -> InlineWeights | HeldRecipe:
        if self.array.nbytes <= INLINE_BYTES:
            return InlineWeights(self.array.tobytes())
        return self._recipe

    def __reduce__(self) -> tuple[Any, ...]:
        return (ArrayWeights, (self.array,))


@dataclass(frozen=True)
class InlineWeights:
    """Few weights, carried by the recipe itself."""

    content: bytes

    def open(self) -> ArrayWeights:
        return ArrayWeights(np.frombuffer(self.content))


class LazyWeights:
    """Weights that are read with the rows; `numpy.asarray` loads them all.

    Parameters
    ----------
    n_rows : int
    read : callable (start, stop) -> ndarray of float64
    recipe : Recipe
        What opens them elsewhere.
    places : tuple of Location
        Where they are.
    source : str
        The same for people.
    stored_bytes : int, default 8
    """

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        n_rows: int,
        read: Callable[[int, int], np.ndarray],
        recipe: Any,
        places: tuple[Location, ...],
        source: str,
        stored_bytes: int = 8,
    ) -> None:
        self.shape, self.read, self.source = (n_rows,), read, source
        self._recipe, self._places, self.stored_bytes = recipe, places, stored_bytes
        self.visibility: Visibility = min(place.visibility for place in places)

    def recipe(self) -> Any:
        return self._recipe

    def places(self) -> tuple[Location, ...]:
        return self._places

    def values(self) -> Self:
        return self

    # `numpy.max` and `numpy.sum` come here with arguments of their own, all None.

    def max(self, axis: None = None, out: None = None) -> float:
        """Return the largest weight, block by block."""
        return max(float(block.max()) for block in _blocks(self, len(self)))

    def sum(self, axis: None = None, dtype: None = None, out: None = None) -> float:
        """Return the total weight, block by block."""
        return math.fsum(float(block.sum()) for block in _blocks(self, len(self)))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, span: slice) -> np.ndarray:
        start, stop, step = span.indices(len(self))
        return self.read(start, stop)[::step]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.read(0, len(self)).astype(dtype or np.float64, copy=False)

    def __repr__(self) -> str:
        return f"<row weights {self.shape} in {self.source}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (reopen, (self.recipe(),))


RowWeights = ArrayWeights | LazyWeights
"""Weights of rows: sliced like an array, in memory or in a store."""


@dataclass(frozen=True)
class ZarrWeights(StoredRecipe):
    """Weights in a 1-D Zarr array by their location."""

    what = "array of weights"

    def dataset(self, node: Any) -> LazyWeights:
        def read(start: int, stop: int) -> np.ndarray:
            values = read_chunk(
                node, slice(start, stop), f"weights {self.location!r}", self.location
            )
            return np.asarray(values, dtype=np.float64)

        where = (self.place,), repr(self.location)
        return LazyWeights(node.shape[0], read, self, *where, node.dtype.itemsize)


def open_weights(location: Location, name: str = "", n_rows: int | None = None) -> LazyWeights:
    """Open weights in a Zarr array; check those of `n_rows` rows, which reads them once."""
    array: Any = open_array(location, name)
    packed = [each for each in ("scale_factor", "add_offset", "_FillValue") if each in array.attrs]
    if packed:
        raise InvalidParameterError(
            f"The weights at {location.url!r} have the attribute {packed[0]}, and weights are not decoded; "
            "give their values, e.g. those that xarray reads."
        )
    if n_rows is not None:
        _check_shape(array.shape, n_rows)
        _check_dtype(array.dtype)
    weights = ZarrWeights(location, name, metadata_digest(array)).dataset(array)
    if n_rows is not None:
        check_weights(weights, n_rows)
    return weights


def array_weights(values: Any, n_rows: int) -> ArrayWeights:
    """Check weights given as an array-like or a number; a dask array is computed.

    Raises
    ------
    InvalidParameterError
        Not one finite weight >= 0 for every row, a masked one, or all zero.
    """
    values = unannotated(values.compute) if hasattr(values, "__dask_graph__") else values
    if is_masked(values):
        values = _unmasked(np.ma.asarray(values))
    array = _as_numbers(np.asarray(values))
    if array.ndim == 0 and array.dtype.kind in "biuf":
        array = np.full(n_rows, float(array))
    _check_shape(array.shape, n_rows)
    _check_dtype(array.dtype)
    weights = ArrayWeights(array)
    check_weights(weights, n_rows)
    return weights


def _unmasked(weights: Any) -> np.ndarray:
    """Return the weights of a masked array none of which is masked."""
    masked = np.ma.getmaskarray(weights)
    if masked.any():
        raise InvalidParameterError(
            f"Input sample_weight is masked: the weight of row {int(np.argmax(masked))} is missing; give "
            "every row a weight, 0 for rows that should not count."
        )
    return np.asarray(np.ma.getdata(weights))


def _as_numbers(array: np.ndarray) -> np.ndarray:
    """Return an array of Python's numbers (of any column of a frame, of fractions) as float64."""
    if array.dtype != object:
        return array
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"Sample weights have dtype=object, and not all are numbers ({error}); give real numbers, e.g. "
            "weights.astype('float64')."
        ) from error


def _check_shape(shape: tuple[int, ...], n_rows: int) -> None:
    if len(shape) != 1:
        raise InvalidParameterError(
            f"Sample weights must be 1D array or scalar, got {len(shape)}D array of shape {shape}; give "
            "one weight for every row."
        )
    if shape != (n_rows,):
        raise InvalidParameterError(
            f"sample_weight.shape == {shape}, expected {(n_rows,)}! Give one weight for every row."
        )


def _check_dtype(dtype: Any) -> None:
    if np.dtype(dtype).kind not in "biuf":
        raise InvalidParameterError(
            f"Sample weights have dtype={dtype}; they must be real numbers; convert them, e.g. with "
            "weights.astype('float64')."
        )


def least_weight(largest: float, n_rows: int) -> float:
    """Return the least weight above zero that exact sums of `n_rows` rows can tell next to the largest.

    Examples
    --------
    >>> least_weight(1.0, 1 << 20) == 2.0**-36
    True
    """
    doublings = max(1, (n_rows - 1).bit_length())
    return largest * 2.0 ** min(0, 2 * doublings - _MOST_SPAN)


def check_weights(weights: RowWeights, n_rows: int) -> None:
    """Refuse weights that are NaN, infinite, negative, all zero, out of range or too far apart.

    Costs one pass over them.
    """
    start, largest, smallest, at = 0, 0.0, math.inf, 0
    for block in _blocks(weights, n_rows):
        check_block(block, start)
        largest = max(largest, float(block.max(initial=0.0)))
        counted = np.where(block > 0.0, block, math.inf)
        if counted.min(initial=math.inf) < smallest:
            smallest, at = float(counted.min()), start + int(counted.argmin())
        start += len(block)
    if largest == 0.0:
        raise InvalidParameterError(
            f"Sample weights must contain at least one non-zero number: all {n_rows} are zero."
        )
    if largest < LEAST_WEIGHT:
        raise InvalidParameterError(
            f"Sample weights are too small: the largest is {largest:g}, expected at least "
            f"{LEAST_WEIGHT:g}. Only their ratios matter; divide them by their largest."
        )
    if largest > 1.0 / LEAST_WEIGHT:
        raise InvalidParameterError(
            f"Sample weights are too large: the largest is {largest:g}, expected at most "
            f"{1.0 / LEAST_WEIGHT:g}. Only their ratios matter; divide them by their largest."
        )
    least = least_weight(largest, n_rows)
    if smallest < least:
        raise InvalidParameterError(
            f"Sample weights differ too much: row {at} has {smallest:g} and the largest is {largest:g}, "
            f"{largest / smallest:.2g} times as much, where sums of {n_rows} rows are exact for ratios up "
            f"to {largest / least:.2g}; give such rows a weight of 0, which leaves them out of the "
            "centres, or a larger one."
        )


def check_block(block: np.ndarray, start: int) -> None:
    """Refuse weights of rows from `start` on that are NaN, infinite or negative."""
    for bad, text in (
        (np.isnan(block), "Input sample_weight contains NaN"),
        (np.isinf(block), "Input sample_weight contains infinity or a value too large for float64"),
        (block < 0, "Negative values in data passed to `sample_weight`"),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise InvalidParameterError(
                f"{text}: weight {block[row]} of row {start + row}; weights must be finite and >= 0."
            )


def _blocks(weights: RowWeights, n_rows: int) -> Any:
    return (
        weights.read(start, min(start + _CHECK_ROWS, n_rows))
        for start in range(0, n_rows, _CHECK_ROWS)
    )


KINDS = ("group",)
"""Kinds of nodes that an output of this kind may replace."""

MARK = {"daskcluster": "weighted rows"}
"""Attributes of a group whose weights are found when it is opened."""


def holds_weighted_rows(node: Any) -> bool:
    """Return True for a Zarr group that `write_weighted` made."""
    attributes = getattr(node, "attrs", {})
    is_array = hasattr(node, "chunks")
    return not is_array and all(attributes.get(name) == value for name, value in MARK.items())


def stored_attributes(dataset: Any) -> Mapping[str, Any]:
    """Return the attributes of the group that a dataset was opened from, if `write_weighted` made it."""
    recipe = dataset.own_recipe() if hasattr(dataset, "own_recipe") else None
    if not isinstance(recipe, StoredRecipe) or recipe.name != ROWS:
        return {}
    node: Any = open_node(recipe.location)
    return dict(node.attrs) if holds_weighted_rows(node) else {}


def write_weighted(
    url: Any,
    rows: Rows,
    weights: np.ndarray,
    indices: np.ndarray | None = None,
    *,
    facts: Mapping[str, Any],
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write rows and weights to `url`, whole or absent.

    Parameters
    ----------
    url : str
        Path or URL of the group.
    rows : Rows, shape (m, d)
    weights : ndarray of shape (m,), float64
    indices : ndarray of shape (m,), int64, optional
    facts : mapping
        Plain JSON values: attributes of the group, by which people know what it is.
    overwrite : bool
        Replace a Zarr group that is there.
    storage_options : mapping, optional

    Raises
    ------
    OutputExistsError
        Something is there that may not be replaced.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> write_weighted("memory://weighted-rows", np.eye(2), np.array([1.0, 3.0]), facts={})
    >>> np.asarray(open_source("memory://weighted-rows").weights)
    array([1., 3.])
    """
    values = {WEIGHTS: np.asarray(weights, np.float64)}
    if indices is not None:
        values[INDICES] = np.asarray(indices, np.int64)
    kinds = {name: array.dtype for name, array in values.items()}
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with Staging.begin(url, kinds=KINDS, **options) as staging:
        with RowsWriter(staging, RowsShape.of(rows), kinds, group={**facts, **MARK}) as writer:
            step = max(1, READ_BYTES * len(rows) // max(1, rows.nbytes))
            for first in range(0, len(rows), step):
                span = slice(first, first + step)
                writer.append(rows[span], *(array[span] for array in values.values()))
        staging.commit(writer.documents())
