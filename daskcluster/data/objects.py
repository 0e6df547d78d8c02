"""Small objects under a URL, whole or absent: listed, read, written, created once, removed."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress

from daskcluster.data.stores import Location, explain
from daskcluster.errors import DaskClusterError


def list_names(place: Location) -> list[str]:
    """Return the names of what stands directly below `place`, sorted; none if nothing does.

    Raises
    ------
    DatasetNotFoundError
        The store cannot be reached, or not read.
    """
    fs, path = place.filesystem()
    fs.invalidate_cache()
    try:
        found = fs.ls(path, detail=False)
    except FileNotFoundError:
        return []
    except DaskClusterError:
        raise
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, "folder") from error
    return sorted({str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in found})


def read_object(place: Location, name: str) -> bytes | None:
    """Return the content of an object, or None if it is not there."""
    fs, path = place.filesystem()
    try:
        return bytes(fs.cat_file(f"{path}/{name}"))
    except FileNotFoundError:
        return None
    except Exception as error:  # clouds' clients have error classes of their own
        raise explain(error, place, "folder") from error


def create_object(place: Location, name: str, content: bytes) -> bool:
    """Write an object that is not there yet; False if it is, and then nothing is touched.

    `content` should be like no other's: where a client says unclearly why it did not write, what is there
    tells whose it is. A store that knows no conditional writes lets two win; who comes later is found out
    by reading again.

    Raises
    ------
    DatasetNotFoundError
        The store cannot be written.
    """
    try:
        if place.is_local:
            return _create_file(os.path.join(place.url, name), content)
        fs, path = place.filesystem()
        fs.pipe_file(f"{path}/{name}", content, mode="create")
    except FileExistsError:
        return False
    except Exception as error:  # a failed precondition has another class with every client
        found = read_object(place, name)
        if found is None:
            raise explain(error, place, "folder") from error
        return found == content
    return True


def _create_file(file: str, content: bytes) -> bool:
    # A link is there whole or not at all, and never replaces; a file that is opened grows.
    os.makedirs(os.path.dirname(file), exist_ok=True)
    draft = f"{file}.{uuid.uuid4().hex[:8]}.partial"
    with open(draft, "xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(draft, file)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        with open(file, "xb") as out:
            out.write(content)
    finally:
        os.unlink(draft)
    return True


def remove_object(place: Location, name: str = "") -> None:
    """Remove one object, or all below `place` if none is named; what is not there is no error."""
    fs, path = place.filesystem()
    with suppress(FileNotFoundError):
        if name:
            fs.rm_file(f"{path}/{name}")
        else:
            fs.rm(path, recursive=True)
