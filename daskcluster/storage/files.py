"""Files on disk or in an object store: whole writes, reads, listings, removal, and full disks.

All other modules of `daskcluster.storage` use these functions. A place is a `Location` of a folder.
Every file of the package is written here: it appears whole under its name, or not at all.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import os
import shutil
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from daskcluster.errors import (
    DaskClusterError,
    DatasetNotFoundError,
    DiskSpaceError,
    InvalidDataError,
    ModelNotFoundError,
    OutputExistsError,
)
from daskcluster.extras import import_pyarrow
from daskcluster.host import format_bytes
from daskcluster.storage.location import Location, explain, hint_of_slashes, locate
from daskcluster.storage.retry import retry, while_others_write
from daskcluster.storage.zarr_stores import METADATA, PARTIAL_MARK

_ATTRIBUTES = (".zattrs", ".zmetadata")
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
_MARKS = "*?["
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""Endings of compressed files that `open_compressed` reads."""
_REQUESTS = 16
"""Requests of one caller at the same time."""
_VERSIONS = ("ETag", "etag", "md5", "content_md5", "Last-Modified")


@contextmanager
def explained(place: Location, what: str) -> Iterator[None]:
    """Turn errors of a store's client into ones that name the data, its URL and a remedy."""
    try:
        yield
    except DaskClusterError:
        raise
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, what) from error


# -- writing ---------------------------------------------------------------------------------------


@contextmanager
def new_file(place: Location, *, overwrite: bool = False) -> Iterator[Any]:
    """Open a file for writing bytes; at the end of the block it is there, or never if the block raises.

    On disk it grows under another name next to its place, the attribute ``name`` of the yielded file. In a
    bucket an upload of several parts is completed at the end.

    Raises
    ------
    OutputExistsError
        Something appeared there in the meantime, and `overwrite` is False.
    DatasetNotFoundError
        The store cannot be written.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> with new_file(locate("memory://new-file")) as out:
    ...     _ = out.write(b"whole")
    >>> open_file(locate("memory://new-file")).read()
    b'whole'
    """
    if place.is_local:
        target = os.path.realpath(place.url)  # a link stays, and the file behind it is replaced
        with naming_full_disk(place), ExitStack() as stack:
            with explained(place, "output"):
                out = stack.enter_context(_new_on_disk(target, overwrite=overwrite))
            yield out
        return
    fs, path = place.filesystem()
    if place.scheme == "memory":  # a file in memory is there while it grows
        buffer = io.BytesIO()
        yield buffer
        fs.pipe_file(path, buffer.getvalue())
        return
    with explained(place, "output"):
        out = fs.open(path, "wb")
    try:
        yield out
        with explained(place, "output"):
            out.close()
    except BaseException:
        with suppress(Exception):  # what ended the writing is what the caller should hear of
            out.discard()
        out.closed = True
        raise
    fs.invalidate_cache()


@contextmanager
def _new_on_disk(file: str, *, overwrite: bool, durable: bool = True) -> Iterator[Any]:
    """Open a file under another name next to `file`, which becomes its name at the end of the block."""
    folder, name = os.path.split(file)
    part = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.partial")
    os.makedirs(folder, exist_ok=True)
    try:
        with open(part, "xb") as out:
            yield out
            if durable:
                out.flush()
                os.fsync(out.fileno())
        try:
            (os.replace if overwrite else _name_once)(part, file)
        except FileExistsError as error:
            raise OutputExistsError(
                f"The output {file!r} appeared while it was being written; nothing was replaced. Choose "
                "another name or pass overwrite=True."
            ) from error
    finally:
        with suppress(OSError):
            os.unlink(part)


def _name_once(part: str, file: str) -> None:
    """Give a whole file its name; raise FileExistsError if there is a file of that name."""
    try:
        os.link(part, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with open(file, "xb"):
            os.replace(part, file)


def write_file(place: Location, name: str, content: bytes, *, durable: bool = True) -> None:
    """Write file `name` below a place; replace an existing one.

    Parameters
    ----------
    place : Location
        A folder; created if missing.
    name : str
        Relative path.
    content : bytes
    durable : bool
        On disk, flush the file, so that it is complete even after a power failure.

    Raises
    ------
    DiskSpaceError, OSError
        Or another error of the store's client.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> write_file(locate("memory://files-example"), "a.json", b"{}")
    >>> read_file(locate("memory://files-example"), "a.json")
    b'{}'
    """
    if not place.is_local:
        fs, path = place.filesystem()
        retry(lambda: fs.pipe_file(f"{path}/{name}", content), place)
        return
    file = os.path.join(place.url, name)
    with naming_full_disk(place), _new_on_disk(file, overwrite=True, durable=durable) as out:
        out.write(content)


def create_file(place: Location, name: str, content: bytes) -> bool:
    """Create a file; return False, and change nothing, if it exists.

    `content` should be unique to the caller: if the client's error is unclear, the file is read to see
    whose it is. On a store without conditional writes, two callers may both succeed; the later content
    remains, so read it again to check.

    Raises
    ------
    DatasetNotFoundError
        The store cannot be written.
    """
    try:
        if place.is_local:
            with _new_on_disk(os.path.join(place.url, name), overwrite=False) as out:
                out.write(content)
        else:
            fs, path = place.filesystem()
            fs.pipe_file(f"{path}/{name}", content, mode="create")
    except FileExistsError:
        return False
    except Exception as error:  # a failed precondition has a different class in every client
        found = read_file(place, name)
        if found is None:
            raise explain(error, place, "folder") from error
        return found == content
    return True


# -- reading ---------------------------------------------------------------------------------------


def read_file(place: Location, name: str) -> bytes | None:
    """Return the content of a file; None if it does not exist, or is no plain file.

    Raises
    ------
    DaskClusterError
        The store cannot be reached.
    """
    fs, path = place.filesystem()
    with explained(place, "file"):
        try:
            _refuse_special(place, name)
            return bytes(retry(lambda: fs.cat_file(f"{path}/{name}"), place))
        except FileNotFoundError:
            return None


def open_file(place: Location, name: str = "") -> Any:
    """Open the file at a place, or `name` below it, for reading bytes; raises the client's errors."""
    fs, path = place.filesystem()
    return fs.open(f"{path.rstrip('/')}/{name}" if name else path, "rb")


def read_range(place: Location, start: int, stop: int) -> bytes:
    """Return some bytes of the file at a place, in one request; errors are the client's."""
    fs, path = place.filesystem()
    return bytes(fs.cat_file(path, start=start, end=stop))


def open_compressed(place: Location, *, text: bool = False) -> Any:
    """Open a file that may be compressed, by its ending, as bytes or UTF-8 text; see `open_file`.

    `COMPRESSED` has the endings.
    """
    import fsspec

    if place.url.lower().endswith(".zst"):  # Python's own libraries decompress the others
        stream = import_pyarrow().CompressedInputStream(open_file(place), "zstd")
        return io.TextIOWrapper(io.BufferedReader(stream), "utf-8-sig") if text else stream
    form = {"mode": "rt", "encoding": "utf-8-sig"} if text else {"mode": "rb"}
    return fsspec.open(place.url, compression="infer", **form, **place.storage_options()).open()


def read_at_most(place: Location, name: str, most: int) -> bytes:
    """Return the content of a file of a model; reads at most `most` + 1 bytes.

    Raises
    ------
    ModelNotFoundError
        The file does not exist or cannot be read.
    """

    def content() -> bytes:
        with open_file(place, name) as file:
            return bytes(file.read(most + 1))

    try:
        _refuse_special(place, name)
        return retry(content, place)
    except Exception as error:  # clouds' clients have error classes of their own
        raise ModelNotFoundError(
            f"no model can be read at {place.url!r}: {name} is missing or not readable "
            f"({type(error).__name__}); check the URL and the permissions."
        ) from error


def file_size(place: Location, name: str) -> int:
    """Return the size of a file in bytes; -1 if it does not exist."""
    try:
        _refuse_special(place, name)
        fs, path = place.filesystem()
        return int(retry(lambda: fs.size(f"{path.rstrip('/')}/{name}"), place) or 0)
    except Exception:  # clouds' clients have error classes of their own
        return -1


def _refuse_special(place: Location, name: str) -> None:
    # Reading a pipe or device in an untrusted folder could block or never end.
    file = os.path.join(place.url, name)
    if place.is_local and not os.path.isfile(file):
        raise FileNotFoundError(file)


# -- listing ---------------------------------------------------------------------------------------


def list_names(place: Location) -> list[str]:
    """Return the names of files and folders at a place, sorted; empty if it does not exist.

    Raises
    ------
    DaskClusterError
        The store cannot be reached.
    """
    fs, path = place.filesystem()
    fs.invalidate_cache()
    with explained(place, "folder"):
        try:
            found = while_others_write(lambda: fs.ls(path, detail=False))
        except FileNotFoundError:
            return []
    return sorted({str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in found})


@dataclass(frozen=True)
class StoredFile:
    """A file or an object of a store.

    Attributes
    ----------
    name : str
        Path relative to the listed place, with slashes.
    size : int
    modified : float
        Modification time by the store, in seconds since 1970; 0 if unknown.
    version : str
        Changes with the content: the store's etag, or else size and time.
    """

    name: str
    size: int
    modified: float
    version: str


def is_data(name: str) -> bool:
    """Return whether a file of this name may be a chunk or another data file."""
    return name.rsplit("/", 1)[-1] not in (*METADATA, *_ATTRIBUTES, PARTIAL_MARK)


def list_files(place: Location) -> list[StoredFile]:
    """Return all files below a place, sorted by name; empty if it does not exist.

    Raises
    ------
    DaskClusterError
        The store cannot be reached.

    Notes
    -----
    Cost: one request per 1,000 objects, or one stat per file on disk.

    Examples
    --------
    >>> import fsspec
    >>> from daskcluster.storage.location import locate
    >>> fsspec.filesystem("memory").pipe_file("/listing/a/b", b"123")
    >>> [(file.name, file.size) for file in list_files(locate("memory://listing"))]
    [('a/b', 3)]
    """
    with explained(place, "source"):
        try:
            found = find_files(place)
        except FileNotFoundError:
            return []
    return sorted((file for file in found if file.name), key=lambda file: file.name)


def find_files(place: Location) -> list[StoredFile]:
    """Return the file at a place (with an empty name) or all files below it; raises the client's errors."""
    fs, path = place.filesystem()
    fs.invalidate_cache()
    return _files_below(path, while_others_write(lambda: fs.find(path, detail=True)))


def _files_below(path: str, found: Mapping[str, Any]) -> list[StoredFile]:
    """Return files by their names below a path; markers of folders, as S3's consoles write, are none.

    Listings of s3fs ignore a slash at the start of a key: what they find elsewhere is left out.
    """
    files, top = [], path.strip("/")
    for full, facts in found.items():
        if top and not f"{full.strip('/')}/".startswith(f"{top}/"):
            continue
        is_marker = facts.get("size") == 0 and full.endswith(("/", "_$folder$"))
        if facts.get("type") == "directory" or is_marker:
            continue
        if facts.get("islink"):  # of the file behind it, fsspec tells the size alone
            with suppress(OSError):
                facts = {**facts, "mtime": os.stat(full).st_mtime}
        files.append(_file(full.strip("/").removeprefix(top).lstrip("/"), facts))
    return files


def match_files(place: Location) -> tuple[Location, list[StoredFile]]:
    """Return the files at a place, or those that match it where it has ``*``, ``?`` or ``[`` in it.

    They come with the location that their names are relative to: the place itself, which as a file has no
    name, or the folder above the first wildcard. What exists by its name is no pattern.

    Raises
    ------
    DatasetNotFoundError
        There is no such file or folder, or nothing matches.
    InvalidDataError
        A web server does not send parts of files.
    """
    (fs, path), location, search = place.filesystem(), place, "find"
    with explained(place, "file or folder"):
        fs.invalidate_cache()
        if _is_pattern(place.url) and not fs.exists(path):
            location, path, search = *_pattern(place), "glob"
        found: dict[str, Any] = retry(
            lambda: while_others_write(lambda: getattr(fs, search)(path, detail=True)), place
        )
        if place.scheme in ("http", "https"):
            found = _with_sizes(fs, found)
        files = _files_below(location.filesystem()[1], found)
        if not files and search == "find":
            raise FileNotFoundError(place.url)
    if not files:
        raise DatasetNotFoundError(
            f"No file matches {place.url!r}; check the pattern, and that it ends as the files do. "
            f"{hint_of_slashes(place)}".rstrip()
        )
    return location, sorted(files, key=lambda file: file.name)


def _pattern(place: Location) -> tuple[Location, str]:
    """Return the folder above the first wildcard of a pattern, and the pattern for a file system."""
    path, url, literal, head = place.filesystem()[1], place.url, "", ""
    above = [url[:at] for at, letter in enumerate(url) if letter == "/"]
    for folder in filter(_is_pattern, above):
        fs, name = replace(place, url=folder).filesystem()
        if fs.exists(name):
            literal, head = folder, name
    marks = [at for at, letter in enumerate(url) if letter in _MARKS and at >= len(literal)]
    below = url[: marks[0]] if marks else url
    return replace(place, url=below.rsplit("/", 1)[0]), glob.escape(head) + path[len(head) :]


def _with_sizes(fs: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of files of a web server, whose listings lack sizes.

    Raises
    ------
    InvalidDataError
        The last byte of the first file cannot be read alone.
    """
    names = [name for name, facts in found.items() if facts.get("type") != "directory"]
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="daskcluster-files") as pool:
        sized = dict(zip(names, pool.map(fs.info, names), strict=True))
    for name in names[:1]:
        try:
            with fs.open(name, cache_type="none") as file:
                file.seek(-1, os.SEEK_END)
                file.read(1)
        except ValueError as error:  # fsspec's, for servers that send whole files only
            raise InvalidDataError(
                f"The server of {name!r} sends whole files only, and rows are read by ranges of bytes; "
                "download the file, or use a server that answers requests for ranges."
            ) from error
    return sized


def file_names(place: Location) -> Iterator[str]:
    """Yield the names of all files below a place, relative to it; raises the client's errors.

    Notes
    -----
    Cost: on disk, a fortieth of that of `find_files`, since there is no stat per file.
    """
    if place.is_local:
        for folder, _, names in os.walk(place.url):
            below = folder[len(place.url) :].lstrip("/")
            yield from (f"{below}/{name}" if below else name for name in names)
        return
    fs, path = place.filesystem()
    for full in while_others_write(lambda: fs.find(path)):
        yield str(full).strip("/").removeprefix(path.strip("/")).lstrip("/")


def _file(name: str, facts: Mapping[str, Any]) -> StoredFile:
    size = int(facts.get("size") or 0)
    times = (facts[key] for key in _TIMES if facts.get(key) is not None)
    modified = next((timestamp_of(time, 0.0) for time in times), 0.0)
    tag = next((str(facts[key]).strip('"') for key in _VERSIONS if facts.get(key)), "")
    return StoredFile(name, size, modified, tag or f"{size}-{modified!r}")


def timestamp_of(value: Any, otherwise: float) -> float:
    """Return a time, a number or an ISO date, in seconds since 1970; it is in UTC where it names no zone.

    `otherwise` is returned for other values.

    Examples
    --------
    >>> timestamp_of("1970-01-01T01:00:00+00:00", 0.0), timestamp_of(7, 0.0), timestamp_of("noon", 5.0)
    (3600.0, 7.0, 5.0)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return otherwise
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def digest_of_files(files: Iterable[StoredFile], below: str) -> str:
    """Return a digest that changes with any of the files; the prefix `below` of names is ignored."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name[len(below) :]}\0{file.size}\0{file.version}\n".encode())
    return digest.hexdigest()[:16]


# -- removing --------------------------------------------------------------------------------------


def remove_file(place: Location, name: str) -> None:
    """Remove a file, if it is there."""
    fs, path = place.filesystem()
    _remove(fs, f"{path}/{name}")


def remove_files(place: Location, paths: Iterable[str]) -> None:
    """Remove files of the store of a place, by their full paths there; those that are gone are ignored.

    File systems of fsspec take paths with ``*``, ``?`` or ``[`` for patterns when they remove several, so
    these are removed one by one.
    """
    fs = place.filesystem()[0]
    paths = list(paths)
    together = [path for path in paths if not _is_pattern(path)]
    alone = [path for path in paths if _is_pattern(path)]
    if together:
        fs.rm(together)
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="daskcluster-files") as pool:
        list(pool.map(lambda path: _remove(fs, path), alone))


def _remove(fs: Any, path: str) -> None:
    with suppress(FileNotFoundError):  # another process removed it
        fs.rm_file(path)


def _is_pattern(path: str) -> bool:
    return any(mark in path for mark in _MARKS)


def remove_folder(place: Location) -> None:
    """Remove everything below a place; no error if there is nothing."""
    fs, path = place.filesystem()
    if place.is_local or not _is_pattern(path):
        with suppress(FileNotFoundError):
            while_others_write(lambda: fs.rm(path, recursive=True))
        return
    fs.invalidate_cache()
    found = while_others_write(lambda: fs.find(path, withdirs=True, detail=True))
    folders = {name for name, facts in found.items() if facts.get("type") == "directory"}
    remove_files(place, (name for name in found if name not in folders))
    for folder in sorted({*folders, path}, reverse=True):
        with suppress(FileNotFoundError):  # in most stores a folder is gone with its last file
            fs.rmdir(folder)


# -- room on disks ---------------------------------------------------------------------------------


def check_space(
    url: Any, n_bytes: int, *, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Refuse an output that is larger than its disk has room for, and warn if only compression may help.

    Parameters
    ----------
    url : str
    n_bytes : int
        Size of the output before compression; files that end in .npy are not compressed.

    Raises
    ------
    DiskSpaceError
    """
    target = locate(url, storage_options)
    if not target.is_local or n_bytes <= (free := free_bytes(target)):
        return
    sizes = f"{format_bytes(n_bytes)}, and its disk has {format_bytes(free)} free"
    if target.url.lower().endswith(".npy"):
        raise DiskSpaceError(
            f"The output {target.url!r} takes {sizes}; free some space there, or write to another disk."
        )
    warnings.warn(
        f"The output {target.url!r} takes up to {sizes}; unless it can be compressed that far, the disk "
        "will be full. Free some space there, or write to another disk.",
        RuntimeWarning,
        stacklevel=2,
    )


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full_disk(error: BaseException | None) -> bool:
    """Return whether an error says that a disk, a user's share of it, or a file has no room for more."""
    return isinstance(error, OSError) and error.errno in _FULL


def full_disk(place: Location) -> DiskSpaceError:
    """Return the error that says which disk is full; the system's own names no path."""
    return DiskSpaceError(
        f"No space left for {place.url!r}: its disk has {format_bytes(free_bytes(place))} free, of which a "
        "quota, or a limit on the size of a file (ulimit -f), may allow less. Free some space there, raise "
        "the limit, or write to another disk."
    )


def free_bytes(place: Location) -> int:
    """Return the free bytes of the disk that a local place is on, or will be."""
    there = os.path.abspath(place.url)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    return shutil.disk_usage(there).free


@contextmanager
def naming_full_disk(place: Location) -> Iterator[None]:
    """Turn the error of a full disk into one that names the place; see `full_disk`."""
    try:
        yield
    except OSError as error:
        if place.is_local and is_full_disk(error):
            raise full_disk(place) from error
        raise
