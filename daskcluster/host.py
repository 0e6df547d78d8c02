"""The host: its memory, its cores and capabilities, and sizes in human units.

What is not on every POSIX system is asked for here alone, and each has another way where it is missing.
"""

from __future__ import annotations

import ctypes
import os
import platform
import secrets
import struct
import time
from functools import lru_cache
from pathlib import Path

import psutil

MOST_KEPT_BLOCK = 32 * 1024**2
"""Freed blocks beyond this size always go back to the system: glibc's largest threshold."""

_MOST_KEPT_END = 1024**2
"""Every arena has a free end, and almost every thread an arena."""
_OPTIONS = (
    ("MALLOC_MMAP_THRESHOLD_", -3, MOST_KEPT_BLOCK),
    ("MALLOC_TRIM_THRESHOLD_", -1, _MOST_KEPT_END),
)
"""Options of mallopt(3): environment variable, number, and the largest value that we set."""

_AT_HWCAP = 16

_token = 0


def process_token() -> int:
    """Return a number that no other process has, on any machine; numbers of processes are not such.

    The first process of every container has the number 1.
    """
    return _token


def _draw_token() -> None:
    global _token  # noqa: PLW0603  (a forked process needs another one)
    _token = secrets.randbits(63)


_draw_token()
os.register_at_fork(after_in_child=_draw_token)


def host_memory() -> int:
    """Return the memory of this host in bytes, or of the control group that confines us.

    It is read every ten seconds at most, because reading it takes as long as the labels of some rows.
    """
    return _memory_in(int(time.monotonic() // 10))


@lru_cache(maxsize=1)
def _memory_in(period: int) -> int:
    limits = [psutil.virtual_memory().total]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)


def usable_cores() -> int:
    """Return the cores that this process may use; all, where the system does not confine processes."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_name() -> str:
    """Name the machine and, on Linux, its boot: two containers of one name are two machines."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        boot = ""
    return f"{platform.node()}/{boot}"


def host_capabilities() -> int:
    """Return what Linux says of the processor in bits (AT_HWCAP of getauxval(3)); 0 elsewhere."""
    try:
        vector = Path("/proc/self/auxv").read_bytes()
    except OSError:
        return 0
    return int(dict(struct.iter_unpack("@NN", vector)).get(_AT_HWCAP, 0))


def give_back_memory() -> None:
    """Return freed memory to the system, where the C library would keep it (glibc).

    Blocks of some MB that threads have freed stay with their threads: tens of MB for each of them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_no_blocks_over(n_bytes: int) -> None:
    """Have freed blocks and free ends of arenas return to the system at once, if over `n_bytes` (glibc).

    Otherwise the C library, once a large block was freed, keeps those of its size for good, in as many
    arenas as there are threads, and twice as much where smaller ones end. What the environment says of it
    (``MALLOC_MMAP_THRESHOLD_``, ``MALLOC_TRIM_THRESHOLD_``) stays.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        for name, option, most in _OPTIONS:
            if name not in os.environ:
                set_option(option, min(n_bytes, most))


def format_limit(count: int) -> str:
    """Return a size that a person gave in its own unit, e.g. ``'1 GB'`` or ``'512 MiB'``.

    Examples
    --------
    >>> format_limit(10**9), format_limit(512 << 20), format_limit(1_234_567_890)
    ('1 GB', '512 MiB', '1.1 GiB')
    """
    for unit, size in (("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6)):
        if count and count % size == 0:
            return f"{count // size:,} {unit}"
    return format_bytes(count)


def format_bytes(count: float) -> str:
    """Return a size for people, e.g. ``'1.5 GiB'``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
