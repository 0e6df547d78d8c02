"""Rows of .npy files in a bucket, or of several files: read by ranges of bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.array import mapped_npy
from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import RowDataset
from daskcluster.data.listing import map_files
from daskcluster.data.partitions import cut_rows
from daskcluster.data.row_files import RowFile, dataset_of
from daskcluster.data.spec import RowsSpec
from daskcluster.errors import DaskClusterError, InvalidDataError
from daskcluster.storage.files import StoredFile, open_file, read_range
from daskcluster.storage.location import Location, explain
from daskcluster.storage.retry import is_passing, retry

_HEAD_BYTES = 1 << 12


@dataclass(frozen=True)
class NpyFormat:
    """Layout of rows in .npy files: in C order, after a header; see `RowFormat`.

    Attributes
    ----------
    n_features : int
    dtype : str
    """

    n_features: int
    dtype: str
    kind = ".npy"

    def cuts(self, file: RowFile) -> np.ndarray:
        return cut_rows(file.n_rows, self.n_features * np.dtype(self.dtype).itemsize)

    def reads_in_order(self, file: RowFile) -> bool:
        return False

    def read(self, place: Location, file: RowFile, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d)."""
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        # The header is what the rows leave of the file.
        start = file.size - (file.n_rows - first) * row_bytes
        n_bytes = (last - first) * row_bytes
        if place.is_local:
            rows = np.fromfile(
                place.url,
                self.dtype,
                n_bytes // max(1, np.dtype(self.dtype).itemsize),
                offset=start,
            )
        else:
            rows = np.frombuffer(read_range(place, start, start + n_bytes), self.dtype)
        if rows.nbytes != n_bytes:
            raise InvalidDataError(
                f"The file {place.url!r} was replaced since the dataset was opened; open it again and "
                "restart."
            )
        return rows.reshape(-1, self.n_features)


def open_npy_files(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open .npy files; one on a local disk is mapped into memory.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError
    """
    places = [location.child(file.name) if file.name else location for file in files]
    if len(files) == 1 and location.is_local:
        return _mapped(places[0], flatten=spec.flatten)
    heads = map_files(lambda place: _head(place, flatten=spec.flatten), places)
    (shape, dtype, _), opened = heads[0], []
    for file, place, (found, kind, offset) in zip(files, places, heads, strict=True):
        if (found[1], kind) != (shape[1], dtype):
            raise InvalidDataError(
                f"{place.url!r} has rows of {found[1]} x {kind}, where {places[0].url!r} has {shape[1]} x "
                f"{dtype}; files of one dataset need the same: write it again, or leave it out."
            )
        expected = offset + found[0] * found[1] * np.dtype(kind).itemsize
        if file.size != expected:
            raise InvalidDataError(
                f"{place.url!r} has {file.size} bytes where its header promises {expected}; write it again."
            )
        opened.append(RowFile(file.name, file.size, file.version, (found[0],)))
    return dataset_of(location, opened, NpyFormat(shape[1], dtype))


def _mapped(place: Location, *, flatten: bool) -> RowDataset:
    def check(array: np.ndarray) -> None:
        check_dtype(array.dtype, what=f"array in {place.url!r}")
        check_shape(array.shape, flatten=flatten, what=f"array in {place.url!r}")

    return mapped_npy(place.url, check).open()


def _head(place: Location, *, flatten: bool) -> tuple[tuple[int, int], str, int]:
    """Return the shape (rows, features), the dtype and the length of the header of a file."""
    try:
        head = retry(lambda: _first_bytes(place), place)
        stream = io.BytesIO(head)
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(stream)
    except DaskClusterError:
        raise
    except Exception as error:  # numpy's, and those of clouds' clients
        if isinstance(error, (FileNotFoundError, PermissionError)) or is_passing(error):
            raise explain(error, place, "file") from error
        raise InvalidDataError(
            f"{place.url!r} is no readable .npy file ({error}); write it again with numpy.save, "
            "without objects."
        ) from error
    what = f"array in {place.url!r}"
    n_rows = shape[0] if shape else 0
    check_dtype(dtype, what=what)
    # A file without rows among others is left out.
    check_shape((max(1, n_rows), *shape[1:]) if shape else shape, flatten=flatten, what=what)
    if fortran and len(shape) > 1:
        raise InvalidDataError(
            f"{place.url!r} is in Fortran order, in which rows are not contiguous; write it in C order "
            "with numpy.ascontiguousarray."
        )
    rows = int(np.prod(shape[:-1]))
    return (rows, int(shape[-1])), np.dtype(dtype).str, stream.tell()


def _first_bytes(place: Location) -> Any:
    with open_file(place) as file:
        return file.read(_HEAD_BYTES)
