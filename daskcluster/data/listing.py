"""What is stored below a place, file by file, without opening any of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from daskcluster.data.patience import while_others_write
from daskcluster.data.stores import Location, explain
from daskcluster.errors import DaskClusterError

METADATA = ("zarr.json", ".zarray", ".zgroup")
"""Files that make a folder a Zarr array or group."""

_ATTRIBUTES = (".zattrs", ".zmetadata")
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
_VERSIONS = ("ETag", "etag", "md5", "content_md5")


@dataclass(frozen=True)
class StoredFile:
    """A file or an object of a store.

    Attributes
    ----------
    name : str
        Relative to the place that was listed, with slashes.
    size : int
    modified : float
        Seconds since 1970, by the store; 0 if it does not say.
    version : str
        What changes when the content does: the store's tag of it, or else size and time.
    """

    name: str
    size: int
    modified: float
    version: str

    @property
    def is_data(self) -> bool:
        """Whether it may be a chunk, or a file of rows."""
        last = self.name.rsplit("/", 1)[-1]
        return last not in METADATA and last not in _ATTRIBUTES


def list_files(place: Location) -> list[StoredFile]:
    """Return all files below a place, in the order of their names; none if it is not there.

    Raises
    ------
    DaskClusterError
        The store cannot be reached.

    Notes
    -----
    Cost: one request for each thousand objects, or one look at each file.

    Examples
    --------
    >>> import fsspec
    >>> from daskcluster.data.stores import locate
    >>> fsspec.filesystem("memory").pipe_file("/listing/a/b", b"123")
    >>> [(file.name, file.size) for file in list_files(locate("memory://listing"))]
    [('a/b', 3)]
    """
    try:
        found = find_files(place)
    except FileNotFoundError:
        return []
    except DaskClusterError:
        raise
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, "source") from error
    return sorted((file for file in found if file.name), key=lambda file: file.name)


def find_files(place: Location) -> list[StoredFile]:
    """Return the file at a place, which has no name then, and all below it; errors are the client's own."""
    fs, path = place.filesystem()
    fs.invalidate_cache()
    root = path.strip("/")
    return [
        _file(str(full).strip("/").removeprefix(root).lstrip("/"), facts)
        for full, facts in while_others_write(lambda: fs.find(path, detail=True)).items()
    ]


def _file(name: str, facts: Mapping[str, Any]) -> StoredFile:
    size = int(facts.get("size") or 0)
    modified = next((_seconds(facts[key]) for key in _TIMES if facts.get(key)), 0.0)
    tag = next((str(facts[key]).strip('"') for key in _VERSIONS if facts.get(key)), "")
    return StoredFile(name, size, modified, tag or f"{size}-{modified!r}")


def _seconds(value: Any) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    try:
        return float(value)
    except (TypeError, ValueError):
        try:
            return datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp()
        except ValueError:
            return 0.0


def digest_of_files(files: Iterable[StoredFile], below: str) -> str:
    """Return a digest of files, which changes with any of them; names count from `below` on."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name[len(below) :]}\0{file.size}\0{file.version}\n".encode())
    return digest.hexdigest()[:16]
