"""Lightweight coresets from disk against only reading and decoding the rows, and against numpy."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.data.generate import generate
from tests.benchmarks.comparisons.ooc_fit import UnkeptRows
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.memory import drop_from_cache
from tests.benchmarks.harness.parts import Part, Table, ratio
from tests.benchmarks.harness.race import race, rest, turns
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.stores import read

SCRATCH = ("daskcluster-coreset",)
BYTES, QUICK_BYTES = 1 << 30, 1 << 26
FEATURES = (16, 64, 128)
SIZE = 1 << 15
TARGET = 1.15
CACHES, MEMORY = ("warm", "cold"), "in memory"


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield three cells for each number of features: warm cache, cold cache, and rows in memory."""
    for d in FEATURES:
        n = (QUICK_BYTES if settings.quick else BYTES) // (4 * d)
        for cache in CACHES:
            yield Cell(f"{n:,} x {d}, {cache}", partial(measure, n, d, cache, settings))
        yield Cell(f"{n:,} x {d}, {MEMORY}", partial(measure_in_memory, n, d, settings))


def measure(n: int, d: int, cache: str, settings: Settings) -> Figures:
    """Return seconds and CPU seconds of reading the rows twice, and of a coreset."""
    path = _store(n, d, settings)
    found = _race(_programs(path, settings.threads), settings, path, cache)
    return {"rows": f"{n:,} x {d}", "cache": cache, **found}


def measure_in_memory(n: int, d: int, settings: Settings) -> Figures:
    """Return the seconds of numpy and of a coreset of rows in memory."""
    path = _store(n, d, settings)
    found = race(_programs_in_memory(path, settings.threads), settings.repeats)
    seconds = {name: outcome.median for name, outcome in found.items()}
    return {"rows": f"{n:,} x {d}", "cache": MEMORY, **seconds}


def _store(n: int, d: int, settings: Settings) -> Path:
    """Return the path of the rows; the first cell that needs them writes them."""
    path = settings.folder(SCRATCH[0]) / f"{n}x{d}.zarr"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        generate(
            str(path), n_rows=n, n_features=d, n_clusters=1000, spread=2.0,
            n_threads=settings.threads,
        )  # fmt: skip
    return path


def _programs(path: Path, threads: int) -> dict[str, Callable[[], Any]]:
    from daskcluster import LightweightCoreset

    engine = UnkeptRows(threads)

    def coreset() -> None:
        found = LightweightCoreset(SIZE, random_state=0, engine=engine).fit(str(path))
        if found.bytes_read_ != 2 * found.n_rows_ * 4 * found.n_features_in_:
            raise RuntimeError(f"{found.bytes_read_:,} bytes were read; expected two full passes.")

    return {"read": partial(read, path, threads, 2), "coreset": coreset}


def _programs_in_memory(path: Path, threads: int) -> dict[str, Callable[[], Any]]:
    from daskcluster import LightweightCoreset, LocalEngine, open_dataset

    rows, engine = open_dataset(str(path)).to_numpy(), LocalEngine(threads)
    return {
        "numpy": lambda: numpy_coreset(rows, SIZE, 0),
        "coreset": lambda: LightweightCoreset(SIZE, random_state=0, engine=engine).fit(rows),
    }


def numpy_coreset(rows: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a lightweight coreset with numpy, by algorithm 1 of the paper."""
    gaps = rows - rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
    sqdist = np.einsum("ij,ij->i", gaps, gaps).astype(np.float64)
    q = 0.5 / len(rows) + 0.5 * sqdist / sqdist.sum()
    picked = np.random.default_rng(seed).choice(len(rows), size, p=q / q.sum())
    return rows[picked], 1.0 / (size * q[picked])


def _race(
    programs: dict[str, Callable[[], Any]], settings: Settings, path: Path, cache: str
) -> Figures:
    """Run the programs in turns, after a round to warm up; return medians.

    Unlike `race`, it can drop files from the cache before each run, and measures CPU seconds, too.
    """
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for program in programs.values():
        program()
    for name in turns(list(programs), settings.repeats):
        if cache == "cold":
            _forget(path)
        rest()
        cpu, wall = time.process_time(), time.perf_counter()
        programs[name]()
        took[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: {
            "wall": statistics.median(wall for wall, _ in runs),
            "cpu": statistics.median(cpu for _, cpu in runs),
        }
        for name, runs in took.items()
    }


def _forget(path: Path) -> None:
    """Ask the system to drop the files from its cache."""
    os.sync()
    for file in path.rglob("*"):
        if file.is_file():
            drop_from_cache(file)


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the tables of rows on disk and in memory."""
    on_disk = [one for one in records.values() if one["cache"] != MEMORY]
    in_memory = [one for one in records.values() if one["cache"] == MEMORY]
    return [
        *([_disk_table(on_disk, settings)] if on_disk else []),
        *([_memory_table(in_memory, settings)] if in_memory else []),
    ]


def _disk_table(found: list[Figures], settings: Settings) -> Table:
    return Table(
        f"Seconds for a coreset of {SIZE:,} rows from Zarr on disk, {settings.threads} threads, float32, "
        f"medians of {settings.repeats}",
        ["rows", "file cache", "read and decode twice", "coreset", "ratio", "target",
         "read and decode twice, CPU s", "coreset, CPU s", "ratio of CPU s"],
        [_disk_row(one) for one in found],
        [
            "Chunks of 8 MB, blosc-zstd with bit shuffle, as written by `generate` and `convert`. "
            "The noise "
            "only compresses to nine tenths.",
            "Read and decode: zarr alone, whole chunks, the same number of threads. No partition stays in "
            "memory, so both programs read every chunk twice.",
            "Cold: the files are dropped from the file cache before each run (posix_fadvise). The second "
            "of the two passes finds them in the cache again.",
            "CPU seconds are summed over threads. They show the work in addition to decoding, and vary "
            "less on a machine that is not idle.",
        ],
    )  # fmt: skip


def _disk_row(one: Figures) -> list[Any]:
    reading, coreset = one["read"], one["coreset"]
    return [
        one["rows"], one["cache"], reading["wall"], coreset["wall"], f"{_slower(one):.2f}",
        f"<= {TARGET:g}", reading["cpu"], coreset["cpu"], ratio(coreset["cpu"], reading["cpu"]),
    ]  # fmt: skip


def _slower(one: Figures) -> float:
    return float(one["coreset"]["wall"] / one["read"]["wall"])


def _memory_table(found: list[Figures], settings: Settings) -> Table:
    return Table(
        f"Seconds for the same coreset of rows in memory, medians of {settings.repeats}",
        ["rows", "numpy", "coreset", "numpy / coreset"],
        [
            [one["rows"], one["numpy"], one["coreset"], ratio(one["numpy"], one["coreset"], 1)]
            for one in found
        ],
        [
            "numpy: mean, squared distances and choice on whole arrays. It uses one thread (sums "
            "and einsum "
            "are not parallel), a copy of the rows, and three more values per row.",
        ],
    )


def _read(records: Records) -> Reading | None:
    ratios = [_slower(one) for one in records.values() if one["cache"] != MEMORY]
    if len(ratios) < len(FEATURES) * len(CACHES):
        return None
    return Reading(f"{min(ratios):.2f} to {max(ratios):.2f}", max(ratios) <= TARGET)


TARGETS: tuple[Target, ...] = (
    Target(
        "coreset",
        "Lightweight coreset of a Zarr store: time relative to reading and decoding it twice",
        f"<= {TARGET:g}",
        _read,
    ),
)
