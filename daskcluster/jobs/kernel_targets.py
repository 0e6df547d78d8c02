"""CPUs by name that kernels can be compiled for, to be shipped; which of them this machine is.

Imports no numba: it reads NUMBA_CPU_NAME and NUMBA_CPU_FEATURES when it is imported, and a cache of kernels
is good only under the two that it was filled under.
"""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from llvmlite import binding

from daskcluster.host import host_capabilities

_V2 = "cx16 fxsr mmx popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
CPUS = {
    "x86-64-v4": frozenset(f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl".split()),
    "x86-64-v3": frozenset(_V3.split()),
    "neoverse-n1": frozenset("crc dotprod fp-armv8 fullfp16 lse neon rcpc rdm".split()),
}
"""Features that code for a CPU may use; the first whose features a machine has suits it best."""

STAMP_FILE = "stamp"

_ARM_BITS = {
    "fp-armv8": 0, "neon": 1, "crc": 7, "lse": 8, "fullfp16": 10, "rdm": 12, "rcpc": 15, "dotprod": 20,
}  # fmt: skip
"""Documentation/arch/arm64/elf_hwcaps.rst of Linux."""


def runnable() -> list[str]:
    """Return the CPUs whose code this machine runs, the best one first."""
    there = _features()
    return [name for name, features in CPUS.items() if features <= there]


def _features() -> set[str]:
    """Return this machine's features by LLVM's names.

    LLVM reads /proc/cpuinfo on ARM, which lacks some of them and, where the processor is emulated, tells of
    the processor below. What Linux hands to each process is right in both places.
    """
    there = {name for name, has in binding.get_host_cpu_features().items() if has}
    if platform.machine() == "aarch64":
        there |= {name for name, bit in _ARM_BITS.items() if host_capabilities() >> bit & 1}
    return there


def settings(cpu: str) -> dict[str, str]:
    """Return the environment in which numba compiles for a CPU.

    Examples
    --------
    >>> settings("neoverse-n1")["NUMBA_CPU_FEATURES"]
    '+crc,+dotprod,+fp-armv8,+fullfp16,+lse,+neon,+rcpc,+rdm'
    """
    features = ",".join(f"+{name}" for name in sorted(CPUS[cpu]))
    return {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}


def take(shipped: Path, cache: Path, stamp: int) -> str | None:
    """Copy the shipped kernels that suit this machine best into a cache.

    Parameters
    ----------
    shipped : Path
        A folder for each CPU, as ``daskcluster warm-up`` fills them.
    cache : Path
        NUMBA_CACHE_DIR of the processes to come. Files that are there already stay.
    stamp : int
        Of the kernels that are installed here, see `daskcluster.kernels.cache.STAMP`.

    Returns
    -------
    str or None
        The CPU whose `settings` these processes need; None if there are no kernels of this stamp for it.
    """
    for cpu in runnable():
        folder = shipped / cpu
        file = folder / STAMP_FILE
        if file.is_file() and file.read_text() == str(stamp):
            for source in (path for path in folder.rglob("*") if path.is_file()):
                target = cache / source.relative_to(folder)
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target)
            return cpu
    return None
