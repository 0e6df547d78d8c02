"""Peak memory of this process, and the file cache of the system."""

from __future__ import annotations

import gc
import os
import platform
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from daskcluster.host import give_back_memory


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


def added_bytes(run: Callable[[], Any]) -> int:
    """Return by how much memory grows at most while `run` runs."""
    gc.collect()
    give_back_memory()  # otherwise what was freed earlier could be used again
    before = psutil.Process().memory_info().rss
    forget_peak()
    run()
    return max(0, peak_bytes() - before)


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
