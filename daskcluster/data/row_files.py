"""Rows of many files as one dataset: which files, in what order, and how their rows are numbered."""

from __future__ import annotations

import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import numpy as np

from daskcluster.data.csr import CsrLayout
from daskcluster.data.dataset import RowDataset
from daskcluster.data.recipes import DerivedRecipe
from daskcluster.data.spec import RowsSpec, looks_like_path
from daskcluster.data.weighted import LazyWeights, array_weights, check_weights
from daskcluster.data.zarr import LOCAL_READERS, REMOTE_READERS
from daskcluster.errors import (
    DaskClusterError,
    DatasetNotFoundError,
    InvalidDataError,
    InvalidParameterError,
)
from daskcluster.extras import import_pyarrow
from daskcluster.storage.change_guard import ChangeGuard, guard_changes
from daskcluster.storage.files import StoredFile, match_files
from daskcluster.storage.location import Location, explain
from daskcluster.storage.process_local import open_once
from daskcluster.storage.retry import is_passing, retry
from daskcluster.typing import Visibility

T = TypeVar("T")
R = TypeVar("R")

_OPENERS = 16
"""Files whose heads are read at the same time."""


class Constant(NamedTuple):
    """A column that has one value in all rows of a file, which need not store it.

    Attributes
    ----------
    name : str
    kind : pyarrow.DataType
    value : object
        None for a null.
    """

    name: str
    kind: Any
    value: Any


@dataclass(frozen=True)
class RowFile:
    """A file of rows.

    Attributes
    ----------
    name : str
        Relative to the location of all files; empty for a file that is the location.
    size : int
    version : str
    blocks : tuple of int
        Rows of each block that is decoded as a whole, in order.
    constants : tuple of Constant
        Columns that are not read from the file.
    deleted : bytes
        The rows of the file that are left out, int64, in order; numbers of rows and blocks do without them.
    """

    name: str
    size: int
    version: str
    blocks: tuple[int, ...] = ()
    constants: tuple[Constant, ...] = field(default=(), kw_only=True)
    deleted: bytes = field(default=b"", kw_only=True)

    @cached_property
    def n_rows(self) -> int:
        return sum(self.blocks)

    @property
    def edges(self) -> np.ndarray:
        """The rows at which blocks begin, and the number of rows; int64."""
        return np.append(0, np.cumsum(self.blocks)).astype(np.int64)

    @property
    def in_order(self) -> bool:
        """Whether rows can only be read from the start on."""
        return False


@dataclass(frozen=True)
class FilesRecipe:
    """Recipe that opens the same files anywhere.

    Attributes
    ----------
    location : Location
    files : tuple of RowFile
    form : object
        The layout of rows in files of one kind, hashable and picklable: ``kind`` for people,
        ``n_features``, ``dtype``; ``cuts(file)``, the rows at which reads within a file may begin, and its
        number of rows; ``reads_in_order(file)``, if a file is decoded from its start; and
        ``read(place, file, first, last)``, which returns rows.
    """

    location: Location
    files: tuple[RowFile, ...]
    form: Any

    @cached_property
    def _hash(self) -> int:
        return hash((self.location, self.files, self.form))

    def __hash__(self) -> int:
        return self._hash

    @property
    def visibility(self) -> Visibility:
        return self.location.visibility

    @property
    def source(self) -> str:
        count = len(self.files)
        return repr(self.location) + (f", {count} {self.form.kind} files" if count > 1 else "")

    def open(self) -> FilesDataset:
        """Open the dataset in this process (once); no file is read."""
        kind = getattr(self.form, "dataset", FilesDataset)
        return open_once(self, lambda: kind(self))


class FilesDataset(RowDataset):
    """Rows of files of one kind, one file after another.

    Parameters
    ----------
    recipe : FilesRecipe
    """

    __reduce__ = RowDataset.by_recipe

    def __init__(self, recipe: FilesRecipe, csr: CsrLayout | None = None) -> None:
        self._recipe: Any = recipe
        self.files, self.form = recipe.files, recipe.form
        lengths = [file.n_rows for file in recipe.files]
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        cuts = [
            start + self._cuts(file)
            for start, file in zip(self._starts, recipe.files, strict=False)
        ]
        edges = np.unique(np.concatenate(cuts)).astype(np.int64)
        super().__init__(self.form.n_features, self.form.dtype, edges, csr)
        remote = recipe.visibility == Visibility.EVERYONE
        self.n_readers = REMOTE_READERS if remote else LOCAL_READERS
        if any(self.form.reads_in_order(file) for file in recipe.files):
            self.n_readers = 1
        self.reader_bytes = getattr(self.form, "reader_bytes", 0)
        self.id_column = getattr(self.form, "id_column", None)
        self.feature_names = getattr(self.form, "feature_names", None)

    def _cuts(self, file: RowFile) -> np.ndarray:
        """Return where reads within a file may begin and end."""
        return np.asarray(self.form.cuts(file))

    def fetch(self, start: int, stop: int) -> np.ndarray:
        blocks = self._of_files(start, stop, self.form.read)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def ids(self, start: int, stop: int) -> Any:
        if self.id_column is None:
            return super().ids(start, stop)
        pa = import_pyarrow()
        parts = self._of_files(start, stop, self.form.read_ids)
        arrays = [array for part in parts for array in part.chunks]
        return pa.chunked_array(arrays, type=parts[0].type)

    def numbers(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return a column of numbers, e.g. of weights, as float64 (stop - start,)."""
        read = partial(self.form.read_numbers, name)
        return np.concatenate(self._of_files(start, stop, read) or [np.empty(0)])

    def _of_files(
        self, start: int, stop: int, read: Callable[[Location, RowFile, int, int], Any]
    ) -> list[Any]:
        """Return what `read` gives for the part of each file that holds some of the rows."""
        found = []
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            file, origin = self.files[number], int(self._starts[number])
            last = min(stop, origin + file.n_rows)
            if start < last:
                part = file, start - origin, last - origin
                found.append(read_part(read, self.place_of(file), *part))
            start, number = max(start, last), number + 1
        return found

    def place_of(self, file: RowFile) -> Location:
        """Return where a file is."""
        return places_of(self._recipe.location, [file])[0]

    def places(self) -> tuple[Location, ...]:
        return (self._recipe.location,)

    def _objects(self) -> tuple[Location, ...]:
        return tuple(places_of(self._recipe.location, self.files))

    def change_guard(self) -> ChangeGuard | None:
        """Return what tells whether one of the files changed; other files may come and go."""
        seen = {file.name: (file.size, file.version) for file in self.files}
        weights = () if self.own_weights is None else self.own_weights.places()
        others = guard_changes(place for place in weights if place not in self.places())
        return ChangeGuard(((self._recipe.location, seen), *(others.seen if others else ())))


def places_of(location: Location, files: Sequence[Any]) -> list[Location]:
    """Return where files are whose names are relative to a location."""
    return [location.child(file.name) if file.name else location for file in files]


@contextmanager
def explained(place: Location, kind: str) -> Iterator[None]:
    """Raise what a library says of a file that it cannot open as an error that names the file.

    Parameters
    ----------
    place : Location
    kind : str
        What errors call such files.
    """
    try:
        yield
    except DaskClusterError:
        raise
    except Exception as error:  # readers and clouds' clients have error classes of their own
        is_missing = isinstance(error, (FileNotFoundError, PermissionError))
        if is_missing or (not place.is_local and is_passing(error)):
            raise explain(error, place, "file") from error
        raise InvalidDataError(
            f"{place.url!r} is no readable {kind} file ({error}); write it again, or leave it out."
        ) from error


def refuse_other_layouts(places: Sequence[Location], forms: Sequence[Any]) -> None:
    """Refuse files whose rows have other features, types or arrays than those of the first one."""
    layouts = [
        (type(form), form.array, form.n_features, form.dtype, getattr(form, "decoding", None))
        for form in forms
    ]
    for place, layout in zip(places, layouts, strict=True):
        if layout != layouts[0]:
            (_, name, *rows), (_, other, *expected) = layout, layouts[0]
            here, there = (f" in {each!r}" if each else "" for each in (name, other))
            raise InvalidDataError(
                f"{place.url!r} has rows of {rows[0]} x {rows[1]}{here}, where {places[0].url!r} has "
                f"{expected[0]} x {expected[1]}{there}, or is decoded otherwise; files of one dataset need "
                "the same: write it again, or leave it out."
            )


class _Stream:
    """Rows that are decoded from front to back, to the end of a file."""

    def __init__(self, form: Any, place: Location, file: RowFile, start: int) -> None:
        self._blocks = form.decoded(place, file, start, file.n_rows)
        self._rest = np.empty((0, form.n_features), form.dtype)
        self.at = start

    def read(self, first: int, last: int) -> np.ndarray:
        """Return rows of the file; `first` lies at `at` or behind it."""
        found = []
        while self.at < last:
            if not len(self._rest):
                self._rest = next(self._blocks)
            skipped = min(max(first - self.at, 0), len(self._rest))
            taken = min(last - self.at, len(self._rest))
            if taken > skipped:
                found.append(self._rest[skipped:taken])
            self._rest = self._rest[taken:]
            self.at += taken
        return found[0] if len(found) == 1 else np.concatenate(found)


_lock = threading.Lock()
_streams: OrderedDict[tuple[object, int], _Stream] = OrderedDict()
_MOST_STREAMS = 8


def read_stream(
    form: Any, place: Location, file: RowFile, first: int, last: int, start: int = 0
) -> np.ndarray:
    """Return rows that can only be decoded from row `start` on; a reader that stopped there continues.

    Parameters
    ----------
    form : object
        ``form.decoded(place, file, first, last)`` yields rows block by block.
    place : Location
    file : RowFile
    first, last, start : int
    """
    key = form, place.url, file.version
    with _lock:
        usable = [
            name for name, each in _streams.items() if name[0] == key and start <= each.at <= first
        ]
        best = max(usable, key=lambda name: _streams[name].at, default=None)
        stream = None if best is None else _streams.pop(best)
    if stream is None:
        stream = _Stream(form, place, file, start)
    rows = stream.read(first, last)
    if stream.at < file.n_rows:
        with _lock:
            _streams[key, id(stream)] = stream
            while len(_streams) > _MOST_STREAMS:
                _streams.popitem(last=False)
    return rows


def read_part(
    read: Callable[..., Any], place: Location, file: RowFile, first: int, last: int
) -> Any:
    """Return ``read(place, file, first, last)``, with an error that names a file that cannot be read."""
    try:
        return retry(lambda: read(place, file, first, last), place, damaged=True)
    except (DaskClusterError, MemoryError, KeyboardInterrupt):
        raise
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"The file {place.url!r} has disappeared since the dataset was opened, or is not on this host; "
            "put it where every worker can read it, or give a bucket's URL."
        ) from error
    except Exception as error:  # readers and clouds' clients have error classes of their own
        if is_passing(error) and not place.is_local:
            raise explain(error, place, "file") from error
        rows = f"Rows {first} to {last - 1} of " if first < last else ""
        raise InvalidDataError(
            f"{rows}{place.url!r} cannot be read ({type(error).__name__}: "
            f"{error}); unless the store failed, the file is damaged or was replaced: write it again."
        ) from error


def column_weights(dataset: FilesDataset, name: str) -> LazyWeights:
    """Return the weights in a column of files."""
    return LazyWeights(
        dataset.n_rows,
        partial(dataset.numbers, name),
        DerivedRecipe(column_weights, dataset.own_recipe(), (name,)),
        dataset.places(),
        f"column {name!r} of {dataset.source}",
    )


def with_column_weights(dataset: FilesDataset, name: str) -> RowDataset:
    """Return the rows with the weights in a column, which are checked in one pass over it."""
    weights = column_weights(dataset, name)
    check_weights(weights, dataset.n_rows)
    return dataset.with_facts(own_weights=weights, weights_column=name)


def with_array_weights(
    dataset: RowDataset,
    spec: RowsSpec,
    places: Sequence[Location],
    read: Callable[[Location, str], np.ndarray],
) -> RowDataset:
    """Return the rows with the weights of an array in the same files, if `spec` names one."""
    if spec.weights is None or looks_like_path(spec.weights):
        return dataset
    values = np.concatenate([read(place, spec.weights) for place in places])
    weights = array_weights(values, dataset.n_rows)
    return dataset.with_facts(own_weights=weights, weights_column=spec.weights)


def replaced(place: Location) -> InvalidDataError:
    """Return the error for a file with other rows than when it was opened."""
    return InvalidDataError(
        f"The file {place.url!r} was replaced since the dataset was opened; open it again and restart."
    )


_TINY_BYTES, _MANY_FILES = 1 << 20, 1000
"""From so many files of less than so many bytes on average, opening them costs more than reading."""


class NoRowsError(InvalidDataError):
    """Files have no rows at all."""


def dataset_of(location: Location, files: Sequence[RowFile], form: Any) -> FilesDataset:
    """Return the dataset of opened files; those without rows are left out, with a warning.

    Raises
    ------
    NoRowsError
    """
    first_with_rows(location, files)
    empty = [file.name for file in files if not file.n_rows]
    left = tuple(file for file in files if file.n_rows)
    if empty:
        warnings.warn(
            f"{len(empty)} of {len(files)} files have no rows ({', '.join(empty[:3])}); they are left out.",
            UserWarning,
            stacklevel=2,
        )
    if len(left) >= _MANY_FILES and sum(file.size for file in left) < len(left) * _TINY_BYTES:
        warnings.warn(
            f"The rows are in {len(left):,} files of less than 1 MB on average, each of which costs a "
            "request in every pass; `daskcluster convert` writes them once to larger chunks.",
            UserWarning,
            stacklevel=2,
        )
    return FilesRecipe(location, left, form).open()


def first_with_rows(location: Location, files: Sequence[RowFile]) -> int:
    """Return which is the first of the files that has rows.

    Raises
    ------
    NoRowsError
    """
    for number, file in enumerate(files):
        if file.n_rows:
            return number
    raise NoRowsError(
        f"Found array with 0 sample(s) while a minimum of 1 is required: {location.url!r} has no rows."
    )


def find_row_files(
    given: Location | Sequence[Location], suffixes: Sequence[str]
) -> tuple[Location, list[StoredFile]]:
    """Return the files that a location, a pattern or a list stands for, in the order of their rows.

    Numbers in names count as numbers: ``part-2`` comes before ``part-10``. A list keeps its order. Of a
    folder, files of other kinds and those whose names begin with ``_`` or ``.`` are left out, except
    below folders such as ``_part=3``, which make columns.

    Parameters
    ----------
    given : Location or sequence of Location
    suffixes : sequence of str
        Suffixes of the kinds of files that are read in place.

    Returns
    -------
    location : Location
    files : list of StoredFile
        Names relative to it.

    Raises
    ------
    DatasetNotFoundError
        Nothing matches.
    """
    if not isinstance(given, Location):
        return _listed_files(given)
    location, files = match_files(given)
    for file in files:
        folder, mark, _ = f"/{file.name}".partition("/_delta_log/")
        if mark:
            raise InvalidDataError(
                f"{location.child(folder).url!r} is a Delta table, of which some files may not be rows "
                f"of its version; open it alone, and not as files of {given.url!r}."
            )
    files = [file for file in files if _may_hold_rows(file.name, suffixes)]
    return location, sorted(files, key=lambda file: natural_order(file.name))


def _may_hold_rows(name: str, suffixes: Sequence[str]) -> bool:
    if not name:  # the location itself
        return True
    hidden = (part for part in name.split("/") if part.startswith(("_", ".")))
    return all(part.startswith("_") and "=" in part for part in hidden) and name.lower().endswith(
        tuple(suffixes)
    )


def natural_order(name: str) -> list[Any]:
    """Return what sorts names with their numbers as numbers.

    Examples
    --------
    >>> sorted(["part.10", "part.9"], key=natural_order)
    ['part.9', 'part.10']
    """
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _listed_files(given: Sequence[Location]) -> tuple[Location, list[StoredFile]]:
    if len({place.scheme for place in given}) > 1:
        raise InvalidParameterError("The files of one dataset should be in one store; copy them.")
    twice = [place.url for i, place in enumerate(given) if place in given[:i]]
    if twice:
        raise InvalidParameterError(f"The file {twice[0]!r} is listed twice; list each file once.")
    folders = [place.url.rsplit("/", 1)[0] for place in given]
    parts = [folder.split("/") for folder in folders]
    same = takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    root = "/".join(level[0] for level in same)
    location = replace(given[0], url=root)
    return location, [
        replace(file, name=place.url[len(root) :].lstrip("/"))
        for file, place in zip(map_files(_the_file, given), given, strict=True)
    ]


def _the_file(place: Location) -> StoredFile:
    _, files = match_files(place)
    if len(files) != 1 or files[0].name:
        raise DatasetNotFoundError(
            f"There is no file {place.url!r}; every item of a list of sources should be a file."
        )
    return files[0]


def map_files(work: Callable[[T], R], files: Sequence[T]) -> list[R]:
    """Return ``work(file)`` of all files, several at a time."""
    with ThreadPoolExecutor(_OPENERS, thread_name_prefix="daskcluster-files") as pool:
        return list(pool.map(work, files))
