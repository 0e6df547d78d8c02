"""What the C library does with freed memory when it is reported to keep little."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from daskcluster.host import keep_no_blocks_over

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs the allocator of glibc"
)

PROGRAM = """
import ctypes, os, sys, threading
from daskcluster.host import keep_no_blocks_over

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

figures = os.open("/proc/self/statm", os.O_RDONLY)

def resident():
    # What is small is not of the C library, and does not stand above the blocks.
    return int(os.pread(figures, 100, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")

def fill(count, size):
    blocks = (ctypes.c_void_p * count)()
    for i in range(count):
        blocks[i] = libc.malloc(size)
        ctypes.memset(blocks[i], 1, size)
    most = resident()
    for block in blocks:
        libc.free(block)
    return most

def work():
    fill(1, 16 << 20)  # from here on the C library keeps blocks of this size
    if int(sys.argv[1]):
        keep_no_blocks_over(int(sys.argv[1]))
    before = fill(64, 1 << 18)  # each of them smaller than what is handed back at once
    print((before - resident()) >> 20)

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def handed_back(n_bytes: int, **environment: str) -> int:
    """Return how many MiB of 16 a thread's heap hands back when they are freed."""
    inherited = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(n_bytes)],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_small_blocks_that_are_freed_together_go_back_to_the_system() -> None:
    assert handed_back(0) < 2  # as the C library does it
    assert handed_back(1 << 20) >= 14
    assert handed_back(1 << 25) >= 14  # every thread has such a heap


def test_settings_of_the_environment_are_kept() -> None:
    assert handed_back(1 << 20, MALLOC_TRIM_THRESHOLD_=str(1 << 28)) < 2


def test_no_allocator_with_such_settings_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_no_blocks_over(1 << 20)
