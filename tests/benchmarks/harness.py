"""Races, tables and the description of the machine.

Times of a shared machine drift by a third; ratios within one run hold. So every comparison runs all
programs in the same process tree, in rotated order, and quotes the median of the repeats.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = (
    "daskcluster", "numpy", "numba", "llvmlite", "scikit-learn", "scikit-learn-intelex",
    "faiss-cpu", "dask", "distributed", "dask-ml", "zarr",
)  # fmt: skip

REST = 0.25
"""Seconds before each run, in which threads of the run before stop spinning (OpenMP's up to 0.2)."""


@dataclass(frozen=True)
class Options:
    """What the command line asked for.

    Attributes
    ----------
    quick : bool
    data, scratch : Path or None
        Folder of data sets; folder for large files that a benchmark writes.
    threads, repeats : int
    images : Path or None
        Folder for plots, beside the file that gets the section; None where only text is wanted.
    keep : bool
        Leave what was written to `scratch` for the next run.
    seeds : int
        Random beginnings, of benchmarks that average over them.
    sets : tuple of str
        Only these sets, of benchmarks that have several; empty for all.
    """

    quick: bool = False
    data: Path | None = None
    threads: int = 2
    repeats: int = 5
    scratch: Path | None = None
    images: Path | None = None
    keep: bool = False
    seeds: int = 20
    sets: tuple[str, ...] = ()

    def folder(self, name: str) -> Path:
        """Return the folder `name` for large files."""
        return (self.scratch or Path(tempfile.gettempdir())) / name


@dataclass
class Table:
    """A table of results with remarks below it."""

    title: str
    header: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", _row(self.header), _row(["---"] * len(self.header))]
        lines += [_row(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Figure:
    """A plot, by its path from the file that shows it, and what it shows."""

    path: str
    text: str

    def markdown(self) -> str:
        return f"![{self.text}]({self.path})\n"


@dataclass(frozen=True)
class Note:
    """A remark on its own, such as why a plot is missing."""

    text: str

    def markdown(self) -> str:
        return f"{self.text}\n"


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


def say(text: str) -> None:
    """Tell the person at the terminal what is going on; results go to stdout."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Outcome:
    """Seconds of every repeat of one program, and what its last run returned."""

    seconds: tuple[float, ...]
    value: Any

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def race(
    programs: dict[str, Callable[[], Any]],
    repeats: int,
    warm_up: dict[str, Callable[[], Any]] | None = None,
) -> dict[str, Outcome]:
    """Run every program `repeats` times, each round starting with another one.

    A first, unmeasured round lets compilers compile and pools start. Programs that run long have
    shorter ones of the same kind in `warm_up`.
    """
    values = {name: program() for name, program in (warm_up or programs).items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for name in turns(list(programs), repeats):
        time.sleep(REST)
        begin = time.perf_counter()
        values[name] = programs[name]()
        seconds[name].append(time.perf_counter() - begin)
    return {name: Outcome(tuple(seconds[name]), values[name]) for name in programs}


def turns(names: Sequence[str], repeats: int) -> Iterator[str]:
    """Yield every name once a round, each round starting with another one."""
    for turn in range(repeats):
        first = turn % len(names)
        yield from (*names[first:], *names[:first])


def mixture(n: int, d: int, k: int, seed: int = 0, *, spread: float = 1.0) -> np.ndarray:
    """Return rows of a mixture of 2 k unit Gaussians, float32, shape (n, d).

    `spread` is the standard deviation of their centres.
    """
    rng = np.random.default_rng(seed)
    centres = np.float32(spread) * rng.standard_normal((2 * k, d), dtype=np.float32)
    rows = rng.standard_normal((n, d), dtype=np.float32)
    step = max(1, (1 << 22) // d)
    for first in range(0, n, step):
        block = rows[first : first + step]
        block += centres[rng.integers(0, 2 * k, len(block))]
    return rows


def mnist(folder: Path | None) -> tuple[np.ndarray, str]:
    """Return 60,000 x 784 float32 rows and where they come from."""
    path = None if folder is None else folder / "mnist.npz"
    if path is None or not path.exists():
        return mixture(60_000, 784, 50), "generated (no mnist.npz: give --data)"
    with np.load(path) as file:
        name = "X" if "X" in file.files else max(file.files, key=lambda key: file[key].size)
        rows = np.asarray(file[name])
    rows = rows.reshape(len(rows), -1)[:60_000].astype(np.float32)
    if rows.max() > 1:
        rows /= 255
    return np.ascontiguousarray(rows[np.random.default_rng(0).permutation(len(rows))]), "MNIST"


def machine() -> list[str]:
    """Return lines that say where and with what the figures were made."""
    versions = [f"{name} {version}" for name in LIBRARIES if (version := version_of(name))]
    return [
        f"Date: {datetime.now(UTC):%Y-%m-%d}",
        f"CPU: {cpu_name()}, {os.cpu_count()} cores visible, {memory_gib():.0f} GiB",
        f"Load average of the last minute before the run: {load():.1f}",
        f"System: {platform.system()} {platform.machine()}, Python {platform.python_version()}",
        f"Versions: {', '.join(versions)}",
    ]


def load() -> float:
    return os.getloadavg()[0]


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name == "daskcluster":
            import daskcluster

            return daskcluster.__version__
        return None


def cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    found = re.search(r"model name\s*:\s*(.+)", text)
    flags = set((re.search(r"flags\s*:\s*(.+)", text) or ["", ""])[1].split())
    best = next((name for name in ("avx512f", "avx2") if name in flags), "no AVX2")
    return f"{found[1].strip() if found else platform.machine()} ({best})"


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def peak_flops(dtype: Any, threads: int) -> float:
    """Return the machine's measured FMA peak in FLOP/s."""
    from tests.benchmarks.fma_peak import fma_peak

    return float(fma_peak(dtype, threads))


def write_section(path: Path, name: str, text: str) -> None:
    """Put a section into a Markdown file, in place of the one of the same name."""
    begin, end = f"<!-- benchmark: {name} -->", f"<!-- end: {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: section, old)
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    path.write_text(new, encoding="utf-8")
