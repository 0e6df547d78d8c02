"""CSR rows in files, e.g. HDF5: read in place by ranges of their stored values."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.data.row_files import FilesDataset, FilesRecipe, RowFile, read_part
from daskcluster.data.sparse import SparseDataset, canonical, check_structure
from daskcluster.data.sparse_zarr import row_edges
from daskcluster.data.zarr import LOCAL_READERS, REMOTE_READERS
from daskcluster.sparse_rows import INDEX_DTYPE, SparseRows, join_rows
from daskcluster.storage.location import Location
from daskcluster.typing import Visibility


class SparseFilesDataset(FilesDataset, SparseDataset):
    """CSR rows of files of one kind, one file after another.

    Parameters
    ----------
    recipe : FilesRecipe
        Its format has, in addition to those of `RowFormat`, ``indptr(place, file)`` and
        ``entries(place, file, first, last)``, which returns values `first` to `last` and their columns.

    Notes
    -----
    Cost: ``indptr`` is read when the dataset is opened, and kept: 8 bytes a row.
    """

    def __init__(self, recipe: FilesRecipe) -> None:
        self._recipe = recipe
        self.files, self.form = recipe.files, recipe.form
        self._starts = np.append(0, np.cumsum([file.n_rows for file in self.files]))
        self._indptr_of = {file.name: self._read_indptr(file) for file in self.files}
        parts = [self._indptr_of[file.name] for file in self.files]
        counts = np.concatenate([np.diff(part) for part in parts])
        edges = [
            start + row_edges(part, self.form.chunk_entries)
            for start, part in zip(self._starts, parts, strict=False)
        ]
        SparseDataset.__init__(
            self,
            self.form.n_features,
            self.form.dtype,
            np.append(0, np.cumsum(counts)).astype(np.int64),
            np.dtype(self.form.dtype).itemsize + INDEX_DTYPE.itemsize,
            np.unique(np.concatenate(edges)).astype(np.int64),
        )
        remote = recipe.visibility == Visibility.EVERYONE
        self.n_readers = REMOTE_READERS if remote else LOCAL_READERS
        self.id_column = self.form.id_column

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
