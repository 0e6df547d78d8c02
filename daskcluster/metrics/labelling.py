"""Conversion of labels from any source to cluster numbers, on any engine."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.labelled import Numbers, RowLabels
from daskcluster.data.label_files import BLOCK_ROWS, LabelArray, open_labels
from daskcluster.data.nodes import metadata_digest, open_array
from daskcluster.engine.engine import Placement
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.storage.location import Location, locate
from daskcluster.storage.process_local import open_once
from daskcluster.storage.zarr_stores import location_of
from daskcluster.typing import Visibility

_INLINE_BYTES = 1 << 20
"""Most bytes of numbers that are sent with every task."""


@dataclass(frozen=True)
class Labelling:
    """Labels of rows and their distinct values.

    Attributes
    ----------
    array : LabelArray
    classes : ndarray of shape (k,)
        The distinct labels, sorted.
    location : Location or None
        Location of the Zarr array that holds the labels, if any.
    digest : str
        Digest of that array, which changes if another replaces it under the same URL.
    """

    array: LabelArray
    classes: np.ndarray
    location: Location | None = None
    digest: str = ""

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Return the cluster numbers of rows `start` to `stop`, int32."""
        return numbered(self.array.read(start, stop), self.classes)

    def row_labels(self, placement: Placement) -> RowLabels:
        """Return the object that gives these numbers to the tasks of `placement`.

        Raises
        ------
        InvalidParameterError
            The labels are in this process's memory, are too large to send with tasks, and the workers share
            no disk with it.
        """
        here = placement.shares_memory
        if self.location is not None and (
            here or self.location.visibility is not Visibility.PROCESS
        ):
            return StoredNumbers(self.location, self.digest, self.classes)
        found = np.empty(self.array.n_rows, np.int32)
        for start in range(0, len(found), BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, len(found))
            found[start:stop] = self.numbers(start, stop)
        if here or found.nbytes <= _INLINE_BYTES:
            return HeldNumbers(found)
        folder = placement.shared_folder()
        if folder is None:
            raise InvalidParameterError(
                f"labels of {len(found)} rows in this process's memory cannot be sent to the workers; "
                "write them to a Zarr array that the workers can read and give its URL."
            )
        path = os.path.join(folder, "labels.npy")
        np.save(path, found)
        return MappedNumbers(path)


def open_labelling(labels: Any, n_rows: int, kept: np.ndarray | None = None) -> Labelling:
    """Open labels and find their distinct values.

    Parameters
    ----------
    labels : array-like of shape (n,), str or path
        As `daskcluster.data.label_files.open_labels` takes them.
    n_rows : int
        Number of rows of the dataset.
    kept : ndarray of bool, optional
        Which rows of its source the dataset has. Labels of all these are taken too, and those of the others
        left out.

    Raises
    ------
    InvalidDataError
        The number of labels differs from `n_rows`.

    Notes
    -----
    Cost: one pass over the labels, a million at a time.

    Examples
    --------
    >>> found = open_labelling(["b", "a", "b"], 3)
    >>> found.classes.tolist(), found.numbers(0, 3).tolist()
    (['a', 'b'], [1, 0, 1])
    """
    array = whole = open_labels(labels)
    location: Location | None = None
    if isinstance(labels, (str, os.PathLike)):
        location = locate(labels)
    elif type(labels).__module__.partition(".")[0] == "zarr":
        location = location_of(labels)
    if kept is not None and len(kept) == array.n_rows != n_rows:
        at, location = np.append(np.flatnonzero(kept), len(kept)), None

        def read(start: int, stop: int) -> np.ndarray:
            return whole.read(int(at[start]), int(at[stop]))[kept[at[start] : at[stop]]]

        array = LabelArray(n_rows, read)
    if array.n_rows != n_rows:
        raise InvalidDataError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[n_rows, array.n_rows]}. labels has {array.n_rows} rows, X has {n_rows}; give one label for "
            "every row."
        )
    classes = np.empty(0)
    for start in range(0, n_rows, BLOCK_ROWS):
        block = np.unique(array.read(start, min(start + BLOCK_ROWS, n_rows)))
        classes = np.union1d(classes, block) if start else block
    digest = "" if location is None else metadata_digest(open_array(location))
    return Labelling(array, classes, location, digest)


def numbered(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the position of each of `values` in `classes`, int32.

    Raises
    ------
    InvalidDataError
        A value is not in `classes`: the labels were rewritten meanwhile.
    """
    found = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
    if not np.array_equal(classes[found], values):
        raise InvalidDataError(
            "The labels changed while they were being read; wait for the writer and run again."
        )
    return found.astype(np.int32)


# -- picklable cluster numbers
# -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeldNumbers:
    """Numbers of clusters in memory."""

    array: np.ndarray

    def ready(self) -> Numbers:
        """Return the function that slices them."""
        # Arrays sent with a task are read-only, which is another type for compiled code.
        array = self.array if self.array.flags.writeable else self.array.copy()
        return lambda chunk: array[chunk.start : chunk.stop]


@dataclass(frozen=True)
class MappedNumbers:
    """Numbers of clusters in a .npy file that all tasks can read."""

    path: str

    def ready(self) -> Numbers:
        """Return the function that copies them from the mapped file."""
        array = np.load(self.path, mmap_mode="r")
        return lambda chunk: np.array(array[chunk.start : chunk.stop])


@dataclass(frozen=True, eq=False)
class StoredNumbers:
    """Numbers of clusters from labels in a Zarr array."""

    location: Location
    digest: str
    classes: np.ndarray

    def ready(self) -> Numbers:
        """Return the function that reads them; adjacent rows read a storage chunk once."""
        array = open_once((self.location, self.digest), lambda: open_array(self.location))
        return _StoredReader(array, self.classes)


class _StoredReader:
    """Reads whole storage chunks of labels; caches the last one of each thread."""

    def __init__(self, array: Any, classes: np.ndarray) -> None:
        self._array, self._classes = array, classes
        self._step = int(array.chunks[0])
        self._kept = threading.local()

    def __call__(self, chunk: Chunk) -> np.ndarray:
        found = np.empty(chunk.n_rows, np.int32)
        start = chunk.start
        while start < chunk.stop:
            first = start // self._step * self._step
            stop = min(chunk.stop, first + self._step)
            part = self._chunk_from(first)[start - first : stop - first]
            found[start - chunk.start : stop - chunk.start] = part
            start = stop
        return found

    def _chunk_from(self, first: int) -> np.ndarray:
        if getattr(self._kept, "first", None) != first:
            values = np.asarray(self._array[first : first + self._step])
            self._kept.numbers, self._kept.first = numbered(values, self._classes), first
        numbers: np.ndarray = self._kept.numbers
        return numbers
