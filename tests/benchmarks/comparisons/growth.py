"""Time of a Lloyd iteration by n, d, k, chunk size, threads and workers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tests.benchmarks.comparisons.lloyd import ITERATIONS, name_of
from tests.benchmarks.comparisons.ooc_fit import UnkeptRows
from tests.benchmarks.harness.bars import Lines, draw_lines
from tests.benchmarks.harness.cells import Cell, Figures, Records, Target
from tests.benchmarks.harness.iterations import per_iteration
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.peers import OURS, ours, present
from tests.benchmarks.harness.quality import fair
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.stores import write

SCRATCH: tuple[str, ...] = ()
BASE = {"n": 200_000, "d": 32, "k": 100}
SIZES = {
    "n": (25_000, 50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000),
    "d": (4, 8, 16, 32, 64, 128, 256, 512),
    "k": (10, 30, 100, 300, 1000, 3000),
}
CHUNK_ROWS = (1_000, 4_000, 16_000, 64_000, 200_000)
QUICK = 20
"""`--quick` divides the rows by this, and takes two sizes of each kind."""
MOST_REPEATS = 3
LEFT_OUT = ("dask-ml",)
"""Several times slower than the others; compared in `lloyd` and `lloyd-dask`."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each size of each kind."""
    for kind, sizes in SIZES.items():
        for size in sizes[:2] if settings.quick else sizes:
            yield Cell(f"{kind} = {size}", partial(measure, kind, size, settings))
    for chunk_rows in CHUNK_ROWS[:2] if settings.quick else CHUNK_ROWS:
        yield Cell(f"chunk rows = {chunk_rows}", partial(measure_chunks, chunk_rows, settings))
    cores = os.cpu_count() or 1
    for threads in _doubled(cores):
        yield Cell(f"threads = {threads}", partial(measure_threads, threads, settings))
    for workers in _doubled(min(cores, 8)):
        yield Cell(f"workers = {workers}", partial(measure_workers, workers, settings))


def _doubled(most: int) -> Sequence[int]:
    """Return 1, 2, 4 and so on, and `most`.

    Examples
    --------
    >>> _doubled(6)
    (1, 2, 4, 6)
    """
    powers = [2**i for i in range(most.bit_length()) if 2**i < most]
    return (*powers, most)


def _shape(settings: Settings, **sizes: int) -> tuple[int, int, int]:
    n, d, k = ({**BASE, **sizes}[name] for name in ("n", "d", "k"))
    return (n // QUICK if settings.quick else n), d, k


def measure(kind: str, size: int, settings: Settings) -> Figures:
    """Return the seconds per iteration of the comparable programs on rows in memory."""
    from daskcluster import quantization_error

    n, d, k = _shape(settings, **{kind: size})
    rows = mixture(n, d, k)
    centres = rows[:k].copy()
    peers = {name: fit for name, fit in present()[0].items() if name not in LEFT_OUT}
    programs = {
        name: partial(fit, rows, centres.copy(), ITERATIONS, settings.threads)
        for name, fit in {OURS: ours, **peers}.items()
    }
    found = race(programs, min(settings.repeats, MOST_REPEATS))
    costs = {
        name: quantization_error(rows, np.ascontiguousarray(one.value[0], np.float32))
        for name, one in found.items()
    }
    same, remarks = fair(costs[OURS], costs)
    return {
        "kind": kind,
        "size": size,
        "shape": name_of((n, d, k)),
        "seconds": {name: found[name].median / found[name].value[1] for name in same},
        "notes": remarks,
    }


def measure_chunks(chunk_rows: int, settings: Settings) -> Figures:
    """Return the seconds per iteration over a store with `chunk_rows` rows per chunk."""
    return _stored("chunk rows", chunk_rows, chunk_rows, UnkeptRows(settings.threads), settings)


def measure_threads(threads: int, settings: Settings) -> Figures:
    """Return the seconds per iteration on `threads` threads of this process."""
    from daskcluster import LocalEngine

    return _stored("threads", threads, 4_000, LocalEngine(threads), settings, k=1000)


def measure_workers(workers: int, settings: Settings) -> Figures:
    """Return the seconds per iteration on `workers` processes of one thread each."""
    from daskcluster.engine.connect import local_cluster

    with local_cluster(workers) as client:
        return _stored("workers", workers, 4_000, client, settings, k=1000)


def _stored(
    kind: str, size: int, chunk_rows: int, engine: object, settings: Settings, **sizes: int
) -> Figures:
    n, d, k = _shape(settings, **sizes)
    rows = mixture(n, d, k)
    repeats = min(settings.repeats, MOST_REPEATS)
    with tempfile.TemporaryDirectory(prefix="daskcluster-compare-") as folder:
        url = write(Path(folder) / "rows.zarr", rows, chunk_rows, "blosc-zstd")
        found = per_iteration(url, rows[:k].copy(), {OURS: engine}, repeats)
    return {"kind": kind, "size": size, "shape": name_of((n, d, k)), "seconds": found, "notes": []}


KINDS = {
    "n": "rows",
    "d": "features",
    "k": "clusters",
    "chunk rows": "rows per chunk, from Zarr, nothing cached",
    "threads": "threads, from Zarr",
    "workers": "worker processes of one thread, from Zarr",
}


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table and the plot."""
    peers = list(dict.fromkeys(name for one in records.values() for name in one["seconds"]))
    table = Table(
        f"Seconds per Lloyd iteration by size, {settings.threads} threads unless stated otherwise",
        ["varied", "value", "n, d, k", *peers],
        notes=[
            f"n, d and k: rows in memory; time of a fit divided by its {ITERATIONS} iterations, all "
            "from the "
            f"same centres. Others: rows in Zarr; (fit of {ITERATIONS + 2} - fit of 2) / {ITERATIONS}.",
            *dict.fromkeys(note for one in records.values() for note in one["notes"]),
        ],
    )
    curves: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for one in records.values():
        seconds = one["seconds"]
        table.rows.append(
            [one["kind"], f"{one['size']:,}", one["shape"], *(seconds.get(peer) for peer in peers)]
        )
        for name, value in seconds.items():
            sizes, values = curves.setdefault(one["kind"], {}).setdefault(name, ([], []))
            sizes.append(one["size"])
            values.append(max(value, 1e-6))
    panels = [
        Lines(kind, KINDS[kind].partition(",")[0], "seconds per iteration", curves[kind])
        for kind in KINDS
        if kind in curves
    ]
    text = "Seconds per Lloyd iteration by n, d, k, chunk size, threads and workers"
    return [table, draw_lines("bench-growth.svg", text, panels, settings.images)]


TARGETS: tuple[Target, ...] = ()
