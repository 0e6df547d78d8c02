"""Rows that lack values: left out, or filled with the means of their features."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.array import ArrayDataset
from daskcluster.data.dataset import RowDataset
from daskcluster.data.recipes import HeldRecipe, reopen
from daskcluster.data.weighted import array_weights
from daskcluster.data.zarr import write_scratch
from daskcluster.storage.location import Location
from daskcluster.storage.process_local import open_once
from daskcluster.typing import Range, Recipe, Visibility

MISSING = ("error", "drop", "mean")
_INLINE_BYTES = 1 << 20
"""A mask up to this size travels in a recipe: of 8 million rows, a bit each."""


class _Derived(RowDataset):
    """Rows read from a base and changed; a subclass says how to `fetch` them.

    Parameters
    ----------
    base : RowDataset
    edges : ndarray of int64
        As of `RowDataset`.
    """

    def __init__(self, base: RowDataset, edges: np.ndarray) -> None:
        super().__init__(base.n_features, base.dtype, edges)
        self.base = base
        self.n_readers, self.reader_bytes = base.n_readers, base.reader_bytes
        self.id_column, self.weights_column = base.id_column, base.weights_column
        self.feature_names = base.feature_names

    @property
    def source(self) -> str:
        return self.base.source

    @property
    def own_visibility(self) -> Visibility:
        return self.base.own_visibility

    def places(self) -> tuple[Location, ...]:
        return self.base.places()

    def may_change(self) -> Collection[str]:
        return self.base.may_change()

    def change_guard(self) -> Any:
        return self.base.change_guard()

    def to_scratch(self, folder: str) -> RowDataset:
        """Write what other processes cannot read to Zarr in `folder`, and return that dataset."""
        return write_scratch(self, folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return (reopen, (self.recipe(),))


class FilledDataset(_Derived):
    """The rows of a dataset with a value in place of every NaN.

    Parameters
    ----------
    base : RowDataset
    fill : ndarray of shape (d,), float64
    """

    def __init__(self, base: RowDataset, fill: np.ndarray) -> None:
        super().__init__(base, np.append(0, np.cumsum(base.chunk_sizes)).astype(np.int64))
        self.fill = fill
        self.own_weights = base.own_weights

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return filled(self.base.fetch(start, stop), self.fill)

    def ids(self, start: int, stop: int) -> Any:
        return self.base.ids(start, stop)

    def own_recipe(self) -> Recipe:
        return FilledRecipe(self.base.own_recipe(), self.fill.tobytes())


@dataclass(frozen=True)
class FilledRecipe:
    """The recipe of rows, and what replaces NaN in them."""

    rows: Any
    fill: bytes

    def open(self) -> FilledDataset:
        """Open the rows in this process (once)."""
        return open_once(
            self, lambda: FilledDataset(self.rows.open(), np.frombuffer(self.fill).copy())
        )


class CompleteDataset(_Derived):
    """The rows of a dataset that lack no value, under new numbers.

    Parameters
    ----------
    base : RowDataset
    complete : ndarray of bool, shape (n,)
    """

    def __init__(
        self, base: RowDataset, complete: np.ndarray, recipe: HeldRecipe | None = None
    ) -> None:
        self._at = np.flatnonzero(complete)
        before = np.append(0, np.cumsum(base.chunk_sizes)).astype(np.int64)
        super().__init__(base, np.unique(np.searchsorted(self._at, before)).astype(np.int64))
        self.complete = complete
        what = f"choice of {len(self._at)} of {len(complete)} rows"
        self._held = recipe or HeldRecipe.of((base, complete), what, _of_complete)
        if base.own_weights is not None:
            left = np.asarray(base.weights)[complete]
            self.own_weights = array_weights(left, len(left))

    @property
    def own_visibility(self) -> Visibility:
        small = len(self.complete) <= 8 * _INLINE_BYTES
        return self.base.own_visibility if small else Visibility.PROCESS

    def _within(self, start: int, stop: int) -> tuple[Range, np.ndarray]:
        """Return the range of the base that holds some rows, and their places in it."""
        at = self._at[start:stop]
        span = int(at[0]), int(at[-1]) + 1
        return span, at - span[0]

    def fetch(self, start: int, stop: int) -> np.ndarray:
        span, at = self._within(start, stop)
        rows: np.ndarray = self.base.fetch(*span)
        return rows if len(at) == len(rows) else rows[at]

    def ids(self, start: int, stop: int) -> Any:
        span, at = self._within(start, stop)
        found = self.base.ids(*span)
        return found[at] if isinstance(found, np.ndarray) else found.take(at)

    def own_recipe(self) -> Recipe:
        if len(self.complete) > 8 * _INLINE_BYTES:
            return self._held
        bits = np.packbits(self.complete).tobytes()
        return CompleteRecipe(self.base.own_recipe(), bits, len(self.complete))


def _of_complete(
    held: tuple[RowDataset, np.ndarray], recipe: HeldRecipe | None = None
) -> CompleteDataset:
    return CompleteDataset(*held, recipe)


@dataclass(frozen=True)
class CompleteRecipe:
    """The recipe of rows, and which of them are complete, a bit each."""

    rows: Any
    bits: bytes
    n_rows: int

    def open(self) -> CompleteDataset:
        """Open the rows in this process (once)."""
        return open_once(self, self._open)

    def _open(self) -> CompleteDataset:
        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.n_rows)
        return CompleteDataset(self.rows.open(), bits.astype(bool))


def filled(rows: np.ndarray, fill: np.ndarray) -> np.ndarray:
    """Return rows with `fill` in place of NaN; the same array if there is none."""
    missing = np.isnan(rows)
    return np.where(missing, fill, rows).astype(rows.dtype) if missing.any() else rows


def fill_rows(dataset: RowDataset, fill: np.ndarray) -> RowDataset:
    """Return the rows with `fill` (d,) in place of NaN; those in memory are copied."""
    if not dataset.in_memory:
        return FilledDataset(dataset, fill)
    return _in_memory(dataset, filled(dataset.to_numpy(), fill), slice(None))


def complete_rows(dataset: RowDataset, complete: np.ndarray) -> RowDataset:
    """Return the rows where `complete` (n,) is True; those in memory are copied."""
    if complete.all():
        return dataset
    if not dataset.in_memory:
        return CompleteDataset(dataset, complete)
    return _in_memory(dataset, dataset.to_numpy()[complete], complete)


def _in_memory(dataset: RowDataset, rows: np.ndarray, which: Any) -> RowDataset:
    found: RowDataset = ArrayDataset(rows)
    if dataset.own_weights is not None:
        found = found.with_weights(array_weights(np.asarray(dataset.weights)[which], len(rows)))
    found.id_column, found.weights_column = dataset.id_column, dataset.weights_column
    found.feature_names = dataset.feature_names
    ids = dataset.ids(0, dataset.n_rows)
    whole = isinstance(which, slice)
    found.own_ids = (
        ids if whole else ids[which] if isinstance(ids, np.ndarray) else ids.filter(which)
    )
    return found
