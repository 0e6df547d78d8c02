"""How kernels are compiled: one place for the options, the cache and the choice of the tile.

Every kernel releases the GIL and is single-threaded, divides as NumPy does, and is never compiled
with `fastmath`: sums must keep their order and the chain of the canonical score its rounding. An FMA
is asked for by name.

Arrays are copied element by element, not ``a[:] = b[:n]``: for lengths that differ numba would compile a
message, which takes longer than most kernels.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit
from numba.core import event

from daskcluster.errors import InvalidParameterError
from daskcluster.kernels.cache import stamped
from daskcluster.kernels.compiling import announce
from daskcluster.kernels.features import GRANTED, WANTED, cpu_features

__all__ = ["compilations", "cpu_features", "kernel", "tile_name"]

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
    # Nobody calls a kernel as a C function: compiling that entry takes a tenth of the time.
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
    """Announces kernels that numba begins to compile, not those that it loads."""

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
    """Return how many kernels this process loaded from the cache, and how many it compiled."""
    stats = [compiled.stats for compiled in _KERNELS]
    hits = sum(sum(stat.cache_hits.values()) for stat in stats)
    return hits, sum(sum(stat.cache_misses.values()) for stat in stats)


@cache
def tile_name() -> str:
    """Return the tile to use: the override, or the widest that the CPU has.

    Raises
    ------
    InvalidParameterError
        If the environment variable DASKCLUSTER_TILE names no tile.
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
