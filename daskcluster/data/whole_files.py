"""Small files that are there whole or not at all, on disk or in an object store."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from daskcluster.data.patience import patiently, while_others_write
from daskcluster.data.stores import Location, explain
from daskcluster.errors import DaskClusterError


def write_whole(place: Location, name: str, content: bytes, *, durable: bool = True) -> None:
    """Write file `name` below a place; one that is there is replaced.

    Parameters
    ----------
    place : Location
        A folder; made if it is not there.
    name : str
        Relative path.
    content : bytes
    durable : bool
        On disk, wait until the disk has it: it is whole after a power cut, too.

    Raises
    ------
    OSError
        Or what else the client of a store raises.

    Examples
    --------
    >>> from daskcluster.data.stores import locate
    >>> write_whole(locate("memory://whole-files"), "a.json", b"{}")
    >>> read_whole(locate("memory://whole-files"), "a.json")
    b'{}'
    """
    if not place.is_local:
        fs, path = place.filesystem()
        patiently(lambda: fs.pipe_file(f"{path}/{name}", content), place)
        return
    # A file on disk grows; renaming lets it appear whole.
    file = os.path.join(place.url, name)
    part = f"{file}.{os.getpid()}-{threading.get_ident()}.partial"
    os.makedirs(os.path.dirname(file), exist_ok=True)
    try:
        with open(part, "wb") as out:
            out.write(content)
            if durable:
                out.flush()
                os.fsync(out.fileno())
        os.replace(part, file)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        raise


def read_whole(place: Location, name: str) -> bytes | None:
    """Return the content of a file; None if it is not there.

    Raises
    ------
    DaskClusterError
        The store cannot be reached.
    """
    fs, path = place.filesystem()
    try:
        return bytes(patiently(lambda: fs.cat_file(f"{path}/{name}"), place))
    except FileNotFoundError:
        return None
    except DaskClusterError:
        raise
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, "file") from error


def names_below(place: Location) -> list[str]:
    """Return the names of files and folders at a place, sorted; none if it is not there.

    Raises
    ------
    DaskClusterError
        The store cannot be reached.
    """
    fs, path = place.filesystem()
    fs.invalidate_cache()
    try:
        found = while_others_write(lambda: fs.ls(path, detail=False))
    except FileNotFoundError:
        return []
    except DaskClusterError:
        raise
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, "folder") from error
    return sorted({str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in found})


def remove_file(place: Location, name: str) -> None:
    """Remove a file, if it is there."""
    fs, path = place.filesystem()
    with suppress(FileNotFoundError):  # somebody else was faster
        fs.rm_file(f"{path}/{name}")
