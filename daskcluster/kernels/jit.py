"""Compilation of kernels with numba, their cache, and the arrays that they take."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba import njit
from numba.core import event
from numba.core.caching import (
    InTreeCacheLocator,
    IPythonCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

from daskcluster.errors import InvalidParameterError
from daskcluster.kernels.compiling import announce

_CONFIG: Any = numba.config

WANTED = {"avx512": ("avx512f", "avx512vl", "avx512dq"), "avx2": ("avx2", "fma")}
"""Features that the x86 tiles need, the widest tile first."""

_USED = {"avx512": ("avx512bw", "avx512vnni"), "avx2": ("avxvnni",)}
"""Further features that they use where the CPU has them; see `daskcluster.kernels.dot_product`."""

_PLAIN = {"generic", "x86-64", "x86-64-v2"}


def _of_host() -> frozenset[str]:
    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


def cpu_features() -> frozenset[str]:
    """Return the names of the CPU features that code is compiled for.

    NUMBA_CPU_NAME and NUMBA_CPU_FEATURES are honoured: with either set, only the features named there
    count, since nothing else is known of that CPU; see `GRANTED` for the generic CPU.
    """
    if _CONFIG.CPU_FEATURES is not None:
        parts = str(_CONFIG.CPU_FEATURES).split(",")
        return frozenset(part[1:] for part in parts if part.startswith("+"))
    return frozenset() if _CONFIG.CPU_NAME is not None else _of_host()


def _widest(features: Iterable[str]) -> str:
    """Return the features of the widest usable x86 tile, in LLVM's notation."""
    there = set(features)
    for tile, wanted in WANTED.items():
        if there.issuperset(wanted):
            used = (name for name in _USED[tile] if name in there)
            return ",".join(f"+{name}" for name in (*wanted, *used))
    return ""


def _granted() -> str:
    plain = _CONFIG.CPU_NAME in _PLAIN and not _CONFIG.CPU_FEATURES
    return _widest(_of_host()) if plain else ""


GRANTED = _granted()
"""Features of this CPU that intrinsics use although everything else is compiled for a generic x86. With
NUMBA_CPU_NAME=generic, different machines can share a cache folder, and each runs its best tile."""

TILE_FEATURES = GRANTED or _widest(cpu_features())
"""Features that tiles are compiled for, on x86."""


_PACKAGE = Path(__file__).parents[1]
_IMPORTS = re.compile(
    rb"^[ \t]*(?:from[ \t]+daskcluster\.([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
    rb"|import[ \t]+daskcluster\.([\w.]+))",
    re.MULTILINE,
)


def sources_digest() -> int:
    """Return a digest of all kernel sources, and of the versions of numba and llvmlite."""
    patterns = ("kernels/*.py", "methods/*/kernels.py", "methods/*/kernels/*.py")
    return _digest(path for pattern in patterns for path in _PACKAGE.glob(pattern))


@cache
def digest_of_uses(path: Path) -> int:
    """Return a digest of a kernel source and of those that it imports, which its kernels may call."""
    found, new = set[Path](), {path}
    while new:
        found |= new
        new = {used for source in new for used in _imported(source)} - found
    return _digest(found)


def _digest(sources: Iterable[Path]) -> int:
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for source in sorted(sources):
        digest.update(_content(source))
    return int.from_bytes(digest.digest()[:6], "big")


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _imported(path: Path) -> frozenset[Path]:
    """Return the kernel sources that a source names in imports; a search, for it is done at every start."""
    names: set[str] = set()
    for module, some, plain in _IMPORTS.findall(_content(path)):
        parent = (module or plain).decode()
        names |= {parent, *(f"{parent}.{name.decode()}" for name in re.findall(rb"\w+", some))}
    places = (_PACKAGE.joinpath(*name.split(".")) for name in names if "kernels" in name)
    files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
    return frozenset(file for file in files if file.is_file())


class _Stamped:
    """Base of the cache locators: the cache is keyed by the digest of the sources that a kernel uses.

    Each digest has its own folder, because numba unpickles an index before it compares stamps, and the
    index of another version may name classes that no longer exist. Granted features have their own folder,
    too, so that machines without them never load those kernels.
    """

    _py_file: str

    def get_cache_path(self) -> str:
        folder: str = super().get_cache_path()  # type: ignore[misc]
        return os.path.join(folder, f"{self._digest():012x}", GRANTED)

    def get_source_stamp(self) -> int:
        return self._digest()

    def _digest(self) -> int:
        return digest_of_uses(Path(self._py_file))


class GivenFolder(_Stamped, UserProvidedCacheLocator):
    """The folder in NUMBA_CACHE_DIR, where installations of the package anywhere share its kernels."""

    def get_cache_path(self) -> str:
        if not Path(self._py_file).is_relative_to(_PACKAGE):
            return super().get_cache_path()
        return os.path.join(_CONFIG.CACHE_DIR, f"{self._digest():012x}", GRANTED)


class SourceFolder(_Stamped, InTreeCacheLocator):
    """``__pycache__``."""


class UsersFolder(_Stamped, UserWideCacheLocator):
    """The user's folder for caches."""


_LOCATORS = (GivenFolder, SourceFolder, UsersFolder, IPythonCacheLocator)
_NAMES = ",".join(f"{locator.__module__}.{locator.__name__}" for locator in _LOCATORS)
_LOCK = threading.Lock()


@contextmanager
def stamped() -> Iterator[None]:
    """While this is open, functions that numba compiles are cached by these locators."""
    with _LOCK:
        before = _CONFIG.CACHE_LOCATOR_CLASSES
        _CONFIG.CACHE_LOCATOR_CLASSES = _NAMES
        try:
            yield
        finally:
            _CONFIG.CACHE_LOCATOR_CLASSES = before


OVERRIDE = "DASKCLUSTER_TILE"
"""Environment variable that forces a tile: avx512, avx2, neon or portable."""

TILES = ("avx512", "avx2", "neon", "portable")


_KERNELS: list[Any] = []


@cache
def _warn_uncached(reason: str) -> None:
    warnings.warn(
        f"kernels are compiled in every process ({reason}): no writable cache folder was found; "
        "set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=3,
    )


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` with the options that all kernels share.

    Parameters
    ----------
    function : callable
        A loop over plain arrays in the subset of Python that numba understands.
    """
    # Kernels are never called as C functions; leaving out that entry saves a tenth of the time.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        with stamped():
            compiled = njit(cache=True, **options)(function)
    except RuntimeError as error:  # numba: no locator available
        _warn_uncached(str(error).split(":")[0])
        compiled = njit(cache=False, **options)(function)
    _KERNELS.append(compiled)
    return compiled


class _Announcer(event.Listener):
    """Announces kernels that numba starts to compile, but not those loaded from the cache."""

    def __init__(self) -> None:
        self._number = 0

    def on_start(self, event: Any) -> None:
        # Numba compiles functions of its own, too.
        if event.data["dispatcher"] in _KERNELS:
            self._number += 1
            announce(self._number)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcer())


def compilations() -> tuple[int, int]:
    """Return the number of kernels that this process loaded from the cache, and that it compiled."""
    stats = [compiled.stats for compiled in _KERNELS]
    hits = sum(sum(stat.cache_hits.values()) for stat in stats)
    return hits, sum(sum(stat.cache_misses.values()) for stat in stats)


@cache
def tile_name() -> str:
    """Return the name of the tile to use: the override, or the widest that the CPU supports.

    Raises
    ------
    InvalidParameterError
        The environment variable DASKCLUSTER_TILE is not the name of a tile.
    """
    forced = os.environ.get(OVERRIDE)
    if forced is not None:
        if forced not in TILES:
            known = ", ".join(TILES)
            raise InvalidParameterError(
                f"{OVERRIDE}={forced!r} should be one of {known}; unset it to let the CPU decide."
            )
        return forced
    features = cpu_features() | {part[1:] for part in GRANTED.split(",")}
    for name, wanted in WANTED.items():
        if features.issuperset(wanted):
            return name
    if "neon" in features or platform.machine().lower() in {"arm64", "aarch64"}:
        return "neon"
    return "portable"


_LINE = 64

NO_WEIGHTS = np.empty(0)
"""Stands for "all weights are one"."""


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a read-only view.

    Read-only arrays (memory maps, blocks from Dask) are another type for numba. If all inputs are passed as
    read-only, a kernel is compiled once, not twice.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def weights_or_none(weights: np.ndarray | None) -> np.ndarray:
    """Return weights for a kernel that takes an empty array as "all ones"."""
    return read_only(NO_WEIGHTS if weights is None else weights)


def aligned_zeros(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Return zeros that start at a cache line.

    For sums that are updated, and panels that are read, vector by vector. At an unaligned address, every
    vector straddles two cache lines: `daskcluster.kernels.accumulate.accumulate` would be a fifth slower.
    """
    size, item = math.prod(shape), np.dtype(dtype).itemsize
    room = np.zeros(size + _LINE // item, dtype)
    skip = -room.ctypes.data % _LINE // item
    return room[skip : skip + size].reshape(shape)
