"""Rows in the memory of this process, dense or sparse: passed on as views, pickled whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import PARTIAL, FeatureScaling
from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import OnRead, RowDataset, check_rows
from daskcluster.data.partitions import group_by_bytes
from daskcluster.data.recipes import HeldRecipe
from daskcluster.data.sparse import SparseDataset, bytes_before, canonical, check_structure
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows
from daskcluster.typing import Range, Recipe, Visibility


class MemoryDataset(RowDataset):
    """Base of datasets in memory; a subclass can be made of its rows alone."""

    _recipe: HeldRecipe
    unfilled: Self | None = None
    """The rows without the values of clusters, which change from round to round of a fit."""
    row_lengths: np.ndarray | None = None
    """Lengths of dense rows for the cosine metric, 0 where they are not known yet."""

    @property
    @abstractmethod
    def held(self) -> Rows:
        """All rows, as they are in memory."""

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def own_visibility(self) -> Visibility:
        return Visibility.PROCESS

    def own_recipe(self) -> Recipe:
        return self._recipe

    def with_rows(self, rows: Rows) -> Self:
        """Return a dataset of other rows (n, d) with the weights, ids and names of these."""
        kind: Any = type(self)
        twin: Self = kind(rows)
        vars(twin).update(self.facts())
        twin.own_weights, twin.normalize = self.own_weights, self.normalize
        twin.read_from = self.stored_at()
        return twin

    def normalized(self) -> RowDataset:
        """Return the same rows for the cosine metric; their lengths are found in the first pass."""
        twin: Any = super().normalized()
        if not isinstance(self.held, SparseRows):
            twin.row_lengths = np.zeros(self.n_rows)
        return twin

    def read(self, span: Range) -> Chunk:
        """Return a view of the rows of a range."""
        chunk = super().read(span)
        lengths = self.row_lengths
        return chunk if lengths is None else replace(chunk, lengths=lengths[slice(*span)])

    def with_scaling(self, scaling: FeatureScaling) -> Self:
        """Return a scaled copy of the rows: they are read in every pass, and scaled once."""
        base = self.unfilled or self
        scaled = base.with_rows(scaling.apply(base.held)).on_scale(scaling)
        scaled.unfilled = base if scaling.kind == PARTIAL else None
        return scaled

    def __getstate__(self) -> dict[str, Any]:
        # A pickled dataset in memory carries its rows; only its recipe is bound to the process.
        others = ("own_weights", "scaling", "normalize", "unfilled")
        return {"rows": self.held, **self.facts(), **{name: getattr(self, name) for name in others}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kind: Any = type(self)
        kind.__init__(self, state.pop("rows"))
        vars(self).update(state)

    def fetch(self, start: int, stop: int) -> Any:
        return self.held[start:stop]

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield one view per range; nothing is read, so `on_read` hears nothing."""
        return (self.read(span) for span in ranges if span[1] > span[0])


class MemorySparseDataset(MemoryDataset, SparseDataset):
    """CSR rows in memory, handed over as views.

    Parameters
    ----------
    rows : SparseRows
        In canonical form, see `canonical`.
    recipe : HeldRecipe, optional
        Of the same rows, if they have been given one before.
    """

    def __init__(self, rows: SparseRows, recipe: HeldRecipe | None = None) -> None:
        entry_bytes = rows.data.itemsize + rows.indices.itemsize
        anywhere = np.arange(len(rows) + 1)
        parts = group_by_bytes(anywhere, bytes_before(rows.indptr, entry_bytes, anywhere))
        edges = np.array([0] + [stop for _, stop in parts], np.int64)
        super().__init__(rows.n_features, rows.dtype, rows.indptr, entry_bytes, edges)
        self.rows = rows
        what = f"sparse matrix of shape {rows.shape}"
        self._recipe = recipe or HeldRecipe.of(rows, what, MemorySparseDataset)

    @property
    def source(self) -> str:
        return "sparse matrix in memory"

    @property
    def held(self) -> SparseRows:
        return self.rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return the given rows as a dense array."""
        return self.rows[check_rows(rows, self.n_rows)].toarray()


def is_sparse(source: Any) -> bool:
    """Return True for a scipy sparse matrix or array, without importing scipy."""
    return type(source).__module__.startswith("scipy.sparse") and hasattr(source, "tocsr")


def open_sparse(matrix: Any) -> MemorySparseDataset:
    """Open a scipy sparse matrix or array of any format; all but CSR are converted, once.

    Raises
    ------
    InvalidDataError
        Wrong shape or dtype, or index arrays that do not describe a matrix.

    Notes
    -----
    Cost: one scan of the columns; a copy if it is not CSR, or not canonical, and of 64-bit columns.

    Examples
    --------
    >>> from scipy import sparse
    >>> open_sparse(sparse.eye_array(4, format="coo"))
    MemorySparseDataset(sparse matrix in memory, 4 x 4 float64, 1 chunks, 4 stored values)
    """
    check_shape(matrix.shape, flatten=False, what="sparse matrix")
    check_dtype(matrix.dtype, what="sparse matrix")
    return MemorySparseDataset(scipy_rows(matrix))


def scipy_rows(matrix: Any, start: int = 0, what: str = "the sparse matrix") -> SparseRows:
    """Return the rows of a scipy sparse matrix or array of any format, in canonical form.

    Parameters
    ----------
    matrix : scipy sparse matrix or array
    start : int
        Global index of its first row, for errors.
    what : str
        What errors call it.

    Raises
    ------
    InvalidDataError
        Index arrays that do not describe a matrix.
    """
    csr = matrix.tocsr()
    check_structure(
        csr.indptr, len(csr.data), len(csr.indices), csr.shape, what[0].upper() + what[1:]
    )
    rows = SparseRows(csr.data, csr.indices, csr.indptr.astype(np.int64), csr.shape[1])
    rows = canonical(rows, start, what)
    # Once for all passes; columns out of range have been refused by now.
    return replace(rows, indices=np.ascontiguousarray(rows.indices, INDEX_DTYPE))
