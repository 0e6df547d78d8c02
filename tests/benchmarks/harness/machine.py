"""The machine and the library versions that figures were measured with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from datetime import UTC, datetime
from typing import Any

import psutil

from tests.benchmarks.harness.mask import is_masked
from tests.benchmarks.harness.memory import read

LIBRARIES = (
    "daskcluster", "numpy", "numba", "llvmlite", "scikit-learn", "scikit-learn-intelex",
    "faiss-cpu", "dask", "distributed", "dask-ml", "zarr",
)  # fmt: skip


def facts() -> dict[str, Any]:
    """Return the machine, its load and the versions of the libraries, as plain values."""
    return {
        "date": today(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_gib()),
        "load": round(load(), 1),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {name: found for name in LIBRARIES if (found := version_of(name))},
    }


def lines_of(where: dict[str, Any]) -> list[str]:
    """Return `facts` as lines of a section."""
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    return [
        f"Date: {where['date']}",
        f"Machine: {where['cpu']}, {where['cores']} cores visible, {where['memory_gib']} GiB; "
        f"{where['system']}; load average before the run: {where['load']:.1f}",
        f"Versions: {versions}",
    ]


def today() -> str:
    """Return the date, as in 2026-11-21."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]


def version_of(name: str) -> str | None:
    """Return the version of a distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name == "daskcluster":
            import daskcluster

            return daskcluster.__version__
        return None


def cpu_name() -> str:
    """Return the processor's name and its widest vector extension."""
    text = read("/proc/cpuinfo")
    if not text:
        return platform.processor() or "unknown"
    found = re.search(r"model name\s*:\s*(.+)", text)
    flags = re.search(r"flags\s*:\s*(.+)", text)
    known = set(flags[1].split()) if flags else set()
    best = next((name for name in ("avx512f", "avx2") if name in known), "no AVX2")
    used = "avx2 only, AVX-512 switched off" if is_masked() and best == "avx512f" else best
    return f"{found[1].strip() if found else platform.machine()} ({used})"


def memory_gib() -> float:
    """Return the machine's memory in GiB."""
    return psutil.virtual_memory().total / 2**30
