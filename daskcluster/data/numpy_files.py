"""Rows of .npy and .npz files, read in place: mapped, by ranges of bytes, or from the start on."""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import open_sparse
from daskcluster.data.partitions import READ_BYTES, cut_rows
from daskcluster.data.row_files import (
    FilesDataset,
    FilesRecipe,
    RowFile,
    dataset_of,
    explained,
    map_files,
    places_of,
    read_stream,
    refuse_other_layouts,
    replaced,
    with_array_weights,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.storage.files import StoredFile, match_files, open_file, read_range
from daskcluster.storage.location import Location, locate
from daskcluster.storage.retry import retry
from daskcluster.typing import Range

_PACKED = -1
_HEAD_BYTES = 1 << 12
_LEAST_READ_BYTES = 1 << 18
"""Pages nearer to each other than this are faster read in one go."""
_LOCAL_HEADER = 30
"""Bytes of a zip entry's header before its name and extra field."""


@dataclass(frozen=True)
class NumpyFile(RowFile):
    """A .npy or .npz file, or a raw array on this host.

    Attributes
    ----------
    offset : int
        Byte at which the first row begins; -1 if rows are decoded from the start of the file.
    fortran : bool
        The array is in Fortran order.
    """

    offset: int = _PACKED
    fortran: bool = False


@dataclass(frozen=True)
class NumpyFormat:
    """Layout of rows in .npy and .npz files; see `FilesRecipe`.

    Attributes
    ----------
    n_features : int
    dtype : str
    array : str
        Name of the array in an archive; empty for .npy files.
    """

    n_features: int
    dtype: str
    array: str = ""

    @property
    def kind(self) -> str:
        return ".npz" if self.array else ".npy"

    @property
    def dataset(self) -> Any:
        return NumpyDataset

    @property
    def row_bytes(self) -> int:
        return self.n_features * np.dtype(self.dtype).itemsize

    def is_mapped(self, place: Location, file: NumpyFile) -> bool:
        """Return True for an array whose rows are views of the file."""
        return place.is_local and file.offset >= 0 and not self.array

    def cuts(self, file: RowFile) -> np.ndarray:
        return cut_rows(file.n_rows, self.row_bytes)

    def reads_in_order(self, file: Any) -> bool:
        return bool(file.offset < 0 or file.fortran)

    def read(self, place: Location, file: NumpyFile, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d)."""
        if self.is_mapped(place, file):
            return self._mapped(place, file, first, last)
        if file.offset < 0 or file.fortran:
            return read_stream(self, place, file, first, last)
        start = file.offset + first * self.row_bytes
        content = read_range(place, start, start + (last - first) * self.row_bytes)
        return self._rows(content, place, last - first)

    def _mapped(self, place: Location, file: NumpyFile, first: int, last: int) -> np.ndarray:
        """Return a view of a mapping of its own: pages are resident no longer than the rows are used."""
        shape, order = (file.n_rows, self.n_features), "F" if file.fortran else "C"
        # Copy on write: the file cannot be changed through it, and kernels take it as any other array.
        mapped: Any = np.memmap(place.url, self.dtype, "c", file.offset, shape, order)  # type: ignore[call-overload]
        if not file.fortran:  # ask for the pages of these rows, and of as many behind them
            begin = file.offset % mmap.ALLOCATIONGRANULARITY  # of the rows in the mapping
            start = (begin + first * self.row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
            stop = begin + min(2 * last - first, file.n_rows) * self.row_bytes
            mapped.base.madvise(mmap.MADV_WILLNEED, start, stop - start)
        return np.asarray(mapped)[first:last]

    def decoded(
        self, place: Location, file: NumpyFile, first: int, last: int
    ) -> Iterator[np.ndarray]:
        """Yield the rows of a file from its start, block by block; all at once in Fortran order."""
        with ExitStack() as stack:
            member = stack.enter_context(open_file(place))
            if self.array:
                archive = stack.enter_context(zipfile.ZipFile(member))
                member = stack.enter_context(archive.open(f"{self.array}.npy"))
            shape, fortran, dtype = _header(member)
            if fortran:
                values = np.frombuffer(member.read(), dtype).reshape(shape, order="F")
                yield values.reshape(-1, self.n_features)
                return
            step = max(1, READ_BYTES // self.row_bytes)
            for start in range(first, last, step):
                n_rows = min(step, last - start)
                yield self._rows(member.read(n_rows * self.row_bytes), place, n_rows)

    def _rows(self, content: bytes, place: Location, n_rows: int) -> np.ndarray:
        if len(content) != n_rows * self.row_bytes:
            raise replaced(place)
        return np.frombuffer(content, self.dtype).reshape(n_rows, self.n_features)


class NumpyDataset(FilesDataset):
    """Rows of .npy and .npz files, or of a raw array."""

    def __init__(self, recipe: FilesRecipe) -> None:
        super().__init__(recipe)
        if all(self.form.is_mapped(self.place_of(file), file) for file in self.files):
            self.n_readers = 0

    def read_edges(self, span: Range) -> np.ndarray:
        """Return cuts of `span` every 256 KB or so in a mapped file: pages may be asked for anywhere."""
        file: Any = self.files[0]
        if self.n_readers or len(self.files) > 1 or not self.divisible:
            return super().read_edges(span)
        step = max(1, _LEAST_READ_BYTES // max(1, self.row_bytes))
        if file.fortran:  # a page holds values of one column
            step = max(step, mmap.PAGESIZE // self.dtype.itemsize)
        return np.append(np.arange(*span, step, dtype=np.int64), span[1])


def open_mapped(given: Any, spec: RowsSpec) -> RowDataset:
    """Open the file of a `numpy.memmap`; axes before the last become rows."""
    check_shape(given.shape, flatten=spec.flatten)
    check_dtype(given.dtype)
    given.flush()
    place, n_features = locate(str(given.filename)), given.shape[-1]
    (file,) = match_files(place)[1]
    opened = NumpyFile(
        "",
        file.size,
        file.version,
        (given.size // n_features,),
        offset=given.offset,
        fortran=not given.flags.c_contiguous,
    )
    return FilesRecipe(place, (opened,), NumpyFormat(n_features, given.dtype.str)).open()


def open_numpy(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open .npy files, or an array of .npz files: without `array`, the only matrix, or the one called X.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError

    Notes
    -----
    Cost: the headers of each file are read. .npy files on a local disk are mapped into memory. An array
    that `numpy.savez_compressed` wrote is decoded by one thread from its start, others in Fortran order as
    a whole, and so is a matrix that `scipy.sparse.save_npz` wrote.
    """
    places = places_of(location, files)
    is_archive = len(files) == 1 and places[0].url.lower().endswith(".npz")
    if is_archive and {"data", "format", "shape"} <= set(_members(places[0])):
        return _open_scipy(places[0], spec)
    heads = map_files(lambda at: _head(places[at], files[at], spec), range(len(files)))
    refuse_other_layouts(places, [form for form, _ in heads])
    dataset = dataset_of(location, [file for _, file in heads], heads[0][0])
    return with_array_weights(dataset, spec, places, _whole) if heads[0][0].array else dataset


def read_npy(place: Location) -> np.ndarray:
    """Return the array of a .npy file, mapped into memory if it is on this host."""
    with explained(place, ".npy"):
        if place.is_local:
            return np.asarray(np.load(place.url, mmap_mode="r"))
        with open_file(place) as file:
            return np.asarray(np.load(file))


def _whole(place: Location, name: str) -> np.ndarray:
    _expect_member(_members(place), name, place)
    with open_file(place) as stream, np.load(stream, allow_pickle=False) as archive:
        values: np.ndarray = archive[name]
        return values


def _open_scipy(place: Location, spec: RowsSpec) -> RowDataset:
    from scipy.sparse import load_npz

    if spec.array is not None or spec.weights is not None:
        raise InvalidParameterError(
            f"{place.url!r} holds one sparse matrix and nothing else; leave array= and weights= out."
        )
    with open_file(place) as file:
        return open_sparse(load_npz(file)).with_facts(read_from=(place,))


def _head(place: Location, file: StoredFile, spec: RowsSpec) -> tuple[NumpyFormat, NumpyFile]:
    """Return the layout of a file, and where its rows begin."""
    name, what = "", f"array in {place.url!r}"
    if place.url.lower().endswith(".npz"):
        members = _members(place)
        name = spec.array or _only_matrix(members, place)
        _expect_member(members, name, place)
        (shape, fortran, dtype), what = members[name], f"array {name!r} in {place.url!r}"
    else:
        with explained(place, ".npy"):
            stream = io.BytesIO(retry(lambda: _first_bytes(place), place))
            shape, fortran, dtype = _header(stream)
    check_dtype(dtype, what=what)
    # A file without rows among others is left out.
    least = (max(1, shape[0]), *shape[1:]) if shape else shape
    check_shape(least, flatten=spec.flatten, what=what)
    n_rows, n_features = int(np.prod(shape[:-1])), int(shape[-1])
    n_bytes = n_rows * n_features * dtype.itemsize
    if fortran and (name or len(shape) > 2):
        offset = _PACKED
    elif name:
        with explained(place, ".npz"):
            offset = _offset_of(place, name, n_bytes)
    else:
        offset = stream.tell()
        if file.size != offset + n_bytes:
            raise InvalidDataError(
                f"{place.url!r} has {file.size} bytes where its header promises {offset + n_bytes}; write "
                "it again."
            )
    opened = NumpyFile(file.name, file.size, file.version, (n_rows,), offset, fortran)
    return NumpyFormat(n_features, dtype.str, name), opened


def _first_bytes(place: Location) -> Any:
    with open_file(place) as file:
        return file.read(_HEAD_BYTES)


def _offset_of(place: Location, name: str, n_bytes: int) -> int:
    """Return where the values of an array begin; `_PACKED` if they are compressed."""
    with open_file(place) as file, zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        return _PACKED
    start = entry.header_offset
    lengths = read_range(place, start, start + _LOCAL_HEADER)[-4:]
    # The values are what the header of the array leaves of the entry.
    return start + _LOCAL_HEADER + sum(struct.unpack("<HH", lengths)) + entry.file_size - n_bytes


_Headers = Mapping[str, tuple[tuple[int, ...], bool, np.dtype[Any]]]


def _members(place: Location) -> _Headers:
    """Return shape, Fortran order and dtype of the arrays of a .npz file, by name."""
    headers = {}
    with explained(place, ".npz"), open_file(place) as file, zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            with archive.open(member) as stream:
                headers[member.removesuffix(".npy")] = _header(stream)
    return headers


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _only_matrix(headers: _Headers, place: Location) -> str:
    """Return the name of the only matrix, or X."""
    matrices = [
        name
        for name, (shape, _, dtype) in headers.items()
        if len(shape) >= 2 and dtype.kind in "biuf"
    ]
    if len(matrices) == 1 or "X" in matrices:
        return "X" if "X" in matrices else matrices[0]
    raise InvalidDataError(
        f"{place.url!r} holds {len(matrices)} matrices; say which with array=. {_listed(headers)}"
    )


def _expect_member(headers: _Headers, name: str, place: Location) -> None:
    if name not in headers:
        raise InvalidDataError(f"There is no array {name!r} in {place.url!r}. {_listed(headers)}")


def _listed(headers: _Headers) -> str:
    return f"Arrays there: {', '.join(f'{name} {shape}' for name, (shape, *_) in headers.items())}."
