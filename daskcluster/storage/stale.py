"""Temporary folders of local outputs: ownership, takeover, and removal when stale.

A writer claims its folder, ``<target>.partial-<mark>-<token>``, with a lock (flock(2)) that the kernel
releases when the process ends, however it ends. So the writer of an unclaimed folder is dead. A writer that
completes the output removes such folders; a writer that resumes takes one over first.
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
"""File handles of claimed folders by device and inode, which do not change in a rename."""


def new_folder(target: str, mark: str) -> str:
    """Return a unique name for the temporary folder of an output."""
    return f"{target}.{'-'.join(filter(None, ['partial', mark, uuid.uuid4().hex[:8]]))}"


def claim(folder: str) -> bool | None:
    """Claim a folder for this process, until it is released or the process ends.

    Returns
    -------
    bool or None
        False if a live writer has claimed it; None if the file system cannot tell.
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
    """Remove a folder and its content, then release it, so that no other writer can take it over."""
    handle = _handle(folder)
    shutil.rmtree(folder, ignore_errors=True)
    _close(handle)


def adopt(target: str, mark: str, folder: str) -> bool:
    """Rename the partial output of another writer with `mark`, the one with most files, to `folder`.

    The other writer may still be alive if a job was wrongly taken for dead; then it can publish nothing.

    Returns
    -------
    bool
        False if there is no such partial output.

    Warns
    -----
    RuntimeWarning
        The other writer still seems to be alive.
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
            continue  # another process was faster
        if claim(folder) is False:
            warnings.warn(
                f"Another process still writes {target!r}. This process continues with the finished "
                "parts, and the other one will fail; run only one at a time.",
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
    """Yield the temporary folders of an output with their marks."""
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
