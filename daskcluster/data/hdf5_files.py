"""Rows in HDF5 files, also of AnnData (.h5ad): dense arrays and CSR matrices, read in place."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.data.anndata import ROW_NAMES, path_of_names, read_names, stored_names
from daskcluster.data.checks import check_dtype, check_shape, frame_dtype
from daskcluster.data.csr import CsrLayout, canonical, check_structure
from daskcluster.data.dataset import RowDataset
from daskcluster.data.grid import Decoding
from daskcluster.data.memory import open_array_like, open_sparse
from daskcluster.data.partitions import cut_rows
from daskcluster.data.row_files import (
    FilesDataset,
    FilesRecipe,
    RowFile,
    dataset_of,
    explained,
    places_of,
    read_part,
    refuse_other_layouts,
    replaced,
    with_array_weights,
)
from daskcluster.data.spec import RowsSpec
from daskcluster.data.zarr import PARTS, csr_arrays, row_edges
from daskcluster.errors import (
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
)
from daskcluster.extras import import_extra, import_pyarrow
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows, join_rows
from daskcluster.storage.files import StoredFile, match_files, open_file
from daskcluster.storage.location import Location, locate


class SparseFilesDataset(FilesDataset):
    """CSR rows of files of one kind, one file after another.

    Parameters
    ----------
    recipe : FilesRecipe
        Its format has, in addition to those of `FilesRecipe`, ``indptr(place, file)`` and
        ``entries(place, file, first, last)``, which returns values `first` to `last` and their columns.

    Notes
    -----
    Cost: ``indptr`` is read when the dataset is opened, and kept: 8 bytes a row.
    """

    def __init__(self, recipe: FilesRecipe) -> None:
        self._recipe, self.form = recipe, recipe.form
        self._indptr_of = {file.name: self._read_indptr(file) for file in recipe.files}
        counts = np.concatenate([np.diff(part) for part in self._indptr_of.values()])
        entry_bytes = np.dtype(self.form.dtype).itemsize + INDEX_DTYPE.itemsize
        indptr = np.append(0, np.cumsum(counts)).astype(np.int64)
        super().__init__(recipe, CsrLayout(indptr, entry_bytes))

    def _cuts(self, file: RowFile) -> np.ndarray:
        return row_edges(self._indptr_of[file.name], max(1, self.form.chunk_rows))

    def _read_indptr(self, file: RowFile) -> np.ndarray:
        def read(place: Location, file: RowFile, first: int, last: int) -> np.ndarray:
            indptr, n_data, n_indices = self.form.indptr(place, file)
            shape = file.n_rows, self.form.n_features
            check_structure(indptr, n_data, n_indices, shape, f"The CSR matrix in {place.url!r}")
            return np.asarray(indptr)

        found: np.ndarray = read_part(read, self.place_of(file), file, 0, file.n_rows)
        return found

    def fetch(self, start: int, stop: int) -> Any:
        return join_rows(self._of_files(start, stop, self._read_rows))

    def _read_rows(self, place: Location, file: RowFile, first: int, last: int) -> SparseRows:
        indptr = self._indptr_of[file.name][first : last + 1]
        data, indices = self.form.entries(place, file, int(indptr[0]), int(indptr[-1]))
        rows = SparseRows(data, indices, indptr, self.n_features)
        return canonical(rows, first, repr(place.url))


@dataclass(frozen=True)
class Hdf5Format:
    """An array (n, d) of HDF5 files; see `FilesRecipe`.

    Attributes
    ----------
    array : str
        Its path in each file.
    n_features : int
    dtype : str
    chunk_rows : int
        Rows of a storage chunk; 0 if the array is contiguous.
    names : str or None
        Path of the array of the rows' names, if there is one: of an AnnData its ``obs_names``.
    decoding : Decoding, optional
    """

    array: str
    n_features: int
    dtype: str
    chunk_rows: int
    names: str | None = None
    decoding: Decoding | None = None
    kind = "HDF5"

    @property
    def id_column(self) -> str | None:
        return None if self.names is None else ROW_NAMES

    def cuts(self, file: RowFile) -> np.ndarray:
        if not self.chunk_rows:
            return cut_rows(file.n_rows, self.n_features * np.dtype(self.dtype).itemsize)
        return np.append(np.arange(0, file.n_rows, self.chunk_rows), file.n_rows)

    def reads_in_order(self, file: RowFile) -> bool:
        return False

    def read(self, place: Location, file: RowFile, first: int, last: int) -> np.ndarray:
        """Return rows of a file, shape (last - first, d)."""
        with opened(place) as content:
            array = content[self.array]
            *outer, width = array.shape
            if (math.prod(outer), width) != (file.n_rows, self.n_features):
                raise replaced(place)
            inner = math.prod(outer[1:])  # rows of one position along the first axis
            start = first // inner
            rows: np.ndarray = array[start : -(-last // inner)].reshape(-1, width)
            rows = rows[first - start * inner : last - start * inner]
            return rows if self.decoding is None else self.decoding.apply(rows)

    def read_ids(self, place: Location, file: RowFile, first: int, last: int) -> Any:
        """Return the names of rows, an Arrow chunked array."""
        with opened(place) as content:
            names = read_names(content[self.names], slice(first, last))
        pa = import_pyarrow()
        return pa.chunked_array([pa.array(names.tolist(), pa.string())])


@dataclass(frozen=True)
class Hdf5CsrFormat(Hdf5Format):
    """A CSR matrix (n, d) of HDF5 files, in AnnData's layout; see `SparseFilesDataset`."""

    @property
    def dataset(self) -> Any:
        return SparseFilesDataset

    def indptr(self, place: Location, file: RowFile) -> tuple[np.ndarray, int, int]:
        """Return where each row's values begin, int64, and the lengths of the values and the columns."""
        with opened(place) as content:
            node = content[self.array]
            lengths = node["data"].shape[0], node["indices"].shape[0]
            return node["indptr"][:].astype(np.int64), *lengths

    def entries(
        self, place: Location, file: RowFile, first: int, last: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return values `first` to `last` and their columns."""
        with opened(place) as content:
            node = content[self.array]
            data, indices = node["data"][first:last], node["indices"][first:last]
        if indices.dtype != np.int32:
            indices = indices.astype(np.int64)
        return data.astype(data.dtype.newbyteorder("="), copy=False), indices


@dataclass(frozen=True)
class Hdf5FrameFormat(Hdf5Format):
    """Columns of numbers of a frame in HDF5 files, in AnnData's layout; see `FilesRecipe`.

    Attributes
    ----------
    columns : tuple of str
    """

    columns: tuple[str, ...] = ()

    def read(self, place: Location, file: RowFile, first: int, last: int) -> np.ndarray:
        with opened(place) as content:
            return _frame_rows(content[self.array], self.columns, self.dtype, slice(first, last))


@contextmanager
def opened(place: Location) -> Iterator[Any]:
    """Open an HDF5 file for reading."""
    h5py = import_extra("h5py", "hdf5", "HDF5 files need h5py")
    if place.is_local:
        with h5py.File(place.url, "r") as content:
            yield content
        return
    with open_file(place) as stream, h5py.File(stream, "r") as content:
        yield content


def open_hdf5(location: Location, files: Sequence[StoredFile], spec: RowsSpec) -> RowDataset:
    """Open an array or a CSR matrix of HDF5 files.

    Parameters
    ----------
    location : Location
    files : sequence of StoredFile
    spec : RowsSpec
        Its array is a path in the files. Default: ``X``, or the only array of two axes.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, MissingExtraError
    """
    heads: list[tuple[Hdf5Format, RowFile]] = []
    form: Hdf5Format
    features: list[tuple[str, ...] | None] = []
    places = places_of(location, files)
    decoded: bool | None = None
    for file, place in zip(files, places, strict=True):
        with explained(place, "HDF5"), opened(place) as content:
            name = _array_name(content, spec.array, repr(place.url))
            node = content[name]
            names: tuple[str, ...] | None = None
            if node.attrs.get("encoding-type") == "dataframe":
                names, dtype, n_rows, chunk = _frame_layout(node, f"{name!r} in {place.url!r}")
                of_rows = path_of_names(content, "obs", n_rows)
                form = Hdf5FrameFormat(name, len(names), dtype, chunk, of_rows, columns=names)
            elif not hasattr(node, "shape"):
                form, n_rows = _csr_format(content, name, place)
            else:
                what = f"array {name!r} in {place.url!r}"
                check_sources(node, place.url)
                check_shape(node.shape, flatten=spec.flatten, what=what)
                check_dtype(node.dtype, what=what)
                decoding, decoded = Decoding.of(node, place.url, spec.decode)
                *outer, width = node.shape
                n_rows = math.prod(outer)
                form = Hdf5Format(
                    name,
                    width,
                    node.dtype.str if decoding is None else decoding.dtype,
                    math.prod((node.chunks[0], *outer[1:])) if node.chunks else 0,
                    path_of_names(content, "obs", n_rows),
                    decoding,
                )
            features.append(names or stored_names(content, name, form.n_features))
            heads.append((form, RowFile(file.name, file.size, file.version, (n_rows,))))
    first = heads[0][0]
    refuse_other_layouts(places, [form for form, _ in heads])
    for names, file in zip(features, files, strict=True):
        if names is not None and features[0] is not None and names != features[0]:
            raise InvalidDataError(
                f"{file.name!r} has other features than {files[0].name!r}, or has them in another order; "
                "give all files the same var_names, e.g. with anndata.concat, or leave it out."
            )
    dataset = dataset_of(location, [row_file for _, row_file in heads], first)
    dataset = dataset.with_facts(feature_names=features[0], decoded=decoded)

    def read(place: Location, name: str) -> np.ndarray:
        with explained(place, "HDF5"), opened(place) as content:
            weights: np.ndarray = content[_array_name(content, name, repr(place.url))][()]
            return weights

    return with_array_weights(dataset, spec, places, read)


def open_hdf5_object(node: Any, spec: RowsSpec) -> RowDataset:
    """Open a dataset of h5py, or an array or a CSR matrix of its file or group, as by their path.

    It is read in place, from a file that is open for reading alone. What can still be written, and what is
    in no file on a disk, is read into memory.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, InvalidParameterError
    """
    name, array = array_of(node, spec.array)
    path = node.file.filename
    if name and node.file.mode == "r" and isinstance(path, str) and os.path.isfile(path):
        location, files = match_files(locate(path))
        return open_hdf5(location, files, replace(spec, array=name))
    if array.attrs.get("encoding-type") == "dataframe":
        columns, dtype, _, _ = _frame_layout(array, f"{name!r} in {path!r}")
        rows = _frame_rows(array, columns, dtype, slice(None))
        return open_array_like(rows, spec).with_facts(feature_names=columns)
    if not hasattr(array, "shape"):
        from scipy.sparse import csr_array

        _, _, shape = csr_arrays(array, f"{name!r} of {path!r}")
        data, indices, indptr = (array[part][:] for part in PARTS)
        dataset: RowDataset = open_sparse(csr_array((data, indices, indptr), shape))
        return dataset.with_facts(feature_names=stored_names(node.file, name, shape[1]))
    check_dtype(array.dtype, what=f"array {name!r} in {path!r}")
    check_sources(array, path)
    decoding, decoded = Decoding.of(array, path, spec.decode)
    dataset = open_array_like(array[()] if decoding is None else decoding.apply(array[()]), spec)
    names = stored_names(node.file, name, dataset.n_features)
    return dataset.with_facts(decoded=decoded, feature_names=names)


def array_of(node: Any, wanted: str | None) -> tuple[str, Any]:
    """Return the path in its file, and the node, of a dataset of h5py, or of the rows of a group.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, InvalidParameterError
    """
    where = repr(node.file.filename)
    if hasattr(node, "shape") or node.attrs.get("encoding-type") in ("csr_matrix", "dataframe"):
        if wanted is not None:
            raise InvalidParameterError(
                f"array={wanted!r} was given, but {node.name!r} of {where} is itself an array; leave "
                "array= out."
            )
        return (node.name or "").strip("/"), node
    inner = _array_name(node, wanted or None, where)
    return f"{node.name}/{inner}".strip("/"), node[inner]


def check_sources(array: Any, path: Any) -> None:
    """Refuse a dataset that has none of its chunks, or as a virtual one of its files; warn of missing ones.

    HDF5 reads rows that are not there as the fill value.

    Parameters
    ----------
    array : h5py.Dataset
    path : str or object
        Path or URL of its file, which relative names start from; other files are found on a disk alone.

    Raises
    ------
    InvalidDataError
    """
    if not array.is_virtual:
        _check_chunks(array, path)
        return
    # A block number in a name, such as %b, stands for a number of files that is not known.
    named = {each.file_name for each in array.virtual_sources() if "%" not in each.file_name}
    folders: list[str] = []  # in which HDF5 looks
    if isinstance(path, str) and os.path.isfile(path):
        given = os.environ.get("HDF5_VDS_PREFIX", "").split(os.pathsep)
        folders = [os.path.dirname(path), "", *filter(None, given)]
    lost = sorted(
        name
        for name in named - {"."}
        if not any(
            os.path.exists(os.path.join(folder, each))
            for folder in folders
            for each in (name, os.path.basename(name))
        )
    )
    if not lost:
        _check_mapping(array, folders, path)
        return
    shown = ", ".join(map(repr, lost[:_MOST_NAMED])) + (" ..." if len(lost) > _MOST_NAMED else "")
    text = (
        f"The virtual array {array.name!r} in {path!r} lacks {len(lost)} of its {len(named)} files, whose "
        f"rows read as its fill value {array.fillvalue}: {shown}. "
    )
    if len(lost) == len(named):
        raise InvalidDataError(f"{text}Put them where the array names them, or create it again.")
    warnings.warn(
        f"{text}Put them where the array names them, or leave their rows out.",
        UserWarning,
        stacklevel=6,
    )


_MOST_NAMED = 5


def _check_chunks(array: Any, path: Any) -> None:
    """Refuse an array on a disk without a single chunk; warn of one that lacks some."""
    if not array.chunks or not array.size or not (isinstance(path, str) and os.path.isfile(path)):
        return
    steps = zip(array.shape, array.chunks, strict=True)
    expected, present = math.prod(-(-n // step) for n, step in steps), array.id.get_num_chunks()
    if present >= expected:
        return
    what = f"The array {array.name!r} in {path!r}"
    if present == 0:
        raise InvalidDataError(
            f"{what} has none of its {expected} chunks: it was created but not written. Run its writer to "
            "the end."
        )
    warnings.warn(
        f"{what} lacks {expected - present} of {expected} chunks, which read as its fill value "
        f"{array.fillvalue}. If its writer was stopped, write it again.",
        UserWarning,
        stacklevel=7,
    )


def _check_mapping(array: Any, folders: Sequence[str], path: Any) -> None:
    """Refuse a virtual dataset of arrays that its files lack; warn of values that no file has."""
    sources = array.virtual_sources()
    mapped = sum(each.vspace.get_select_npoints() for each in sources)
    if mapped < array.size and None not in array.maxshape:
        warnings.warn(
            f"The virtual array {array.name!r} in {path!r} has {array.size - mapped} of {array.size} "
            f"values in no file, which read as its fill value {array.fillvalue}.",
            UserWarning,
            stacklevel=7,
        )
    for file in sorted({each.file_name for each in sources if "%" not in each.file_name}):
        names = {each.dset_name for each in sources if each.file_name == file}
        with ExitStack() as stack:
            inner, where = array.file, path
            if file != ".":
                near = (os.path.join(folder, file) for folder in folders)
                found = next(filter(os.path.exists, near), None)
                if found is None:  # its base name was found elsewhere
                    continue
                inner, where = stack.enter_context(type(inner)(found, "r")), found
            for name in sorted(names):
                if name not in inner:
                    raise InvalidDataError(
                        f"The virtual array {array.name!r} reads {name!r} of {where!r}, which is not "
                        "there; its rows would be the fill value. Write it, or create the virtual array "
                        "again."
                    )
                check_sources(inner[name], where)


def _array_name(content: Any, wanted: str | None, where: str) -> str:
    found: dict[str, str] = {}

    def note(name: str, node: Any) -> None:
        if len(getattr(node, "shape", None) or ()) >= 2:  # None: of an empty dataset
            found[name] = f"{' x '.join(map(str, node.shape))} {node.dtype}"
        elif getattr(node, "attrs", {}).get("encoding-type") == "csr_matrix":
            found[name] = "CSR"

    content.visititems(note)
    for group in ("", "obsm/", "layers/"):
        if wanted is not None and group + wanted.strip("/") in content:
            return group + wanted.strip("/")
    arrays = ", ".join(f"{name} ({what})" for name, what in found.items()) or "none"
    if wanted is not None:
        raise DatasetNotFoundError(
            f"There is no array {wanted!r} in {where}; arrays there: {arrays}."
        )
    if wanted is None and "X" in content:
        return "X"
    if len(found) == 1:
        return next(iter(found))
    raise InvalidDataError(
        f"{where} holds several arrays, or none of rows; say which with array= (--array). Arrays there: "
        f"{arrays}."
    )


def _frame_layout(node: Any, what: str) -> tuple[tuple[str, ...], str, int, int]:
    """Return the names of the columns of a frame, the dtype of its rows, their number and chunk.

    Raises
    ------
    InvalidDataError
        A column that holds no numbers.
    """
    names = tuple(map(str, node.attrs.get("column-order", ())))
    columns = {name: node[name] for name in names}
    parts = {name: _values_and_mask(column) for name, column in columns.items()}
    kinds = {
        name: columns[name].attrs.get("encoding-type", "group") if values is None else values.dtype
        for name, (values, _) in parts.items()
    }
    bad = [
        f"{name!r} ({kind})"
        for name, kind in kinds.items()
        if getattr(kind, "kind", "O") not in "biuf"
    ]
    if bad or not names:
        raise InvalidDataError(
            f"The frame {what} has {'columns that are no real numbers: ' if bad else 'no columns'}"
            f"{', '.join(bad[:10])}; write its numbers alone as a frame, or as a dense array."
        )
    dtypes = [kinds[name].newbyteorder("=") for name in names]
    is_masked = any(mask is not None for _, mask in parts.values())
    dtype = frame_dtype(dtypes) if is_masked or len(set(dtypes)) > 1 else dtypes[0]
    first = parts[names[0]][0]
    return names, dtype.str, first.shape[0], first.chunks[0] if first.chunks else 0


def _values_and_mask(column: Any) -> tuple[Any, Any]:
    """Return the values of a column of a frame, and which are missing if it says; None: no plain column."""
    if hasattr(column, "shape"):
        return column, None
    if str(column.attrs.get("encoding-type")) in ("nullable-integer", "nullable-boolean"):
        return column["values"], column["mask"]
    return None, None


def _frame_rows(node: Any, columns: Sequence[str], dtype: str, span: slice) -> np.ndarray:
    """Return rows of a frame, shape (m, d), with NaN where a value is missing."""
    found = []
    for name in columns:
        values, mask = _values_and_mask(node[name])
        column = values[span].astype(dtype)
        if mask is not None:
            column[mask[span]] = np.nan
        found.append(column)
    return np.stack(found, axis=1)


def _csr_format(content: Any, name: str, place: Location) -> tuple[Hdf5Format, int]:
    """Return the layout of a CSR matrix and its number of rows."""
    node = content[name]
    if node.attrs.get("encoding-type") != "csr_matrix":
        kind = node.attrs.get("encoding-type", "group")
        raise InvalidDataError(
            f"{place.url!r} holds a {kind} where rows are needed; write a CSR matrix, e.g. with scipy's "
            "tocsr(), or a dense array."
        )
    data, _, (n_rows, n_features) = csr_arrays(node, f"{name!r} of {place.url!r}")
    for part in PARTS:
        check_sources(node[part], place.url)
    chunk = data.chunks[0] if data.chunks else 0
    dtype = data.dtype.newbyteorder("=").str
    return Hdf5CsrFormat(
        name, n_features, dtype, chunk, path_of_names(content, "obs", n_rows)
    ), n_rows
