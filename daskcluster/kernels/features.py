"""CPU features of this machine, and those that kernels are compiled for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numba
from llvmlite import binding

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
