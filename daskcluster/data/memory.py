"""Rows in the memory of this process, dense or sparse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import PARTIAL, FeatureScaling
from daskcluster.data.checks import (
    check_dtype,
    check_shape,
    frame_rows,
    is_frame,
    is_masked,
    without_mask,
)
from daskcluster.data.csr import CsrLayout, canonical, check_structure
from daskcluster.data.dataset import OnRead, RowDataset, check_rows
from daskcluster.data.partitions import cut_rows, group_by_bytes
from daskcluster.data.recipes import HeldRecipe
from daskcluster.data.spec import AS_THEY_ARE, RowsSpec
from daskcluster.errors import InvalidDataError, WrongTypeError
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows, dense_rows
from daskcluster.typing import Range


class ArrayDataset(RowDataset):
    """Rows in memory, handed over as views; a subclass can be made of its rows alone.

    Parameters
    ----------
    rows : ndarray of shape (n, d), or SparseRows
        Any real dtype, C or Fortran order; CSR rows in canonical form, see `canonical`.
    recipe : HeldRecipe, optional
        Recipe of the same rows, if they have been given one before.
    """

    unfilled: Self | None = None
    """The rows without the values of clusters, which change from round to round of a fit."""
    row_lengths: np.ndarray | None = None
    """Lengths of dense rows for the cosine metric, 0 where they are not known yet."""

    def __init__(self, rows: Rows, recipe: HeldRecipe | None = None) -> None:
        n, d = rows.shape
        csr, edges, what = None, cut_rows(n, d * rows.dtype.itemsize), "array"
        if isinstance(rows, SparseRows):
            csr, what = (
                CsrLayout(rows.indptr, rows.data.itemsize + rows.indices.itemsize),
                "sparse matrix",
            )
            anywhere = np.arange(n + 1)
            parts = group_by_bytes(anywhere, csr.bytes_before(anywhere))
            edges = np.array([0] + [stop for _, stop in parts], np.int64)
        super().__init__(d, rows.dtype, edges, csr)
        self.held = rows
        self._recipe = recipe or HeldRecipe.of(rows, f"{what} of shape {rows.shape}", ArrayDataset)

    @property
    def source(self) -> str:
        return "array in memory" if self.csr is None else "sparse matrix in memory"

    @property
    def in_memory(self) -> bool:
        return True

    def with_rows(self, rows: Rows) -> Self:
        """Return a dataset of other rows (n, d) with the weights, ids and names of these."""
        same = {"own_weights": self.own_weights, "normalize": self.normalize}
        return type(self)(rows).with_facts(**self.facts(), **same, read_from=self.stored_at())

    def normalized(self) -> RowDataset:
        """Return the same rows for the cosine metric; their lengths are found in the first pass."""
        lengths = np.zeros(self.n_rows) if self.csr is None else None
        return super().normalized().with_facts(row_lengths=lengths)

    def read(self, span: Range) -> Chunk:
        """Return a view of the rows of a range."""
        chunk = super().read(span)
        lengths = self.row_lengths
        return chunk if lengths is None else replace(chunk, lengths=lengths[slice(*span)])

    def with_scaling(self, scaling: FeatureScaling) -> Self:
        """Return a scaled copy of the rows: they are read in every pass, and scaled once."""
        base = self.unfilled or self
        unfilled = base if scaling.kind == PARTIAL else None
        rows = base.with_rows(scaling.apply(base.held))
        return rows.with_facts(scaling=scaling, unfilled=unfilled)

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

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return a dense copy of the given rows."""
        return dense_rows(self.held[check_rows(rows, self.n_rows)])


def open_sparse(matrix: Any, spec: RowsSpec = AS_THEY_ARE) -> ArrayDataset:
    """Open a scipy sparse matrix or array of any format, converted to CSR once; or `SparseRows`.

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
    ArrayDataset(sparse matrix in memory, 4 x 4 float64, 1 chunks, 4 stored values)
    """
    if isinstance(matrix, SparseRows):
        return ArrayDataset(matrix)
    check_shape(matrix.shape, flatten=False, what="sparse matrix")
    check_dtype(matrix.dtype, what="sparse matrix")
    return ArrayDataset(scipy_rows(matrix))


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


def open_array_like(source: Any, spec: RowsSpec) -> RowDataset:
    """Open an array, a data frame, or anything else that numpy converts to an array.

    Masked values become NaN, in a copy.
    """
    rows = frame_rows(source) if is_frame(source) else _as_array(source)
    check_dtype(rows.dtype)
    check_shape(rows.shape, flatten=spec.flatten)
    return ArrayDataset(rows.reshape(-1, rows.shape[-1]) if rows.ndim > 2 else rows)


def _as_array(source: Any) -> np.ndarray:
    try:
        array = without_mask(np.ma.asarray(source)) if is_masked(source) else np.asarray(source)
    except WrongTypeError:
        raise
    except (ValueError, TypeError) as error:
        raise InvalidDataError(
            f"The rows cannot be made into one array ({error}); every row needs the same number of numbers."
        ) from error
    if array.dtype == object and array.ndim < 2 and not np.isscalar(source):
        raise WrongTypeError(
            f"source is a {type(source).__name__}, which is no table of numbers; give a path, a URL, an "
            "array of shape (n, d), a frame or a dataset."
        )
    return _numbers(array) if array.dtype == object else array


def _numbers(array: np.ndarray) -> np.ndarray:
    """Return objects that are numbers as float64; None is NaN."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        kind = WrongTypeError if isinstance(error, TypeError) else InvalidDataError
        raise kind(
            f"The rows hold objects that are no numbers ({error}); convert your data to numeric values "
            "explicitly, e.g. array.astype('float64')."
        ) from error
