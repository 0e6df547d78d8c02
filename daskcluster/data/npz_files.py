"""Rows of .npz files, read in place: by ranges of bytes, or from the start where they are compressed."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import RowDataset
from daskcluster.data.listing import map_files
from daskcluster.data.memory import open_sparse
from daskcluster.data.npy_files import NpyFormat
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.row_files import RowFile, dataset_of, read_part, read_stream
from daskcluster.data.spec import RowsSpec, looks_like_path
from daskcluster.data.weighted import array_weights
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.storage.files import StoredFile, open_file, read_range
from daskcluster.storage.location import Location

_PACKED, _SPREAD = -1, -2
_LOCAL_HEADER = 30
"""Bytes of a zip entry's header before its name and extra field."""


@dataclass(frozen=True)
class NpzFile(RowFile):
    """A .npz file.

    Attributes
    ----------
    offset : int
        Byte at which the first row begins; -1 in a compressed archive, -2 in Fortran order.
    """

    offset: int = _PACKED


@dataclass(frozen=True)
class NpzFormat(NpyFormat):
    """An array of .npz files; see `RowFormat`.

    Attributes
    ----------
    array : str
    """

    array: str = ""
    kind = ".npz"

    def reads_in_order(self, file: Any) -> bool:
        return bool(file.offset < 0)

    def read(self, place: Location, file: NpzFile, first: int, last: int) -> np.ndarray:  # type: ignore[override]
        """Return rows of a file, shape (last - first, d)."""
        if file.offset < 0:
            return read_stream(self, place, file, first, last)
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        start = file.offset + first * row_bytes
        content = read_range(place, start, start + (last - first) * row_bytes)
        return self._rows(content, place, last - first)

    def decoded(
        self, place: Location, file: NpzFile, first: int, last: int
    ) -> Iterator[np.ndarray]:
        """Yield the rows of a file from its start, block by block; all at once in Fortran order."""
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        with (
            open_file(place) as stream,
            zipfile.ZipFile(stream) as archive,
            archive.open(f"{self.array}.npy") as member,
        ):
            if file.offset == _SPREAD:
                values = np.lib.format.read_array(member, allow_pickle=False)
                yield values.reshape(-1, self.n_features)
                return
            _npy_header(member)
            step = max(1, READ_BYTES // row_bytes)
            for start in range(first, last, step):
                n_rows = min(step, last - start)
                yield self._rows(member.read(n_rows * row_bytes), place, n_rows)

    def _rows(self, content: bytes, place: Location, n_rows: int) -> np.ndarray:
        if len(content) != n_rows * self.n_features * np.dtype(self.dtype).itemsize:
            raise InvalidDataError(
                f"The file {place.url!r} was replaced since the dataset was opened; open it again and "
                "restart."
            )
        return np.frombuffer(content, self.dtype).reshape(n_rows, self.n_features)


def open_npz_files(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open an array of .npz files; without `array`, the only matrix, or the one called X.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError

    Notes
    -----
    Cost: the directory and the headers of each file are read. An array that `numpy.savez_compressed` wrote
    is decoded by one thread from its start, one in Fortran order as a whole, and so is a sparse matrix.
    """
    places = [location.child(file.name) if file.name else location for file in files]
    if len(files) == 1 and {"data", "format", "shape"} <= set(members_of(places[0])):
        return _open_scipy(places[0], spec)
    heads = map_files(lambda at: _head(places[at], files[at], spec), range(len(files)))
    (form, _), opened = heads[0], []
    for place, (found, file) in zip(places, heads, strict=True):
        if found != form:
            raise InvalidDataError(
                f"{place.url!r} has rows of {found.n_features} x {found.dtype} in {found.array!r}, where "
                f"{places[0].url!r} has {form.n_features} x {form.dtype} in {form.array!r}; files of one "
                "dataset need the same: write it again, or leave it out."
            )
        opened.append(file)
    dataset: RowDataset = dataset_of(location, opened, form)
    name = spec.weights
    if name is not None and not looks_like_path(name):
        parts = []
        for place in places:
            expect_member(members_of(place), name, place)
            with open_file(place) as stream, np.load(stream, allow_pickle=False) as archive:
                parts.append(archive[name])
        dataset = dataset.with_weights(array_weights(np.concatenate(parts), dataset.n_rows))
        dataset.weights_column = name
    return dataset


def _open_scipy(place: Location, spec: RowsSpec) -> RowDataset:
    """Open a matrix that `scipy.sparse.save_npz` wrote; it is loaded whole."""
    from scipy.sparse import load_npz

    if spec.array is not None or spec.weights is not None:
        raise InvalidParameterError(
            f"{place.url!r} holds one sparse matrix and nothing else; leave array= and weights= out."
        )
    with open_file(place) as file:
        dataset = open_sparse(load_npz(file))
    dataset.read_from = (place,)
    return dataset


def _head(place: Location, file: StoredFile, spec: RowsSpec) -> tuple[NpzFormat, NpzFile]:
    members = members_of(place)
    name = spec.array or only_matrix(members, place)
    expect_member(members, name, place)
    shape, fortran, dtype = members[name]
    check_shape(shape, flatten=spec.flatten, what=f"array {name!r} in {place.url!r}")
    check_dtype(dtype, what=f"array {name!r} in {place.url!r}")
    n_rows, n_features = int(np.prod(shape[:-1])), int(shape[-1])

    def find(place: Location, _file: Any, first: int, last: int) -> int:
        return _SPREAD if fortran else _offset_of(place, name, n_rows * n_features * dtype.itemsize)

    offset = read_part(find, place, RowFile(file.name, file.size, file.version), 0, 0)
    form = NpzFormat(n_features, dtype.str, name)
    return form, NpzFile(file.name, file.size, file.version, (n_rows,), offset=offset)


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


def members_of(location: Location) -> dict[str, tuple[tuple[int, ...], bool, np.dtype[Any]]]:
    """Return shape, Fortran order and dtype of the arrays of a .npz file, by name."""
    headers = {}
    try:
        with open_file(location) as file, zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                with archive.open(member) as stream:
                    headers[member.removesuffix(".npy")] = _npy_header(stream)
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise InvalidDataError(
            f"{location.url!r} is no readable .npz file ({error}); write it again with numpy.savez."
        ) from error
    return headers


def _npy_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def only_matrix(headers: Mapping[str, Any], location: Location) -> str:
    """Return the name of the only matrix, or X."""
    matrices = [
        name
        for name, (shape, _, dtype) in headers.items()
        if len(shape) >= 2 and dtype.kind in "biuf"
    ]
    if len(matrices) == 1 or "X" in matrices:
        return "X" if "X" in matrices else matrices[0]
    raise InvalidDataError(
        f"{location.url!r} holds {len(matrices)} matrices; say which with array=. {_listed(headers)}"
    )


def expect_member(headers: Mapping[str, Any], name: str, location: Location) -> None:
    """Refuse the name of an array that is not there."""
    if name not in headers:
        raise InvalidDataError(
            f"There is no array {name!r} in {location.url!r}. {_listed(headers)}"
        )


def _listed(headers: Mapping[str, Any]) -> str:
    return (
        "Arrays there: "
        + ", ".join(f"{name} {shape}" for name, (shape, _, _) in headers.items())
        + "."
    )
