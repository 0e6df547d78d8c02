"""Stale temporaries of local outputs: who owns a folder, and removal of those whose owner is gone.

A writer claims its folder, ``<target>.partial-<mark>-<token>``, with a lock (flock(2)) that the kernel
drops when the process ends, however it ends. So an unclaimed folder was left by a writer that is dead:
one that has put a whole output in its place removes it, and one that resumes takes it over before.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
import warnings
from collections.abc import Iterator

_ENDING = re.compile(r"\.partial-(?:(?P<mark>[0-9a-f]+)-)?[0-9a-f]{8}(?:\.replaced)?")

_claimed: dict[tuple[int, int], int] = {}
"""Open folders by device and inode, which stay the same when a folder is renamed."""


def new_folder(target: str, mark: str) -> str:
    """Return a unique name of a folder for an output that grows."""
    return f"{target}.{'-'.join(filter(None, ['partial', mark, uuid.uuid4().hex[:8]]))}"


def claim(folder: str) -> bool | None:
    """Make a folder one of this process, until it is released or the process ends.

    Returns
    -------
    bool or None
        False if a writer that lives has claimed it; None if the file system cannot say.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        return False if isinstance(error, BlockingIOError) else None
    _claimed[_identity(os.fstat(handle))] = handle
    return True


def release(folder: str) -> None:
    """Give up a claim, if there is one."""
    _close(_handle(folder))


def remove(folder: str) -> None:
    """Remove a folder and all in it; it is released last, when no other writer can take it over."""
    handle = _handle(folder)
    shutil.rmtree(folder, ignore_errors=True)
    _close(handle)


def adopt(target: str, mark: str, folder: str) -> bool:
    """Take over as `folder` what another writer of `mark` has left, the one that got farthest.

    Also from one that lives, and only seems dead to the job that runs again: it will publish nothing.

    Returns
    -------
    bool
        False if none has.

    Warns
    -----
    RuntimeWarning
        That writer lives, as far as the file system can say.
    """
    left = [
        path
        for path, its in _temporaries_of(target)
        if its == mark and not path.endswith(".replaced")
    ]
    for path in sorted(left, key=_files_below, reverse=True):
        try:
            os.rename(path, folder)
        except FileNotFoundError:
            continue  # somebody else was faster
        if claim(folder) is False:
            warnings.warn(
                f"Another process still writes {target!r}. This one continues with finished parts, and the "
                "other one will end with an error; run only one at a time.",
                RuntimeWarning,
                stacklevel=2,
            )
        return True
    return False


def remove_abandoned(target: str) -> None:
    """Remove stale temporaries of a complete output. Never raises."""
    for path, _ in _temporaries_of(target):
        if claim(path):
            remove(path)


def _temporaries_of(target: str) -> Iterator[tuple[str, str]]:
    """Yield the temporary folders of an output, and the mark of each."""
    parent, name = os.path.split(target)
    try:
        entries = sorted(os.listdir(parent))
    except OSError:
        return
    for entry in entries:
        found = _ENDING.fullmatch(entry[len(name) :]) if entry.startswith(name) else None
        path = os.path.join(parent, entry)
        if found and os.path.isdir(path) and not os.path.islink(path):
            yield path, found["mark"] or ""


def _files_below(path: str) -> int:
    return sum(len(files) for _, _, files in os.walk(path))


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _handle(folder: str) -> int | None:
    try:
        return _claimed.pop(_identity(os.stat(folder)), None)
    except OSError:
        return None


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
