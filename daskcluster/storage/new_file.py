"""A file that appears whole when it is written to its end, or not at all."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from daskcluster.errors import OutputExistsError
from daskcluster.storage.disk_space import naming_full_disk
from daskcluster.storage.files import explained
from daskcluster.storage.location import Location


@contextmanager
def new_file(place: Location, *, overwrite: bool = False) -> Iterator[Any]:
    """Open a file for writing bytes; at the end of the block it is there, or never if the block raises.

    On disk it grows under another name next to its place. In a bucket an upload of several parts is
    completed at the end.

    Raises
    ------
    OutputExistsError
        Something appeared there in the meantime, and `overwrite` is False.
    DatasetNotFoundError
        The store cannot be written.

    Examples
    --------
    >>> from daskcluster.storage.files import open_file
    >>> from daskcluster.storage.location import locate
    >>> with new_file(locate("memory://new-file")) as out:
    ...     _ = out.write(b"whole")
    >>> open_file(locate("memory://new-file")).read()
    b'whole'
    """
    if place.is_local:
        with _on_disk(place, overwrite) as out:
            yield out
    elif place.scheme == "memory":  # a file in memory is there while it grows
        buffer = io.BytesIO()
        yield buffer
        fs, path = place.filesystem()
        fs.pipe_file(path, buffer.getvalue())
    else:
        fs, path = place.filesystem()
        with explained(place, "output"):
            out = fs.open(path, "wb")
        try:
            yield out
        except BaseException:
            with suppress(Exception):  # what ended the writing is what the caller should hear of
                out.discard()
            out.closed = True
            raise
        with explained(place, "output"):
            out.close()
            fs.invalidate_cache()


@contextmanager
def _on_disk(place: Location, overwrite: bool) -> Iterator[Any]:
    target = os.path.realpath(place.url)  # a link stays, and the file behind it is replaced
    folder, name = os.path.split(target)
    part = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}.partial")
    with explained(place, "output"):
        os.makedirs(folder, exist_ok=True)
        out = open(part, "xb")  # noqa: SIM115  (closed below, before it gets its name)
    try:
        with naming_full_disk(place), out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if overwrite:
            os.replace(part, target)
        else:
            _name(part, replace(place, url=target))
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)


def _name(part: str, place: Location) -> None:
    try:
        os.link(part, place.url)
    except FileExistsError as error:
        raise OutputExistsError(
            f"The output {place.url!r} appeared while it was being written; nothing was replaced. Choose "
            "another name or pass overwrite=True."
        ) from error
    except OSError:  # a file system without links
        os.replace(part, place.url)
