"""Room on disks: outputs that cannot fit are foreseen, and errors of a full disk name it."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from daskcluster.errors import DiskSpaceError
from daskcluster.host import format_bytes
from daskcluster.storage.location import Location, locate


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
