"""The base of all datasets: partitions, reading in blocks, weights, taking rows by number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.partitions import MOST_BYTES, READ_BYTES, group_chunks, read_spans
from daskcluster.data.readahead import SharedReads, read_ahead
from daskcluster.data.recipes import (
    DerivedRecipe,
    ScaledRecipe,
    normalized,
    places_behind,
    reopen,
    weighted,
)
from daskcluster.errors import InvalidParameterError
from daskcluster.sparse_rows import dense_rows
from daskcluster.storage.change_guard import ChangeGuard, guard_changes
from daskcluster.storage.location import Location
from daskcluster.storage.staging import refuse_sources
from daskcluster.typing import Range, Recipe, Visibility

OnRead = Callable[[int], None]
_FACTS = ("id_column", "own_ids", "weights_column", "feature_names", "grid", "decoded", "missing")


class RowWeights(Protocol):
    """Weights of rows: sliced like an array, in memory or in a store."""

    @property
    def visibility(self) -> Visibility: ...
    @property
    def stored_bytes(self) -> int:
        """Bytes per row that a read fetches from a store (0 in memory)."""
        ...

    def values(self) -> Any:
        """Return the value of `Dataset.weights`: an array, or something that `numpy.asarray` takes."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the weights of rows `start` to `stop` as float64."""
        ...

    def recipe(self) -> Any: ...

    def places(self) -> tuple[Location, ...]:
        """Return the places where they are stored, if they are."""
        ...


class RowDataset(ABC):
    """Rows read block by block from a store, with read-ahead.

    A subclass says how to `fetch` rows; everything else follows from the chunk edges.

    Parameters
    ----------
    n_features : int
    dtype : dtype
        Of the rows as stored.
    edges : ndarray of int64, shape (n_chunks + 1,)
        Row indices at which chunks begin, and n; strictly increasing, from 0.
    """

    n_readers = 1
    """Blocks fetched at the same time; more than one hides the latency of a remote store."""

    reader_bytes = 0
    """Memory of the library that reads the rows, if it is not one that every process has."""

    divisible = True
    """Partitions of rows in memory may be cut further, to share them among threads."""

    def __init__(self, n_features: int, dtype: Any, edges: np.ndarray) -> None:
        self.n_features = int(n_features)
        self.dtype = self._stored_dtype = np.dtype(dtype)
        self._edges = edges
        self.own_weights: RowWeights | None = None
        self.scaling: FeatureScaling | None = None
        self.normalize = False
        self.shared_reads: SharedReads | None = None
        self.id_column: str | None = None
        self.own_ids: Any = None
        self.weights_column: str | None = None
        self.feature_names: tuple[str, ...] | None = None
        self.grid: Any = None
        self.decoded: bool | None = None
        self.missing: str | None = None
        self.read_from: tuple[Location, ...] = ()

    # -- what a subclass provides ----------------------------------------------------------

    @property
    @abstractmethod
    def source(self) -> str:
        """Source of the rows, for people; never a credential."""

    @property
    @abstractmethod
    def own_visibility(self) -> Visibility:
        """The visibility of the rows without their weights."""

    @abstractmethod
    def own_recipe(self) -> Recipe:
        """Return the recipe of the rows without their weights."""

    @abstractmethod
    def fetch(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`: an array (stop - start, d), or `SparseRows`."""

    @property
    def whole(self) -> RowDataset:
        """The dataset of which these rows are a part."""
        return self

    def to_scratch(self, folder: str) -> RowDataset:
        """Write what other processes cannot read to Zarr in `folder`, and return that dataset."""
        from daskcluster.data.zarr import write_scratch  # which builds on this class

        return write_scratch(self, folder)

    # -- facts -----------------------------------------------------------------------------

    @property
    def n_rows(self) -> int:
        return int(self._edges[-1])

    @property
    def row_bytes(self) -> int:
        """Decoded bytes of one row, as stored."""
        return self.n_features * self._stored_dtype.itemsize

    def bytes_of(self, span: Range) -> int:
        """Decoded bytes of the rows of a range, without weights; scaled ones may be wider than stored."""
        return (span[1] - span[0]) * self.n_features * self.dtype.itemsize

    @cached_property
    def chunk_sizes(self) -> tuple[int, ...]:
        """Rows of every storage chunk, in order."""
        return tuple(np.diff(self._edges).tolist())

    @cached_property
    def partitions(self) -> tuple[Range, ...]:
        """Consecutive whole chunks of clamp(total bytes / 1024, 1 MB, 64 MB), at least 1,024 rows."""
        return group_chunks(self._edges, self.row_bytes)

    @property
    def in_memory(self) -> bool:
        return False

    @property
    def weights(self) -> Any:
        """Row weights (n,), or None; those kept in a store are read when made an array."""
        return None if self.own_weights is None else self.own_weights.values()

    @property
    def visibility(self) -> Visibility:
        """Who can read the dataset: the narrower of the rows' reach and the weights'."""
        if self.own_weights is None:
            return self.own_visibility
        return min(self.own_visibility, self.own_weights.visibility)

    def recipe(self) -> Recipe:
        """Return what travels to a task in place of this dataset; free of credentials."""
        recipe: Recipe = self.own_recipe()
        if self.own_weights is not None:
            recipe = DerivedRecipe(weighted, recipe, (self.own_weights.recipe(),), once=False)
        if self.scaling is not None and not self.in_memory:
            recipe = ScaledRecipe.of(recipe, self.scaling)
        return DerivedRecipe(normalized, recipe, once=False) if self.normalize else recipe

    def ids(self, start: int, stop: int) -> Any:
        """Return the ids of rows: an Arrow array of the id column; numbers of rows if there is none."""
        if self.own_ids is None:
            return np.arange(start, stop, dtype=np.int64)
        return self.own_ids[start:stop]

    def places(self) -> tuple[Location, ...]:
        """Return where the rows are stored, without weights; empty in memory."""
        return ()

    def stored_at(self) -> tuple[Location, ...]:
        """Return every array and file that is read, those of lazy arrays and of weights included."""
        own = self.places()
        weights = () if self.own_weights is None else self.own_weights.places()
        lazy = (getattr(self, name, None) for name in ("array", "frame"))
        behind = (place for rows in lazy if rows is not None for place in places_behind(rows))
        return (*self._objects(), *(weights if weights != own else ()), *behind, *self.read_from)

    def _objects(self) -> tuple[Location, ...]:
        """Return the arrays and files of the rows one by one, where `places` has their folder."""
        return self.places()

    def may_change(self) -> Collection[str]:
        """Return the names of stored objects that may have changed without harm; see `change_guard`."""
        return ()

    def change_guard(self) -> ChangeGuard | None:
        """Return what tells whether rows and weights were changed in their store from here on."""
        weights = () if self.own_weights is None else self.own_weights.places()
        return guard_changes((*self.places(), *weights), self.may_change)

    def with_weights(self, weights: RowWeights) -> Self:
        """Return the same rows with other weights (checked by the caller)."""
        weighted = self._twin()
        weighted.own_weights = weights
        return weighted

    def with_scaling(self, scaling: FeatureScaling) -> RowDataset:
        """Return the same rows with scaled features: each block is scaled when it has been read."""
        scaled = self._twin()
        scaled.scaling, scaled.dtype = scaling, scaling.dtype_of(self._stored_dtype)
        return scaled

    def unscaled(self) -> Self:
        """Return stored rows in the units of the data."""
        twin = self._twin()
        twin.scaling, twin.dtype, twin.normalize = None, self._stored_dtype, False
        return twin

    def with_grid(self, grid: Any) -> Self:
        """Return the same rows as cells of a grid, a `GridShape`: their labels are saved in its shape."""
        return self.with_facts(grid=grid)

    def with_facts(self, **facts: Any) -> Self:
        """Return the same rows, of which other facts are known."""
        twin = self._twin()
        vars(twin).update(facts)
        return twin

    def normalized(self) -> RowDataset:
        """Return the same rows for the cosine metric: blocks of their chunks have rows of length one.

        Nothing is copied. `take` and `to_numpy` return the rows as they are.
        """
        twin = self._twin()
        twin.normalize = True
        return twin

    def on_scale(self, scaling: FeatureScaling | None) -> Self:
        """Return rows in memory that have been brought to a scale already, as what they are."""
        twin = self._twin()
        twin.scaling = scaling
        return twin

    def facts(self) -> dict[str, Any]:
        """Return what is known of the rows, by attribute, apart from weights and scale."""
        return {name: getattr(self, name) for name in _FACTS}

    def by_recipe(self) -> tuple[Any, ...]:
        """Return what `pickle` needs: never what was opened, whose store would carry credentials."""
        return (reopen, (self.recipe(), {**self.facts(), "read_from": self.read_from}))

    def _twin(self) -> Self:
        # Not copy.copy: the pickled form of a dataset is its recipe, which opens the weights again.
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def _scaled(self, rows: Any) -> Any:
        """Return rows that have been read as they are handed over; those in memory are scaled already."""
        return rows if self.scaling is None or self.in_memory else self.scaling.apply(rows)

    def __repr__(self) -> str:
        weighted = ", weighted" if self.own_weights is not None else ""
        if self.scaling is not None:
            weighted += f", scaled: {self.scaling.kind}" if self.scaling.scales else ", filled in"
        weighted += ", normalized" if self.normalize else ""
        return (
            f"{type(self).__name__}({self.source}, {self.n_rows} x {self.n_features} {self.dtype}, "
            f"{len(self._edges) - 1} chunks{weighted})"
        )

    # -- reading ---------------------------------------------------------------------------

    def sharing(self, ranges: Iterable[Range]) -> Self:
        """Return the same rows, for readers in this process who want each of `ranges` once.

        A storage chunk that reaches over the ends of ranges is then read once for all of them.
        """
        if self.in_memory:
            return self
        twin = self._twin()
        reads = [part for span in ranges for part in self._reads(span)]
        twin.shared_reads = SharedReads(self._edges, reads)
        return twin

    def read(self, span: Range) -> Chunk:
        """Return the rows and weights of one span; runs in a reading thread."""
        shared = self.shared_reads
        return self._read_alone(span) if shared is None else shared.read(span, self._read_alone)

    def _read_alone(self, span: Range) -> Chunk:
        start, stop = span
        weights = None if self.own_weights is None else self.own_weights.read(start, stop)
        return Chunk(self._scaled(self.fetch(start, stop)), start, weights, self.normalize)

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield the rows of `ranges` in order, reading ahead of the caller.

        Small storage chunks are read together up to about 8 MB; one larger than 64 MB is read once
        and handed over in blocks of that size.

        Parameters
        ----------
        ranges : iterable of (start, stop)
            Drawn lazily, in the caller's thread.
        on_read : callable (int) -> None
            Hears the decoded bytes of every block fetched from the store.
        """
        spans = (part for span in ranges for part in self._reads(span))
        weight_bytes = 0 if self.own_weights is None else self.own_weights.stored_bytes
        for chunk in read_ahead(spans, self.read, self.bytes_of, n_threads=self.n_readers):
            if on_read is not None:
                on_read(self.bytes_of((chunk.start, chunk.stop)) + chunk.n_rows * weight_bytes)
            yield from self._hand_over(chunk)
            del chunk  # not kept while the next one is awaited

    def _reads(self, span: Range) -> list[Range]:
        """Cut a range into what is read at a time."""
        return read_spans(span, self._edges, self.row_bytes)

    def _hand_over(self, chunk: Chunk) -> Iterator[Chunk]:
        if self.bytes_of((chunk.start, chunk.stop)) <= MOST_BYTES:
            yield chunk
            return
        for first, last in self._blocks_of(chunk):
            yield chunk.slice(first, last)

    def _blocks_of(self, chunk: Chunk) -> Iterator[Range]:
        """Yield where to cut a large chunk."""
        step = max(1, READ_BYTES // self.row_bytes)
        for first in range(0, chunk.n_rows, step):
            yield first, min(first + step, chunk.n_rows)

    def read_edges(self, span: Range) -> np.ndarray:
        """Return the chunk edges within `span`, its start and its stop included.

        Parameters
        ----------
        span : (start, stop)

        Returns
        -------
        ndarray of int64
            Strictly increasing. Between two of them rows are read and decoded as a whole.

        Examples
        --------
        >>> import numpy as np
        >>> from daskcluster.data.open import open_source
        >>> open_source(np.zeros((10, 2))).read_edges((0, 10)).tolist()
        [0, 10]
        """
        start, stop = span
        first = int(np.searchsorted(self._edges, start, side="right"))
        last = int(np.searchsorted(self._edges, stop, side="left"))
        return np.concatenate([[start], self._edges[first:last], [stop]]).astype(np.int64)

    def load(self, span: Range, *, on_read: OnRead | None = None) -> Chunk:
        """Return the rows of one range as one chunk that owns its memory."""
        start, stop = span
        rows = np.empty((stop - start, self.n_features), self.dtype)
        weights = None if self.own_weights is None else np.empty(stop - start)
        for chunk in self.chunks([span], on_read=on_read):
            place = slice(chunk.start - start, chunk.stop - start)
            rows[place] = chunk.rows
            if weights is not None:
                weights[place] = chunk.weights
        return Chunk(rows, start, weights, self.normalize)

    def to_numpy(self) -> np.ndarray:
        """Return all rows as one array (n, d) in the source dtype; mind the memory."""
        return self.load((0, self.n_rows)).rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows, in the given order and dense; every chunk concerned is read once.

        Parameters
        ----------
        rows : ndarray of int, shape (m,)
            Global row indices, sorted or not, repeats allowed.

        Returns
        -------
        ndarray of shape (m, d)

        Raises
        ------
        InvalidParameterError
            An index is outside 0 to n - 1.
        """
        rows = check_rows(rows, self.n_rows)
        taken = np.empty((len(rows), self.n_features), self.dtype)
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        home = np.searchsorted(self._edges, ordered, side="right")
        cuts = np.flatnonzero(np.diff(home, prepend=-1, append=-1))
        groups = [(int(a), int(b)) for a, b in pairwise(cuts)]
        spans = [(int(ordered[a]), int(ordered[b - 1]) + 1) for a, b in groups]
        fetched = read_ahead(
            spans, lambda span: self.fetch(*span), self.bytes_of, n_threads=self.n_readers
        )
        for (a, b), (start, _), block in zip(groups, spans, fetched, strict=True):
            taken[order[a:b]] = dense_rows(self._scaled(block[ordered[a:b] - start]))
        return taken


def refuse_replacing(dataset: Any, **outputs: Location | None) -> None:
    """Raise if an output would replace what rows are read from; outputs by the names of their arguments.

    Raises
    ------
    InvalidParameterError
    """
    given = {name: place for name, place in outputs.items() if place is not None}
    refuse_sources(given, stored_at(dataset))


def stored_at(dataset: Any) -> tuple[Location, ...]:
    """Return every array and file that is read for a dataset of any class; see `RowDataset`."""
    found: tuple[Location, ...] = getattr(dataset, "stored_at", tuple)()
    return found


def check_rows(rows: Any, n_rows: int) -> np.ndarray:
    """Return row indices as int64 (m,), refusing those outside the dataset."""
    rows = np.asarray(rows, dtype=np.int64).ravel()
    if len(rows) and (rows.min() < 0 or rows.max() >= n_rows):
        bad = int(rows.min() if rows.min() < 0 else rows.max())
        raise InvalidParameterError(
            f"row {bad} should be in 0 to {n_rows - 1}; the dataset has n_samples={n_rows}."
        )
    return rows
