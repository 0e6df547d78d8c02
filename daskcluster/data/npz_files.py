"""Rows of .npz files, read in place: by ranges of bytes, or whole where they are compressed."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import RowDataset
from daskcluster.data.listing import map_files
from daskcluster.data.npy_files import NpyFormat
from daskcluster.data.npz import expect_member, is_sparse_npz, members_of, only_matrix
from daskcluster.data.row_files import RowFile, dataset_of, read_part
from daskcluster.data.spec import RowsSpec
from daskcluster.data.table import open_binary
from daskcluster.errors import InvalidDataError
from daskcluster.storage.files import StoredFile, open_file, read_range
from daskcluster.storage.location import Location

_LOCAL_HEADER = 30
"""Bytes of a zip entry's header before its name and extra field."""


@dataclass(frozen=True)
class NpzFile(RowFile):
    """A .npz file.

    Attributes
    ----------
    offset : int
        Byte at which the first row begins; -1 in a compressed archive.
    """

    offset: int = -1


@dataclass(frozen=True)
class NpzFormat(NpyFormat):
    """An array of .npz files; see `RowFormat`.

    Attributes
    ----------
    array : str
    """

    array: str = ""
    kind = ".npz"

    def cuts(self, file: NpzFile) -> np.ndarray:  # type: ignore[override]
        # What is compressed is decoded from its start.
        return super().cuts(file) if file.offset >= 0 else np.array([0, file.n_rows])

    def read(self, place: Location, file: NpzFile, first: int, last: int) -> np.ndarray:  # type: ignore[override]
        """Return rows of a file, shape (last - first, d)."""
        if file.offset < 0:
            with open_file(place) as stream, np.load(stream, allow_pickle=False) as archive:
                whole = archive[self.array].reshape(-1, self.n_features)
            if len(whole) == file.n_rows:
                rows: np.ndarray = whole[first:last]
                return rows
        else:
            row_bytes = self.n_features * np.dtype(self.dtype).itemsize
            start = file.offset + first * row_bytes
            content = read_range(place, start, start + (last - first) * row_bytes)
            if len(content) == (last - first) * row_bytes:
                return np.frombuffer(content, self.dtype).reshape(-1, self.n_features)
        raise InvalidDataError(
            f"The file {place.url!r} was replaced since the dataset was opened; open it again and restart."
        )


def open_npz_files(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open an array of .npz files; without `array`, the only matrix, or the one called X.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError

    Notes
    -----
    Cost: the directory and a header of each file are read. An array that `numpy.savez_compressed` wrote is
    decoded as a whole by each read.
    """
    places = [location.child(file.name) if file.name else location for file in files]
    if len(files) == 1 and is_sparse_npz(places[0]):
        raise InvalidDataError(
            f"{places[0].url!r} is not read in place; turn it into Zarr once with: daskcluster convert "
            f"{places[0].url} OUTPUT.zarr"
        )
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
    return dataset_of(location, opened, form)


def _head(place: Location, file: StoredFile, spec: RowsSpec) -> tuple[NpzFormat, NpzFile]:
    members = members_of(place)
    name = spec.array or only_matrix(members, place)
    expect_member(members, name, place)
    shape, fortran, dtype = members[name]
    check_shape(shape, flatten=spec.flatten, what=f"array {name!r} in {place.url!r}")
    check_dtype(dtype, what=f"array {name!r} in {place.url!r}")
    n_rows, n_features = int(np.prod(shape[:-1])), int(shape[-1])

    def find(place: Location, _file: Any, first: int, last: int) -> int:
        return -1 if fortran else _offset_of(place, name, n_rows * n_features * dtype.itemsize)

    offset = read_part(find, place, RowFile(file.name, file.size, file.version), 0, 0)
    form = NpzFormat(n_features, dtype.str, name)
    return form, NpzFile(file.name, file.size, file.version, (n_rows,), offset=offset)


def _offset_of(place: Location, name: str, n_bytes: int) -> int:
    """Return where the values of an array begin; -1 if they are compressed."""
    with open_binary(place) as file, zipfile.ZipFile(file) as archive:
        entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        return -1
    start = entry.header_offset
    lengths = read_range(place, start, start + _LOCAL_HEADER)[-4:]
    # The values are what the header of the array leaves of the entry.
    return start + _LOCAL_HEADER + sum(struct.unpack("<HH", lengths)) + entry.file_size - n_bytes
