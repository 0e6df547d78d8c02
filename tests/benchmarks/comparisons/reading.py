"""Passes over a store by codec and chunk size: reading alone, and a Lloyd iteration."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from functools import partial

from tests.benchmarks.comparisons.ooc_fit import UnkeptRows
from tests.benchmarks.harness.bars import Lines, draw_lines
from tests.benchmarks.harness.cells import Cell, Figures, Records, Target
from tests.benchmarks.harness.iterations import per_iteration
from tests.benchmarks.harness.parts import Part, Table, ratio
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.stores import CODECS, bytes_of, read, write

SCRATCH = ("daskcluster-reading",)
N, QUICK_N, D, K = 2_000_000, 100_000, 32, 50
CHUNK_MEGABYTES, QUICK_CHUNK_MEGABYTES = (0.5, 2.0, 8.0, 32.0), (0.5, 2.0)
ITERATIONS, MOST_REPEATS = 4, 3
MEGABYTE = 1e6


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each codec and size of chunks."""
    sizes = QUICK_CHUNK_MEGABYTES if settings.quick else CHUNK_MEGABYTES
    for codec, megabytes in itertools.product(CODECS, sizes):
        yield Cell(f"{codec}, {megabytes:g} MB", partial(measure, codec, megabytes, settings))


def measure(codec: str, megabytes: float, settings: Settings) -> Figures:
    """Return the seconds of a pass by zarr alone, and of a Lloyd iteration that reads every chunk."""
    n = QUICK_N if settings.quick else N
    rows = mixture(n, D, K)
    path = settings.folder(SCRATCH[0]) / "rows.zarr"
    chunk_rows = max(1, int(megabytes * MEGABYTE / (4 * D)))
    url, repeats = write(path, rows, chunk_rows, codec), min(settings.repeats, MOST_REPEATS)
    try:
        alone = race({"read": partial(read, url, settings.threads)}, repeats)["read"].median
        engines = {"lloyd": UnkeptRows(settings.threads)}
        each = per_iteration(url, rows[:K].copy(), engines, repeats, ITERATIONS)["lloyd"]
        stored = bytes_of(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return {
        "codec": codec,
        "megabytes": megabytes,
        "bytes": rows.nbytes,
        "stored": stored,
        "read": alone,
        "lloyd": each,
    }


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table and the plot."""
    n = max(one["bytes"] for one in records.values()) // (4 * D)
    table = Table(
        f"Decoded MB/s of a pass over {n:,} x {D} float32 in Zarr, file cache warm, {settings.threads} "
        "threads",
        ["codec", "chunks, MB", "size on disk", "zarr alone", f"Lloyd, k = {K}",
         "time of Lloyd / zarr alone"],
        [
            [one["codec"], one["megabytes"], f"{one['stored'] / one['bytes']:.0%}",
             _speed(one, "read"), _speed(one, "lloyd"), ratio(one["lloyd"], one["read"])]
            for one in records.values()
        ],
        [
            f"Lloyd: (fit of {ITERATIONS + 2} iterations - fit of 2 iterations) / {ITERATIONS}. No "
            "partition "
            "stays in memory, so every iteration reads and decodes every chunk.",
            "zstd is the default of zarr; `daskcluster convert` writes blosc-zstd with bit shuffle.",
        ],
    )  # fmt: skip
    curves: dict[str, dict[str, tuple[list[float], list[float]]]] = {"read": {}, "lloyd": {}}
    for one in records.values():
        for kind, found in curves.items():
            sizes, values = found.setdefault(one["codec"], ([], []))
            sizes.append(one["megabytes"])
            values.append(_speed(one, kind))
    panels = [
        Lines(title, "MB of a chunk", "decoded MB/s", curves[kind])
        for kind, title in (("read", "zarr alone"), ("lloyd", "Lloyd iteration"))
    ]
    text = "Speed of a pass over a store by codec and chunk size"
    return [table, draw_lines("bench-reading.svg", text, panels, settings.images)]


def _speed(one: Figures, kind: str) -> float:
    return float(one["bytes"] / MEGABYTE / max(one[kind], 1e-9))


TARGETS: tuple[Target, ...] = ()
