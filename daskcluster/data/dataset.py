"""Datasets: rows read in blocks, dense or CSR, with their weights; the bases of stored and derived ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.csr import CsrLayout
from daskcluster.data.partitions import (
    MOST_BYTES,
    READ_BYTES,
    group_by_bytes,
    group_chunks,
    read_spans,
)
from daskcluster.data.readahead import SharedReads, read_ahead
from daskcluster.data.recipes import (
    DerivedRecipe,
    normalized,
    places_behind,
    reopen,
    scaled,
    weighted,
)
from daskcluster.errors import InvalidParameterError
from daskcluster.extras import import_pyarrow
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows, join_rows
from daskcluster.storage.change_guard import ChangeGuard, guard_changes
from daskcluster.storage.location import Location
from daskcluster.storage.staging import refuse_sources
from daskcluster.typing import Dataset, Range, Recipe, Visibility

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from daskcluster.data.weighted import RowWeights

OnRead = Callable[[int], None]
WHOLE_BYTES = 256 << 20
"""Rows up to this size are one partition, of those that are given partition by partition."""
_KNOWN = ("id_column", "own_ids", "weights_column", "feature_names", "grid", "decoded", "missing")
"""What is known of rows, and goes with them to other rows that are made of them."""


class RowDataset(ABC):
    """Rows read block by block from a store, with read-ahead.

    A subclass says how to `fetch` rows, and by `own_recipe`, `own_visibility` and `source` how others open
    them; everything else follows from the chunk edges, and of CSR rows from where each row's values begin.

    Parameters
    ----------
    n_features : int
    dtype : dtype
        Type of the rows as stored.
    edges : ndarray of int64, shape (n_chunks + 1,)
        Row indices at which chunks begin, and n; strictly increasing, from 0.
    csr : CsrLayout, optional
        If the rows are CSR: their sizes are those of their stored values.
    """

    n_readers = 1
    """Blocks fetched at the same time: more than one hides the latency of a remote store; 0 for views."""

    reader_bytes = 0
    """Memory of the library that reads the rows, if it is not one that every process has."""

    divisible = True
    """Partitions may be cut further, to be read, or to be shared among threads if they are in memory."""

    def __init__(
        self, n_features: int, dtype: Any, edges: np.ndarray, csr: CsrLayout | None = None
    ) -> None:
        self.n_features = int(n_features)
        self.dtype = self._stored_dtype = np.dtype(dtype)
        self._edges = edges
        self.csr = csr
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

    _recipe: Any
    """Recipe that knows source and visibility of the rows; or a subclass says what follows from it."""

    @property
    def source(self) -> str:
        """Source of the rows, for people; never a credential."""
        return str(self._recipe.source)

    @property
    def own_visibility(self) -> Visibility:
        """The visibility of the rows without their weights."""
        found: Visibility = self._recipe.visibility
        return found

    def own_recipe(self) -> Recipe:
        """Return the recipe of the rows without their weights."""
        found: Recipe = self._recipe
        return found

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

        if self.divisible:
            return write_scratch(self, folder)
        found = write_scratch(self.with_facts(divisible=True), folder)
        return in_partitions(found, self.partitions)

    # -- facts -----------------------------------------------------------------------------

    @property
    def n_rows(self) -> int:
        return int(self._edges[-1])

    @property
    def row_bytes(self) -> int:
        """Decoded bytes of one row, as stored; on average of CSR rows."""
        if self.csr is not None:
            return -(-self.bytes_of((0, self.n_rows)) // self.n_rows)
        return self.n_features * self._stored_dtype.itemsize

    def bytes_of(self, span: Range) -> int:
        """Decoded bytes of the rows of a range, without weights; scaled ones may be wider than stored."""
        if self.csr is not None:
            return int(self.csr.bytes_before(np.array(span)) @ (-1, 1))
        return (span[1] - span[0]) * self.n_features * self.dtype.itemsize

    @property
    def n_entries(self) -> int | None:
        """Stored values of all CSR rows; None for dense rows."""
        return None if self.csr is None else self.csr.n_entries

    @cached_property
    def chunk_sizes(self) -> tuple[int, ...]:
        """Rows of every storage chunk, in order."""
        return tuple(np.diff(self._edges).tolist())

    @cached_property
    def partitions(self) -> tuple[Range, ...]:
        """Consecutive whole chunks of clamp(total bytes / 1024, 1 MB, 64 MB), at least 1,024 rows."""
        if self.csr is not None:
            return group_by_bytes(self._edges, self._ends)
        return group_chunks(self._edges, self.row_bytes)

    @cached_property
    def _ends(self) -> np.ndarray:
        """Bytes of all rows before each edge."""
        return (
            self._edges * self.row_bytes if self.csr is None else self.csr.bytes_before(self._edges)
        )

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
            each = self.scaling.shift, self.scaling.width, self.scaling.fill
            arrays = (array.tobytes() for array in each if array is not None)
            recipe = DerivedRecipe(scaled, recipe, (self.scaling.kind, *arrays), once=False)
        if not self.divisible:
            recipe = DerivedRecipe(in_partitions, recipe, (self.partitions,))
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
        lazy = (getattr(self, name, None) for name in ("array", "held", "frame"))
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
        return self.with_facts(own_weights=weights)

    def with_scaling(self, scaling: FeatureScaling) -> RowDataset:
        """Return the same rows with scaled features: each block is scaled when it has been read."""
        return self.with_facts(scaling=scaling, dtype=scaling.dtype_of(self._stored_dtype))

    def unscaled(self) -> Self:
        """Return stored rows in the units of the data."""
        return self.with_facts(scaling=None, dtype=self._stored_dtype, normalize=False)

    def with_facts(self, **facts: Any) -> Self:
        """Return the same rows, of which other facts are known, by attribute.

        Labels of rows whose ``grid`` is a `GridShape` are saved in its shape.
        """
        # Not copy.copy: the pickled form of a dataset is its recipe, which opens the weights again.
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), **facts)
        return twin

    def normalized(self) -> RowDataset:
        """Return the same rows for the cosine metric: blocks of their chunks have rows of length one.

        Nothing is copied. `take` and `to_numpy` return the rows as they are.
        """
        return self.with_facts(normalize=True)

    def facts(self) -> dict[str, Any]:
        """Return what is known of the rows, by attribute, apart from weights and scale."""
        return {name: getattr(self, name) for name in _KNOWN}

    def by_recipe(self) -> tuple[Any, ...]:
        """Return what `pickle` needs: never what was opened, whose store would carry credentials."""
        return (reopen, (self.recipe(), {**self.facts(), "read_from": self.read_from}))

    def _scaled(self, rows: Any) -> Any:
        """Return rows that have been read as they are handed over; those in memory are scaled already."""
        return rows if self.scaling is None or self.in_memory else self.scaling.apply(rows)

    def __repr__(self) -> str:
        weighted = ", weighted" if self.own_weights is not None else ""
        if self.scaling is not None:
            weighted += f", scaled: {self.scaling.kind}" if self.scaling.scales else ", filled in"
        weighted += ", normalized" if self.normalize else ""
        weighted += f", {self.n_entries} stored values" if self.csr is not None else ""
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
        reads = [part for span in ranges for part in self._reads(span)]
        return self.with_facts(shared_reads=SharedReads(self._edges, reads))

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
        on_read : callable (int) -> None, optional
            Hears the decoded bytes of every block fetched from the store.
        """
        if not self.divisible:
            yield from (self.load(span, on_read=on_read) for span in ranges if span[1] > span[0])
            return
        spans = (part for span in ranges for part in self._reads(span))
        weight_bytes = 0 if self.own_weights is None else self.own_weights.stored_bytes
        for chunk in read_ahead(spans, self.read, self.bytes_of, n_threads=self.n_readers):
            if on_read is not None:
                on_read(self.bytes_of((chunk.start, chunk.stop)) + chunk.n_rows * weight_bytes)
            if self.bytes_of((chunk.start, chunk.stop)) <= MOST_BYTES:
                yield chunk
            else:
                yield from chunk.split(max(1, READ_BYTES // self.row_bytes), READ_BYTES)
            del chunk  # not kept while the next one is awaited

    def _reads(self, span: Range) -> list[Range]:
        """Cut a range into what is read at a time."""
        return read_spans(span, self._edges, self._ends)

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
        if not self.divisible:
            return np.array(span, np.int64)
        first = int(np.searchsorted(self._edges, start, side="right"))
        last = int(np.searchsorted(self._edges, stop, side="left"))
        return np.concatenate([[start], self._edges[first:last], [stop]]).astype(np.int64)

    def load(self, span: Range, *, on_read: OnRead | None = None) -> Chunk:
        """Return the rows of one range as one chunk that owns its memory."""
        if not self.divisible:
            return self.with_facts(divisible=True).load(span, on_read=on_read)
        start, stop = span
        if self.csr is not None:
            chunks = list(self.chunks([span], on_read=on_read))
            weights = None if self.own_weights is None else self.own_weights.read(*span).copy()
            found = join_rows([chunk.rows for chunk in chunks])
            return Chunk(found, start, weights, self.normalize).owned()
        rows = np.empty((stop - start, self.n_features), self.dtype)
        weights = None if self.own_weights is None else np.empty(stop - start)
        for chunk in self.chunks([span], on_read=on_read):
            place = slice(chunk.start - start, chunk.stop - start)
            rows[place] = chunk.rows
            if weights is not None:
                weights[place] = chunk.weights
        return Chunk(rows, start, weights, self.normalize)

    def to_numpy(self) -> np.ndarray:
        """Return all rows as one dense array (n, d) in the source dtype; mind the memory."""
        return dense_rows(self.load((0, self.n_rows)).rows)

    def to_scipy(self) -> csr_array:
        """Return all rows as a `scipy.sparse.csr_array` (n, d)."""
        from scipy.sparse import csr_array

        rows = self.load((0, self.n_rows)).rows
        if not isinstance(rows, SparseRows):
            return csr_array(rows)
        return csr_array((rows.data, rows.indices, rows.offsets), shape=rows.shape)

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
        if not len(rows):
            return np.empty((0, self.n_features), self.dtype)
        cut = self if self.divisible else self.with_facts(divisible=True)
        return dense_rows(chosen_rows(cut, rows))


class DerivedDataset(RowDataset):
    """Base of rows that are read from those of another dataset, where that one is stored."""

    base: RowDataset

    @property
    def source(self) -> str:
        return self.base.source

    @property
    def own_visibility(self) -> Visibility:
        return self.base.own_visibility

    def places(self) -> tuple[Location, ...]:
        return self.base.places()

    def _objects(self) -> tuple[Location, ...]:
        return self.base.stored_at()

    def may_change(self) -> Collection[str]:
        return self.base.may_change()

    def change_guard(self) -> ChangeGuard | None:
        return self.base.change_guard()


def in_partitions(dataset: RowDataset, partitions: Sequence[Range]) -> RowDataset:
    """Return the same rows in partitions that are read as a whole and never cut.

    Examples
    --------
    >>> from daskcluster.data.open import open_source
    >>> rows = in_partitions(open_source(np.arange(8.0).reshape(4, 2)), [(0, 1), (1, 4)])
    >>> [(chunk.start, chunk.n_rows) for chunk in rows.chunks(rows.partitions)]
    [(0, 1), (1, 3)]
    """
    return dataset.with_facts(partitions=tuple(partitions), divisible=False)


def partition_edges(dataset: RowDataset, n_partitions: int | None) -> np.ndarray:
    """Return where about equal partitions begin, and n; int64.

    Parameters
    ----------
    dataset : RowDataset
    n_partitions : int or None
        How many, at most: those of stored rows are whole chunks. None: one for rows of up to 256 MB, else
        as many as it takes for 64 MB each.

    Examples
    --------
    >>> from daskcluster.data.open import open_source
    >>> rows = open_source(np.zeros((10, 2)))
    >>> partition_edges(rows, 3).tolist(), partition_edges(rows, None).tolist()
    ([0, 3, 6, 10], [0, 10])
    """
    n_rows = dataset.n_rows
    if n_partitions is None:
        size = dataset.bytes_of((0, n_rows))
        n_partitions = 1 if size <= WHOLE_BYTES else -(-size // MOST_BYTES)
    edges = np.linspace(0, n_rows, min(n_partitions, n_rows) + 1).astype(np.int64)
    if dataset.in_memory:
        return edges
    chunks = dataset.read_edges((0, n_rows))
    places = np.searchsorted(chunks, edges)
    # To the nearer chunk edge; what two partitions would share goes to one of them.
    below, above = chunks[np.maximum(places - 1, 0)], chunks[places]
    return np.unique(np.where(edges - below < above - edges, below, above))


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


def chosen_rows(dataset: Dataset, numbers: np.ndarray) -> Rows:
    """Return rows by their numbers, in the given order.

    Unlike ``dataset.take``, it leaves CSR rows in CSR form, with all their stored entries.

    Parameters
    ----------
    dataset : Dataset
    numbers : ndarray of shape (m,), int64
        At least one; repeats are allowed.

    Returns
    -------
    Rows of shape (m, d)

    Notes
    -----
    Cost: every storage chunk with at least one of the rows is read once.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_source
    >>> chosen_rows(open_source(np.eye(3)), np.array([2, 0, 2]))
    array([[0., 0., 1.],
           [1., 0., 0.],
           [0., 0., 1.]])
    """
    ordered, home = np.unique(numbers, return_inverse=True)
    parts = []
    for chunk in dataset.chunks(_spans(dataset, ordered)):
        first, last = np.searchsorted(ordered, [chunk.start, chunk.stop])
        parts.append(chunk.rows[ordered[first:last] - chunk.start])
    return join_rows(parts)[home]


def _spans(dataset: Dataset, ordered: np.ndarray) -> Iterator[Range]:
    """Yield the range from the first to the last requested row of each storage chunk."""
    edges = dataset.read_edges((0, dataset.n_rows))
    places = np.searchsorted(ordered, edges)
    for first, last in zip(places[:-1].tolist(), places[1:].tolist(), strict=True):
        if last > first:
            yield int(ordered[first]), int(ordered[last - 1]) + 1


def chosen_ids(dataset: Any, numbers: np.ndarray) -> Any:
    """Return the ids of at least one row, by ascending numbers; see `joined_ids`."""
    edges, parts = np.append(0, np.cumsum(dataset.chunk_sizes)), []
    for first, last in pairwise(np.unique(np.searchsorted(numbers, edges)).tolist()):
        here = numbers[first:last]
        ids = dataset.ids(int(here[0]), int(here[-1]) + 1)
        at = here - here[0]
        parts.append(ids[at] if isinstance(ids, np.ndarray) else ids.take(at))
    return joined_ids(parts)


def joined_ids(parts: Sequence[Any]) -> Any:
    """Return consecutive ids as one array: of Arrow if they are those of an id column."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    pa = import_pyarrow()
    arrays = [piece for part in parts for piece in getattr(part, "chunks", [part])]
    return pa.chunked_array(arrays, type=parts[0].type)
