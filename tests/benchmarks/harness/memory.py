"""Peak memory of this process, and the file cache of the system."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes since `forget_peak`, or since its start."""
    for line in read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    # A fallback: the value of a forked process starts with the peak of its parent.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if platform.system() == "Darwin" else most * 1024


def forget_peak() -> None:
    """Reset the peak, if the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def drop_from_cache(file: Path) -> None:
    """Ask the system to drop a file from its cache."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        with file.open("rb") as opened:
            advise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: str) -> str:
    """Return the content of a file of /proc; empty on other systems."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
