"""Arrays of a .npz file, streamed from the zip archive without unpacking it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from daskcluster.data.checks import check_dtype, check_shape
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import open_sparse
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.table import Block, Table, open_binary
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.storage.location import Location


def npz_table(location: Location, name: str | None, weights: str | None, *, flatten: bool) -> Table:
    """Open an array of a .npz file; without `name`, its only matrix or the one called X.

    Raises
    ------
    InvalidDataError
        No zip file, no such array, wrong shape or dtype.
    InvalidParameterError
        Weights that do not match the rows.
    """
    headers = members_of(location)
    name = name or only_matrix(headers, location)
    expect_member(headers, name, location)
    shape, fortran, dtype = headers[name]
    check_shape(shape, flatten=flatten, what=f"array {name!r} in {location.url!r}")
    check_dtype(dtype, what=f"array {name!r} in {location.url!r}")
    n_rows, width = int(np.prod(shape[:-1])), shape[-1]
    row_weights = None
    if weights is not None:
        expect_member(headers, weights, location)
        row_weights = _whole(location, weights)

    def blocks() -> Iterator[Block]:
        start = 0
        for rows in _blocks(location, name, width, dtype, fortran):
            part = None if row_weights is None else row_weights[start : start + len(rows)]
            yield rows, part
            start += len(rows)

    if row_weights is not None and row_weights.shape != (n_rows,):
        raise InvalidParameterError(
            f"sample_weight.shape == {row_weights.shape}, expected {(n_rows,)}! The array {weights!r} "
            "should hold one weight for every row."
        )
    return Table(n_rows, width, dtype, row_weights is not None, blocks)


def is_sparse_npz(location: Location) -> bool:
    """Return True for a matrix that `scipy.sparse.save_npz` wrote."""
    return {"data", "format", "shape"} <= set(members_of(location))


def open_sparse_npz(location: Location, name: str | None, weights: str | None) -> RowDataset:
    """Open a matrix that `scipy.sparse.save_npz` wrote; it is loaded whole.

    Raises
    ------
    InvalidParameterError
        An array or weights are asked for, of which the file has none.
    """
    from scipy.sparse import load_npz

    if name is not None or weights is not None:
        raise InvalidParameterError(
            f"{location.url!r} holds one sparse matrix and nothing else; leave array= and weights= "
            "out."
        )
    with open_binary(location) as file:
        return open_sparse(load_npz(file))


def members_of(location: Location) -> dict[str, tuple[tuple[int, ...], bool, np.dtype[Any]]]:
    """Return shape, Fortran order and dtype of the arrays of a .npz file, by name."""
    headers = {}
    try:
        with open_binary(location) as file, zipfile.ZipFile(file) as archive:
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


def _whole(location: Location, name: str) -> np.ndarray:
    with open_binary(location) as file:
        return np.asarray(np.load(file, allow_pickle=False)[name])


def _blocks(
    location: Location, name: str, width: int, dtype: np.dtype[Any], fortran: bool
) -> Iterator[np.ndarray]:
    if fortran:  # its rows are spread over the whole stream
        yield _whole(location, name).reshape(-1, width)
        return
    row_bytes = width * dtype.itemsize
    block_bytes = max(1, READ_BYTES // row_bytes) * row_bytes
    with (
        open_binary(location) as file,
        zipfile.ZipFile(file) as archive,
        archive.open(f"{name}.npy") as stream,
    ):
        _npy_header(stream)
        while content := stream.read(block_bytes):
            yield np.frombuffer(content, dtype).reshape(-1, width)
