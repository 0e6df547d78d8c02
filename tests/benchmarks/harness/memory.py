"""The most memory that a process had, and files out of the system's cache."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path


def peak_bytes() -> int:
    """Return the most memory that this process had at once since `forget_peak`, or since it began."""
    for line in read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    # Elsewhere on Linux: of a process that was forked, it begins with what its parent had.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if platform.system() == "Darwin" else most * 1024


def forget_peak() -> None:
    """Let the peak begin anew, where the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def drop_from_cache(file: Path) -> None:
    """Let the system drop a file from its cache, as far as it has one and heeds that."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        with file.open("rb") as opened:
            advise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: str) -> str:
    """Return what Linux says in a file; empty elsewhere."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
