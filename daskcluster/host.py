"""The host: how much memory it has, giving some back, and sizes as people write them."""

from __future__ import annotations

import ctypes
from pathlib import Path

import psutil


def host_memory() -> int:
    """Return the memory of this host in bytes, or of the control group that confines us."""
    limits = [psutil.virtual_memory().total]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library would keep it (glibc).

    Blocks of some MB that threads have freed stay with their threads: tens of MB for each of them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def format_bytes(count: float) -> str:
    """Return a size for people, e.g. ``'1.5 GiB'``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
