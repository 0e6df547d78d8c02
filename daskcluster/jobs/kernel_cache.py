"""The cache of compiled kernels, filled ahead of time for this processor or for named ones."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding

from daskcluster.host import host_capabilities
from daskcluster.kernels.jit import SOURCES_DIGEST

_V2 = "cx16 fxsr mmx popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
CPUS = {
    "x86-64-v4": frozenset(f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl".split()),
    "x86-64-v3": frozenset(_V3.split()),
    "neoverse-n1": frozenset("crc dotprod fp-armv8 fullfp16 lse neon rcpc rdm".split()),
}
"""Features that code for a CPU may use; the first whose features a machine has suits it best."""

DIGEST_FILE = "stamp"

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


def take(shipped: Path, cache: Path, digest: int) -> str | None:
    """Copy the shipped kernels that suit this machine best into a cache.

    Parameters
    ----------
    shipped : Path
        A folder for each CPU, as ``daskcluster warm-up`` fills them.
    cache : Path
        NUMBA_CACHE_DIR of the processes to come. Files that are there already stay.
    digest : int
        Of the kernels that are installed here, see `daskcluster.kernels.jit.SOURCES_DIGEST`.

    Returns
    -------
    str or None
        The CPU whose `settings` these processes need; None if there are no kernels with this digest for it.
    """
    for cpu in runnable():
        folder = shipped / cpu
        file = folder / DIGEST_FILE
        if file.is_file() and file.read_text() == str(digest):
            for source in (path for path in folder.rglob("*") if path.is_file()):
                target = cache / source.relative_to(folder)
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target)
            return cpu
    return None


_ROWS, _FEATURES, _MOST_CLUSTERS = 2000, 6, 64


def fill() -> int:
    """Compile what fits call, for the CPU of this process; return how many kernels that were.

    Notes
    -----
    For both dtypes one height of the tile: bounds, mini-batches, streams, coresets, mixtures, sparse rows.
    In float32 all heights for `KMeans` without bounds or with one a row. What else there is, its first fit
    compiles: all heights of all would take ten times the room.
    """
    from daskcluster.kernels.jit import compilations

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations do not converge
        for dtype in (np.float32, np.float64):
            rows = np.random.default_rng(0).random((_ROWS, _FEATURES)).astype(dtype)
            for fit in _fits(rows):
                fit.fit(rows)
            _fit_sparse(rows)
    return compilations()[1]


def _fits(rows: np.ndarray) -> Iterator[Any]:
    import daskcluster as dc

    common: dict[str, Any] = {"random_state": 0, "max_iter": 4}
    for k in _one_of_each_height(rows.dtype) if rows.dtype == np.float32 else (40,):
        for algorithm in ("lloyd", "hamerly"):
            yield dc.KMeans(k, algorithm=algorithm, init=rows[:k], tol=0.0, **common)
    for algorithm in ("elkan", "yinyang"):
        yield dc.KMeans(40, algorithm=algorithm, init=rows[:40], tol=0.0, **common)
    for init in ("k-means++", "k-means||"):
        yield dc.KMeans(8, init=init, n_init=1, **common)
    yield dc.MiniBatchKMeans(8, **common)
    yield dc.NestedMiniBatchKMeans(8, **common)
    yield dc.StreamingKMeans(8, random_state=0)
    yield dc.CoresetKMeans(8, random_state=0)
    yield dc.VariationalGaussianMixture(16, **common)


def _one_of_each_height(dtype: np.dtype[Any]) -> list[int]:
    from daskcluster.kernels.tile import working_tile

    heights = {working_tile(k, dtype).height: k for k in range(_MOST_CLUSTERS, 1, -1)}
    return sorted(heights.values())


def _fit_sparse(rows: np.ndarray) -> None:
    from scipy import sparse

    import daskcluster as dc

    few = sparse.csr_array(np.where(rows > 0.7, rows, 0))
    for init in ("k-means++", "k-means||"):
        dc.KMeans(8, init=init, n_init=1, max_iter=4, random_state=0).fit(few)


def ship(cpu: str, folder: Path) -> None:
    """Fill ``folder/cpu`` with kernels for one of the `CPUS` of `kernel_targets`, in another process.

    Parameters
    ----------
    cpu : str
        One whose code this machine runs: kernels are compiled by calling them.
    folder : Path
    """
    output = folder / cpu
    output.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **settings(cpu), "NUMBA_CACHE_DIR": str(output.resolve())}
    environment.pop("DASKCLUSTER_TILE", None)
    subprocess.run(
        [sys.executable, "-m", "daskcluster", "warm-up", "--json"], env=environment, check=True
    )
    (output / DIGEST_FILE).write_text(str(SOURCES_DIGEST))
