"""Which files of rows a folder, a pattern or a list stands for, and in what order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import takewhile
from typing import Any, TypeVar

from daskcluster.errors import DatasetNotFoundError, InvalidParameterError
from daskcluster.storage.files import StoredFile, match_files
from daskcluster.storage.location import Location

T = TypeVar("T")
R = TypeVar("R")

_OPENERS = 16
"""Files whose heads are read at the same time."""


def find_row_files(
    given: Location | Sequence[Location], suffixes: Sequence[str]
) -> tuple[Location, list[StoredFile]]:
    """Return the files that a location, a pattern or a list stands for, in the order of their rows.

    Numbers in names count as numbers: ``part-2`` comes before ``part-10``. A list keeps its order. Of a
    folder, files of other kinds and those whose names begin with ``_`` or ``.`` are left out.

    Parameters
    ----------
    given : Location or sequence of Location
    suffixes : sequence of str
        Of the kinds of files that are read in place.

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
    files = [file for file in files if _may_hold_rows(file.name, suffixes)]
    return location, sorted(files, key=lambda file: natural_order(file.name))


def _may_hold_rows(name: str, suffixes: Sequence[str]) -> bool:
    if not name:  # the location itself
        return True
    hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
    return not hidden and name.lower().endswith(tuple(suffixes))


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
    with ThreadPoolExecutor(_OPENERS, thread_name_prefix="daskcluster-files") as pool:
        found = list(pool.map(_the_file, given))
    return location, [
        replace(file, name=place.url[len(root) :].lstrip("/"))
        for file, place in zip(found, given, strict=True)
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
