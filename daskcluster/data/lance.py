"""Rows of Lance datasets, read in place: one version, by the library of Lance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.partitions import cut_rows
from daskcluster.data.row_files import FilesDataset, RowFile, replaced
from daskcluster.data.spec import RowsSpec
from daskcluster.data.tables import (
    TableFormat,
    TableValues,
    choose_columns,
    dataset_of_tables,
)
from daskcluster.errors import DatasetNotFoundError, InvalidDataError
from daskcluster.extras import import_extra
from daskcluster.storage.change_guard import ChangeGuard
from daskcluster.storage.location import Location, locate
from daskcluster.storage.process_local import open_once


@dataclass(frozen=True)
class LanceFormat(TableFormat):
    """The columns of one version of a Lance dataset, which never changes; see `RowFormat`."""

    kind = "Lance"

    @property
    def dataset(self) -> Any:
        return LanceDataset

    def cuts(self, file: RowFile) -> np.ndarray:
        row_bytes = self.n_features * np.dtype(self.dtype).itemsize
        starts = zip(file.edges, file.blocks, strict=False)
        edges = [start + cut_rows(n, row_bytes) for start, n in starts]
        return np.unique(np.concatenate(edges))

    def tables(
        self, place: Location, file: RowFile, first: int, last: int, names: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        number, digest = file.version.split()

        def same() -> Any:
            found = _opened(place, int(number))
            # A dataset that was removed and written anew may have a version of the same number.
            if _digest(found) != digest:
                raise replaced(place)
            return found

        source = open_once((place, file.version), same)
        yield first, source.to_table(columns=list(names), offset=first, limit=last - first)


class LanceDataset(FilesDataset):
    """Rows of a Lance dataset; chunks end where its fragments do."""

    def change_guard(self) -> ChangeGuard | None:
        """Return None: a version does not change."""
        return None


def _digest(source: Any) -> str:
    """Return a digest of the files of a version, whose names are random."""
    files = [str(each.path) for part in source.get_fragments() for each in part.data_files()]
    return hashlib.sha256(" ".join(files).encode()).hexdigest()[:16]


def _opened(location: Location, version: int | None = None) -> Any:
    lance = import_extra("lance", "lance", "Lance datasets need pylance")
    try:
        return lance.dataset(location.url, version=version)
    except (ValueError, OSError) as error:  # what is not there is a ValueError
        raise DatasetNotFoundError(
            f"There is no Lance dataset at {location.url!r} ({error}); check the URL. Lance itself reaches "
            "buckets, with credentials from the environment."
        ) from error


def open_lance(given: Any, spec: RowsSpec) -> RowDataset:
    """Open the latest version of a Lance dataset, or the version that was opened.

    Raises
    ------
    DatasetNotFoundError, InvalidDataError, InvalidParameterError, MissingExtraError

    Notes
    -----
    Cost: no pass, except over columns of integers, which are searched for nulls, and over weights.
    """
    is_url = isinstance(given, Location)
    source = _opened(given) if is_url else given
    location = given if is_url else locate(source.uri)
    what = repr(location.url)
    if not source.count_rows():
        raise InvalidDataError(
            f"Found array with 0 sample(s) while a minimum of 1 is required: {what} has no rows."
        )

    def batches(*names: str) -> Iterator[Any]:
        yield from source.to_batches(columns=list(names))

    chosen = choose_columns(source.schema, spec, what, TableValues(batches))
    lengths = tuple(fragment.count_rows() for fragment in source.get_fragments())
    file = RowFile("", 0, f"{source.version} {_digest(source)}", lengths)
    return dataset_of_tables(location, [file], LanceFormat(chosen))
