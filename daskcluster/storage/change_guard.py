"""The change guard: detects that stored rows changed while work on them ran.

Zarr reads a deleted chunk as zeros, and a rewritten chunk as its new content. A fit whose passes saw two
versions of the rows would be silently wrong. So the objects under an array are listed before and after the
work (names, sizes, and etags or modification times; no object is read). If any of them changed, the work
ends with an error that names them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from daskcluster.errors import DaskClusterError, InvalidDataError
from daskcluster.storage.files import file_names, find_files, match_files
from daskcluster.storage.location import Location
from daskcluster.storage.retry import retry

MOST_OBJECTS = 100_000
"""Arrays of more objects are not guarded: listing them would take a remote store minutes."""

Objects = Mapping[str, tuple[Any, ...]]
"""Size and version of every object under a location, by its path there."""

_NAMED = 3


@dataclass(frozen=True)
class ChangeGuard:
    """The objects under some locations at one moment.

    Attributes
    ----------
    seen : tuple of (Location, Objects)
    may_change : callable () -> names
        Called if objects have changed; returns the names of those that may.
    """

    seen: tuple[tuple[Location, Objects], ...]
    may_change: Callable[[], Iterable[str]] = tuple

    def check(self) -> None:
        """Raise if an object has changed.

        Raises
        ------
        InvalidDataError
            Objects changed; the error names them.
        """
        for place, before in self.seen:
            now = objects_at(place, before) if before else None
            if now is None:
                continue
            found = [name for name in before if before[name] != now.get(name)]
            if found:
                with suppress(DaskClusterError):  # the metadata cannot be read any more
                    may_change = set(self.may_change())
                    found = [name for name in found if name not in may_change]
            if found:
                raise InvalidDataError(
                    f"The rows at {place.url!r} changed while they were being read: "
                    f"{_describe(sorted(found), before, now)}. A result would mix two versions of them; "
                    "wait for the writer, or write to another URL, open the rows again, and run again."
                )


def guard_changes(
    places: Iterable[Location], may_change: Callable[[], Iterable[str]] = tuple
) -> ChangeGuard | None:
    """Return a guard of the objects at `places`; None if there are no places.

    Notes
    -----
    Cost: one listing of each place; on a remote store, one request per 1,000 objects.

    Examples
    --------
    >>> guard_changes([]) is None
    True
    """
    seen = tuple((place, objects_at(place) or {}) for place in places)
    return ChangeGuard(seen, may_change) if seen else None


def objects_at(place: Location, names: Collection[str] | None = None) -> Objects | None:
    """Return the objects at a place; None if they cannot be listed, or are too many.

    Others than `names` do not count if they are given. Web servers list no sizes: sizes are asked for only
    if `names` are given, and otherwise nothing is known.
    """
    try:
        pairs = _on_disk(place, names) if place.is_local else _in_store(place, names)
        found: dict[str, tuple[Any, ...]] = {}
        for name, version in pairs:
            if names is None or name in names:
                found[name] = version
            if len(found) > MOST_OBJECTS:
                return None
    except Exception:  # listing may need a permission that reading does not
        return None
    return found


def _on_disk(place: Location, names: Iterable[str] | None) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if names is None:
        names = file_names(place) if os.path.isdir(place.url) else [""]
    for name in names:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(os.path.join(place.url, name) if name else place.url)
            yield (
                name,
                (found.st_size, f"{found.st_size}-{found.st_mtime!r}"),
            )  # as `StoredFile` has it


def _in_store(
    place: Location, names: Iterable[str] | None
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    if place.scheme in ("http", "https"):
        found = [] if names is None else match_files(place)[1]
    else:
        found = retry(partial(find_files, place), place)
    place.filesystem()[0].invalidate_cache()
    for file in found:
        yield file.name, (file.size, file.version)


def _describe(names: list[str], before: Objects, now: Objects) -> str:
    parts = []
    for name in names[:_NAMED]:
        what = "has disappeared"
        if name in now:
            (size, version), (new_size, new_version) = before[name], now[name]
            sizes = f"{size} bytes before, {new_size} now"
            versions = f"version {version} before, {new_version} now"
            what = f"was rewritten ({sizes if size != new_size else versions})"
        parts.append(f"{name or 'the file'} {what}")
    more = len(names) - _NAMED
    return ", ".join(parts) + (f" and {more} more objects" if more > 0 else "")
