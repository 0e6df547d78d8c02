"""Lightweight coresets from disk against only reading and decoding the rows, and against numpy."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.data.generate import generate
from tests.benchmarks.harness import REST, Options, Table, say, turns
from tests.benchmarks.ooc_fit import UnkeptRows

TAKES = (
    "about 4 minutes on 2 cores, and 3 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: half a minute and 0.2 GB)"
)

BYTES, QUICK_BYTES = 1 << 30, 1 << 26
FEATURES = (16, 64, 128)
SIZE = 1 << 15
TARGET = 1.15
CACHES = ("warm", "cold")


@dataclass(frozen=True)
class Took:
    """One run: seconds on the clock, and of all threads together."""

    wall: float
    cpu: float


def run(options: Options) -> list[Table]:
    """Return the tables of ratios on disk and in memory."""
    folder = options.folder("daskcluster-coreset")
    on_disk, in_memory = _disk_table(options), _memory_table(options)
    try:
        for d in FEATURES:
            n = (QUICK_BYTES if options.quick else BYTES) // (4 * d)
            path = _make(folder, n, d, options.threads)
            for cache in CACHES:
                found = _race(_programs(path, options.threads), options, path, cache)
                on_disk.rows.append(_disk_row(f"{n:,} x {d}", cache, found))
            found = _race(_programs_in_memory(path, options.threads), options, path, "warm")
            in_memory.rows.append(_memory_row(f"{n:,} x {d}", found))
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return [on_disk, in_memory]


def _make(folder: Path, n: int, d: int, threads: int) -> Path:
    path = folder / f"{n}x{d}.zarr"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        say(f"  {path.name} is being written")
        generate(str(path), n_rows=n, n_features=d, n_clusters=1000, spread=2.0, n_threads=threads)
    return path


def _programs(path: Path, threads: int) -> dict[str, Callable[[], Any]]:
    from daskcluster import LightweightCoreset

    engine = UnkeptRows(threads)

    def coreset() -> None:
        found = LightweightCoreset(SIZE, random_state=0, engine=engine).fit(str(path))
        if found.bytes_read_ != 2 * found.n_rows_ * 4 * found.n_features_in_:
            raise RuntimeError(f"{found.bytes_read_:,} bytes were read, not all rows twice.")

    return {"read": lambda: read_twice(path, threads), "coreset": coreset}


def read_twice(path: Path, threads: int) -> None:
    """Read and decode every chunk twice with zarr alone, on as many threads."""
    import zarr

    array = zarr.open_array(str(path), mode="r")
    step = array.chunks[0]
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(2):
            starts = range(0, array.shape[0], step)
            assert sum(pool.map(lambda start: len(array[start : start + step]), starts))


def _programs_in_memory(path: Path, threads: int) -> dict[str, Callable[[], Any]]:
    from daskcluster import LightweightCoreset, LocalEngine, open_dataset

    rows, engine = open_dataset(str(path)).to_numpy(), LocalEngine(threads)
    return {
        "numpy": lambda: numpy_coreset(rows, SIZE, 0),
        "coreset": lambda: LightweightCoreset(SIZE, random_state=0, engine=engine).fit(rows),
    }


def numpy_coreset(rows: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a lightweight coreset in the lines of the paper's algorithm 1, by numpy."""
    gaps = rows - rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
    sqdist = np.einsum("ij,ij->i", gaps, gaps).astype(np.float64)
    q = 0.5 / len(rows) + 0.5 * sqdist / sqdist.sum()
    picked = np.random.default_rng(seed).choice(len(rows), size, p=q / q.sum())
    return rows[picked], 1.0 / (size * q[picked])


def _race(
    programs: dict[str, Callable[[], Any]], options: Options, path: Path, cache: str
) -> dict[str, Took]:
    """Run every program in turns, after a first round that does not count; return medians."""
    say(f"  {path.name}, {' and '.join(programs)}, {cache} cache")
    took: dict[str, list[Took]] = {name: [] for name in programs}
    for program in programs.values():
        program()
    for name in turns(list(programs), options.repeats):
        if cache == "cold":
            _forget(path)
        time.sleep(REST)
        cpu, wall = time.process_time(), time.perf_counter()
        programs[name]()
        took[name].append(Took(time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: Took(
            statistics.median(one.wall for one in runs), statistics.median(one.cpu for one in runs)
        )
        for name, runs in took.items()
    }


def _forget(path: Path) -> None:
    """Let the system drop the files from its cache, as far as it heeds that."""
    os.sync()
    for file in path.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _disk_table(options: Options) -> Table:
    return Table(
        f"A coreset of {SIZE:,} rows from Zarr on disk, {options.threads} threads, float32: seconds, "
        f"medians of {options.repeats}",
        ["rows", "file cache", "read and decode twice", "coreset", "ratio", "target",
         "the same in CPU seconds", "coreset", "ratio"],
        notes=[
            "Chunks of 8 MB, blosc-zstd with bit shuffle: what `generate` and `convert` write. Noise "
            "hardly compresses, to nine tenths.",
            "Reading: zarr alone, whole chunks, as many threads. No partition stays in memory, so both "
            "read every chunk twice.",
            "Cold: the files are dropped from the file cache before each run (posix_fadvise); the "
            "second of the two passes finds them there again.",
            "CPU seconds are of all threads, and say what is computed beside decoding; on a machine "
            "that is not idle they are the steadier figure.",
        ],
    )  # fmt: skip


def _disk_row(rows: str, cache: str, found: dict[str, Took]) -> list[Any]:
    read, coreset = found["read"], found["coreset"]
    return [
        rows, cache, read.wall, coreset.wall, f"{coreset.wall / read.wall:.2f}", f"<= {TARGET:g}",
        read.cpu, coreset.cpu, f"{coreset.cpu / read.cpu:.2f}",
    ]  # fmt: skip


def _memory_table(options: Options) -> Table:
    return Table(
        f"The same from rows in memory: seconds, medians of {options.repeats}",
        ["rows", "numpy", "coreset", "numpy / coreset"],
        notes=[
            "numpy: mean, squared distances and choice over whole arrays, one thread (its sums and einsum "
            "have no more), with a copy of the rows and three values a row beside.",
        ],
    )


def _memory_row(rows: str, found: dict[str, Took]) -> list[Any]:
    numpy, coreset = found["numpy"].wall, found["coreset"].wall
    return [rows, numpy, coreset, f"{numpy / coreset:.1f}"]
