"""Rows in the memory of this process, dense or sparse, and in files that are mapped into it."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
from daskcluster.data.partitions import cut_rows, group_by_bytes, read_spans
from daskcluster.data.readahead import WINDOW_BYTES
from daskcluster.data.recipes import HeldRecipe
from daskcluster.data.spec import AS_THEY_ARE, RowsSpec
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, WrongTypeError
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows, dense_rows
from daskcluster.storage.location import Location, locate
from daskcluster.storage.process_local import open_once
from daskcluster.typing import Range, Visibility


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


_LEAST_READ_BYTES = 1 << 18
"""Pages nearer to each other than this are faster read in one go."""


class MappedDataset(RowDataset):
    """Rows of a .npy file or another raw array on a local disk, mapped into memory.

    Chunks are views of the mapping. Pages are asked for ahead of the reader and given back behind
    it, so that the resident memory stays bounded however large the file is.

    Parameters
    ----------
    file : MappedFile
    """

    def __init__(self, file: MappedFile) -> None:
        row_bytes = file.shape[1] * np.dtype(file.dtype).itemsize
        super().__init__(file.shape[1], file.dtype, cut_rows(file.shape[0], row_bytes))
        self.file = self._recipe = file
        self._map, self._array = file.map()

    __reduce__ = RowDataset.by_recipe

    def places(self) -> tuple[Location, ...]:
        return (locate(self.file.path),)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return self._array[start:stop]

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield views of about 8 MB; see `RowDataset.chunks`."""
        if not self.divisible:
            yield from self._whole(ranges, on_read)
            return
        spans = (part for span in ranges for part in read_spans(span, self._edges, self.row_bytes))
        for span in self._asked_ahead(spans):
            if on_read is not None:
                on_read(self.bytes_of(span))
            yield self.read(span)
            self._advise(*span, mmap.MADV_DONTNEED)

    def read_edges(self, span: Range) -> np.ndarray:
        """Return cuts of `span` every 256 KB or so: pages may be asked for anywhere."""
        if not self.divisible:
            return super().read_edges(span)
        step = max(1, _LEAST_READ_BYTES // max(1, self.row_bytes))
        if self.file.order != "C":  # a page holds values of one column
            step = max(step, mmap.PAGESIZE // self.dtype.itemsize)
        return np.append(np.arange(*span, step, dtype=np.int64), span[1])

    def _asked_ahead(self, spans: Iterable[Range]) -> Iterator[Range]:
        """Yield spans behind a window of others whose pages the system has been asked for."""
        window: deque[Range] = deque()
        n_bytes = 0
        for span in spans:
            self._advise(*span, mmap.MADV_WILLNEED)
            window.append(span)
            n_bytes += self.bytes_of(span)
            while n_bytes > WINDOW_BYTES:
                n_bytes -= self.bytes_of(window[0])
                yield window.popleft()
        yield from window

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Return a copy of the given rows."""
        return np.asarray(self._scaled(self._array[check_rows(rows, self.n_rows)]))

    def _advise(self, start: int, stop: int, advice: int) -> None:
        if self.file.order != "C":
            return
        # Whole pages inside the rows: a neighbour's page is not taken away.
        page = mmap.PAGESIZE
        first = self.file.offset + start * self.row_bytes
        last = min(self.file.offset + stop * self.row_bytes, len(self._map))
        first = -(-first // page) * page
        if last - first >= page:
            self._map.madvise(advice, first, (last - first) // page * page)


@dataclass(frozen=True)
class MappedFile:
    """A raw array in a local file: its own recipe.

    ``file_state`` is the file's size, inode and time of change, so that a file written anew is another one.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    order: str
    offset: int
    file_state: tuple[int, int, int]
    visibility = Visibility.HOST

    @property
    def source(self) -> str:
        return repr(self.path)

    def map(self) -> tuple[mmap.mmap, np.ndarray]:
        """Map the file (copy on write: the file cannot be changed through it)."""
        try:
            with open(self.path, "rb") as file:
                self._check_size(os.fstat(file.fileno()).st_size)
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except FileNotFoundError as error:
            raise DatasetNotFoundError(
                f"There is no file {self.path!r} on this host; put it where every worker can read it, "
                "or give a bucket's URL."
            ) from error
        order: Any = self.order
        array: np.ndarray = np.ndarray(
            self.shape, np.dtype(self.dtype), buffer=mapped, offset=self.offset, order=order
        )
        return mapped, array

    def _check_size(self, size: int) -> None:
        if size != self.file_state[0]:  # reading past the end of a mapping would kill the process
            raise InvalidDataError(
                f"The file {self.path!r} was replaced since the dataset was opened ({size} bytes, not "
                f"{self.file_state[0]}); open it again and restart."
            )

    def open(self) -> MappedDataset:
        """Open the dataset in this process (once)."""
        return open_once(self, lambda: MappedDataset(self))


def mapped_npy(path: str, *, flatten: bool) -> MappedFile:
    """Return the rows of a .npy file.

    Raises
    ------
    DatasetNotFoundError
        No such file, or no permission to read it.
    InvalidDataError
        Damaged, cut short, pickled, of another shape or dtype, or more than two axes in Fortran order.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"There is no file {path!r}; check the path (a relative one starts at the current folder)."
        ) from error
    except PermissionError as error:
        raise DatasetNotFoundError(
            f"No permission to read {path!r}; ask for read access."
        ) from error
    except (ValueError, EOFError, OSError) as error:
        raise InvalidDataError(
            f"{path!r} is no readable .npy file ({error}); write it again with numpy.save, without objects."
        ) from error
    check_dtype(array.dtype, what=f"array in {path!r}")
    check_shape(array.shape, flatten=flatten, what=f"array in {path!r}")
    return mapped_file(array, path)


def mapped_file(array: np.memmap, path: str) -> MappedFile:
    """Describe a memmap that is the whole of its mapping; axes before the last become rows."""
    shape = array.shape
    if len(shape) > 2:
        if not array.flags.c_contiguous:
            raise InvalidDataError(
                f"{path!r} has shape={shape} in Fortran order, whose axes cannot be flattened without "
                "a copy; write it in C order with numpy.ascontiguousarray."
            )
        shape = (int(np.prod(shape[:-1])), shape[-1])
    order = "C" if array.flags.c_contiguous else "F"
    facts = os.stat(path)
    file_state = (facts.st_size, facts.st_ino, facts.st_mtime_ns)
    return MappedFile(
        os.path.abspath(path), shape, array.dtype.str, order, array.offset, file_state
    )


def open_array_like(source: Any, spec: RowsSpec) -> RowDataset:
    """Open an array, a data frame, a memmap, or anything else that numpy converts to an array.

    Masked values become NaN, in a copy.
    """
    if isinstance(source, np.memmap) and _is_whole_file(source):
        check_shape(source.shape, flatten=spec.flatten)
        check_dtype(source.dtype)
        source.flush()
        return mapped_file(source, str(source.filename)).open()
    rows = frame_rows(source) if is_frame(source) else _as_array(source)
    check_dtype(rows.dtype)
    check_shape(rows.shape, flatten=spec.flatten)
    return ArrayDataset(rows.reshape(-1, rows.shape[-1]) if rows.ndim > 2 else rows)


def _is_whole_file(array: np.memmap) -> bool:
    # A slice of a memmap keeps the offset of the whole, so it can only be described as an array.
    base: Any = array.base
    contiguous = array.flags.c_contiguous or (array.ndim == 2 and array.flags.f_contiguous)
    readable = array.mode != "c" and os.path.isfile(str(array.filename))
    return isinstance(base, mmap.mmap) and contiguous and readable


def _as_array(source: Any) -> np.ndarray:
    if hasattr(source, "toarray") and hasattr(source, "nnz"):
        raise WrongTypeError(
            f"source is a {type(source).__module__}.{type(source).__qualname__}; sparse rows are taken "
            "from scipy, e.g. scipy.sparse.csr_array(source)."
        )
    if source is None or isinstance(source, (dict, set, bytes)) or callable(source):
        raise WrongTypeError(
            f"source is a {type(source).__name__}, which holds no rows; give a path, a URL, an array, "
            "a frame or a dataset."
        )
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
