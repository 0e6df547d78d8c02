"""Rows without missing values: those that lack one are left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from daskcluster.data.checks import is_bfloat16
from daskcluster.data.dataset import DerivedDataset, RowDataset, joined_ids
from daskcluster.data.memory import ArrayDataset
from daskcluster.data.recipes import DerivedRecipe
from daskcluster.data.weighted import array_weights
from daskcluster.errors import InvalidDataError
from daskcluster.typing import Recipe

SOME, ALL = 1, 2
"""How many features of a row have values; 0: none."""


def presence(rows: np.ndarray, nodata: float | None = None) -> np.ndarray:
    """Return whether rows, features last, have values in all features, in some or in none.

    Parameters
    ----------
    rows : ndarray of shape (..., d)
        Masked values are missing, of a masked array.
    nodata : float, optional
        A value that means none; NaN does in any case.

    Returns
    -------
    ndarray of uint8, shape (...)
        `ALL`, `SOME` or 0.

    Examples
    --------
    >>> presence(np.array([[1.0, 2], [np.nan, 2], [-9, -9]]), nodata=-9)
    array([2, 1, 0], dtype=uint8)
    """
    values = np.ma.getdata(rows)
    missing: list[Any] = []
    if np.ma.is_masked(rows):
        missing.append(np.ma.getmask(rows))
    if values.dtype.kind == "f" or is_bfloat16(values.dtype):
        missing.append(np.isnan(values))
    if nodata is not None:
        missing.append(values == nodata)
    if not missing:
        return np.full(values.shape[:-1], ALL, np.uint8)
    lacking: Any = reduce(or_, missing)
    incomplete = lacking.any(axis=-1)
    found: np.ndarray = np.full(incomplete.shape, ALL, np.uint8)
    found[incomplete] = np.where(lacking[incomplete].all(axis=-1), 0, SOME)
    return found


class CompleteDataset(DerivedDataset):
    """The rows of a dataset that lack no value, or not all values, under new numbers.

    Which rows these are is found again in every chunk that is read, so that a recipe holds a number per
    chunk, however many rows there are.

    Parameters
    ----------
    base : RowDataset
    counts : ndarray of int64, shape (n_chunks,)
        Complete rows of each storage chunk of `base`.
    nodata : float, optional
        See `presence`.
    least : int
        Rows are complete from this `presence` on.
    complete : ndarray of bool, shape (n,), optional
        The complete rows of `base`, where they are known: ids are then found without reading rows.
    """

    def __init__(
        self,
        base: RowDataset,
        counts: np.ndarray,
        nodata: float | None = None,
        least: int = ALL,
        complete: np.ndarray | None = None,
    ) -> None:
        self._counts, self._nodata, self._least = counts, nodata, least
        self._chunks = np.flatnonzero(counts)
        edges = np.append(0, np.cumsum(counts[self._chunks])).astype(np.int64)
        super().__init__(base.n_features, base.dtype, edges)
        self._base_edges = np.append(0, np.cumsum(base.chunk_sizes)).astype(np.int64)
        self.base, self.complete = base, complete
        self.n_readers, self.reader_bytes = max(1, base.n_readers), base.reader_bytes
        vars(self).update(base.facts())
        if base.own_weights is not None:
            if complete is None:
                complete = np.concatenate([self._complete(chunk) for chunk in range(len(counts))])
            left = np.asarray(base.weights)[complete]
            self.own_weights = array_weights(left, len(left))

    def fetch(self, start: int, stop: int) -> np.ndarray:
        parts = [
            self._rows(chunk)[first:last] for chunk, first, last in self._parts_of(start, stop)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def ids(self, start: int, stop: int) -> Any:
        """Return the ids of rows; the numbers that they have in the base if it has no id column."""
        parts: list[Any] = []
        for chunk, first, last in self._parts_of(start, stop):
            at = np.flatnonzero(self._complete(chunk))[first:last]
            found = self.base.ids(*self._span(chunk))
            parts.append(found[at] if isinstance(found, np.ndarray) else found.take(at))
        return joined_ids(parts)

    def _parts_of(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield ``(chunk, first, last)``: complete rows `first` to `last` of a chunk of the base."""
        number = int(np.searchsorted(self._edges, start, side="right")) - 1
        while start < stop:
            origin, last = int(self._edges[number]), min(stop, int(self._edges[number + 1]))
            yield int(self._chunks[number]), start - origin, last - origin
            start, number = last, number + 1

    def _span(self, chunk: int) -> tuple[int, int]:
        return int(self._base_edges[chunk]), int(self._base_edges[chunk + 1])

    def _rows(self, chunk: int) -> np.ndarray:
        span = self._span(chunk)
        rows: np.ndarray = self.base.fetch(*span)
        if self._counts[chunk] == len(rows):
            return rows
        kept = rows[presence(rows, self._nodata) >= self._least]
        if len(kept) != self._counts[chunk]:
            raise InvalidDataError(
                f"Rows {span[0]} to {span[1] - 1} of {self.source} were written anew since the dataset was "
                "opened; open it again and restart."
            )
        return kept

    def _complete(self, chunk: int) -> np.ndarray:
        """Return which rows of a chunk of the base are complete."""
        start, stop = self._span(chunk)
        if self.complete is not None:
            return self.complete[start:stop]
        if self._counts[chunk] == stop - start:
            return np.ones(stop - start, bool)
        found: np.ndarray = presence(self.base.fetch(start, stop), self._nodata) >= self._least
        return found

    def own_recipe(self) -> Recipe:
        arguments = self._counts.tobytes(), self._nodata, self._least
        return DerivedRecipe(_complete, self.base.own_recipe(), arguments)

    __reduce__ = RowDataset.by_recipe


def _complete(base: RowDataset, counts: bytes, nodata: float | None, least: int) -> CompleteDataset:
    return CompleteDataset(base, np.frombuffer(counts, np.int64), nodata, least)


def without_incomplete(
    dataset: RowDataset, found: np.ndarray, nodata: float | None = None, least: int = ALL
) -> RowDataset:
    """Return the rows whose `presence` (n,) is `least` or more; those in memory are copied."""
    complete = found >= least
    if complete.all():
        return dataset
    if not isinstance(dataset, ArrayDataset):
        starts = np.append(0, np.cumsum(dataset.chunk_sizes)[:-1])
        counts = np.add.reduceat(complete, starts, dtype=np.int64)
        return CompleteDataset(dataset, counts, nodata, least, complete)
    weights, ids = dataset.own_weights, dataset.ids(0, dataset.n_rows)
    if weights is not None:
        left = np.asarray(dataset.weights)[complete]
        weights = array_weights(left, len(left))
    return dataset.with_rows(dataset.held[complete]).with_facts(
        own_weights=weights,
        own_ids=ids[complete] if isinstance(ids, np.ndarray) else ids.filter(complete),
    )
