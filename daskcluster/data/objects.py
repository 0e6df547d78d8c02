"""Small objects that are created once, and removed with all that is beside them."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress

from daskcluster.data.stores import Location, explain
from daskcluster.data.whole_files import read_whole


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
        found = read_whole(place, name)
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


def remove_below(place: Location) -> None:
    """Remove all that is below a place; it is no error if nothing is."""
    fs, path = place.filesystem()
    with suppress(FileNotFoundError):
        fs.rm(path, recursive=True)
