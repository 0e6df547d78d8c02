"""Where compiled kernels are kept on disk, and when they are out of date.

Numba takes a kept kernel as good while the file that defines it stays the same. Ours call kernels and
intrinsics of other files, whose machine code becomes part of theirs: so a kernel is good only while all
kernel sources, numba and llvmlite stay the same.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import (
    InTreeCacheLocator,
    IPythonCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

from daskcluster.kernels.features import GRANTED

_CONFIG: Any = numba.config


def _stamp() -> int:
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    package = Path(__file__).parents[1]
    for pattern in ("kernels/*.py", "methods/*/kernels.py", "methods/*/kernels/*.py"):
        for source in sorted(package.glob(pattern)):
            digest.update(source.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")


STAMP = _stamp()
"""Changes whenever a kernel source, numba or llvmlite does."""


@cache
def _digest_of(path: str) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest()


class _Stamped:
    """Of a kernel: `STAMP`, and the contents of its own file, which may lie elsewhere.

    What has features granted lies in a folder for these: machines without them never load it.
    """

    _py_file: str

    def get_cache_path(self) -> str:
        folder: str = super().get_cache_path()  # type: ignore[misc]
        return os.path.join(folder, GRANTED) if GRANTED else folder

    def get_source_stamp(self) -> tuple[int, bytes]:
        return STAMP, _digest_of(self._py_file)


class GivenFolder(_Stamped, UserProvidedCacheLocator):
    """The folder that NUMBA_CACHE_DIR names."""


class BesideSources(_Stamped, InTreeCacheLocator):
    """``__pycache__``."""


class UsersFolder(_Stamped, UserWideCacheLocator):
    """The user's folder for caches."""


_LOCATORS = (GivenFolder, BesideSources, UsersFolder, IPythonCacheLocator)
_NAMES = ",".join(f"{locator.__module__}.{locator.__name__}" for locator in _LOCATORS)
_LOCK = threading.Lock()


@contextmanager
def stamped() -> Iterator[None]:
    """Let functions that numba is given meanwhile be kept as above."""
    with _LOCK:
        before = _CONFIG.CACHE_LOCATOR_CLASSES
        _CONFIG.CACHE_LOCATOR_CLASSES = _NAMES
        try:
            yield
        finally:
            _CONFIG.CACHE_LOCATOR_CLASSES = before
