"""Out-of-core k-means with bounds: bytes that need not be read, for rows in two orders."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.comparisons.ooc_fit import BOUNDS_BYTES, start
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.plots import Curve, Panel, draw
from tests.benchmarks.harness.race import say, turns
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.ooc_rows import Layout, prepare

ABOUT = (
    "out-of-core k-means with bounds against plain Lloyd: bytes read, time and memory, for "
    "rows in two orders"
)
TAKES = (
    "about a quarter of an hour on 2 cores, and 2.6 GB of disk in --scratch DIR, removed afterwards "
    "unless --keep (--quick: 3 minutes and 0.1 GB)"
)

ALGORITHMS = ("lloyd", "hamerly", "auto")
ITERATIONS = 60
LAYOUT = Layout(20_000_000, 16, 100, chunk_rows=8192, shard_rows=131_072)
QUICK = Layout(400_000, 16, 100, chunk_rows=256, shard_rows=16_384)
CLUSTERS = 50
MOST_REPEATS = 3
ORDERS = {"arrival": "cluster after cluster", "random": "random order"}
BYTES_TARGET, SECONDS_TARGET = 0.5, 1.10


def run(settings: Settings) -> list[Table | Figure | Note]:
    """Return the table of bytes, seconds and memory, and the plot of bytes per iteration."""
    layout, k = QUICK if settings.quick else LAYOUT, CLUSTERS
    table = Table(
        f"Out of core on {settings.threads} threads: {layout.n_rows:,} x {layout.n_features} float32, "
        f"k = {k}, at most {ITERATIONS} iterations from the same centres, medians of "
        f"{_repeats(settings)}",
        ["order of rows", "algorithm", "iterations", "rows checked", "GB read", "GB / lloyd", "target",
         "seconds", "seconds / lloyd", "target", "peak MB above baseline"],
        notes=_notes(layout),
    )  # fmt: skip
    panels = []
    folder = (settings.scratch or Path(tempfile.gettempdir())) / "daskcluster-bounds-ooc"
    try:
        paths = prepare(folder, layout, tuple(ORDERS), settings.threads)
        for order, path in zip(ORDERS, paths, strict=True):
            found = _compete(path, k, settings)
            check(order, found, layout)
            table.rows += _rows(order, found, layout)
            panels.append(_panel(order, found, layout))
    finally:
        if not settings.keep:
            shutil.rmtree(folder, ignore_errors=True)
    text = "Bytes read in each iteration, as a share of the bytes of all rows"
    return [table, draw("bounds_bytes.svg", text, panels, settings.images)]


def _repeats(settings: Settings) -> int:
    return min(settings.repeats, MOST_REPEATS)


def _compete(path: Path, k: int, settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of each algorithm in every round, all from the same centres."""
    from daskcluster import LocalEngine, kmeans_parallel

    say(f"  seeding by k-means|| on {path.name}")
    centres = kmeans_parallel(str(path), k, random_state=0, engine=LocalEngine(settings.threads))
    with tempfile.TemporaryDirectory(prefix="daskcluster-compare-") as folder:
        file = Path(folder) / "centres.npy"
        np.save(file, centres)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in ALGORITHMS}
        for name in turns(ALGORITHMS, _repeats(settings)):
            say(f"  {name}")
            words = [str(path), str(file), name, str(ITERATIONS), str(settings.threads)]
            found[name].append(start(words))
    return found


def check(order: str, found: dict[str, list[dict[str, Any]]], layout: Layout) -> None:
    """Check that all fits have the same result, and that no rows stayed in memory.

    Raises
    ------
    RuntimeError
        Centres, inertia or iterations are not those of lloyd, or lloyd read less than every pass.
    """
    plain = found["lloyd"][0]
    for name, runs in found.items():
        for one in runs:
            if any(one[field] != plain[field] for field in ("digest", "inertia", "n_iter")):
                raise RuntimeError(
                    f"rows in {order} order: {name} ended after {one['n_iter']} iterations with inertia="
                    f"{one['inertia']!r}, lloyd after {plain['n_iter']} with {plain['inertia']!r}, or "
                    "their centres differ; expected them to agree to the bit."
                )
    if plain["bytes_read"] < plain["passes"] * layout.n_bytes:
        raise RuntimeError(
            f"lloyd read {plain['bytes_read']:,} bytes in {plain['passes']} passes over "
            f"{layout.n_bytes:,}; expected every row to be read in every pass, but rows stayed in memory."
        )


def _rows(
    order: str, found: dict[str, list[dict[str, Any]]], layout: Layout
) -> Iterator[list[Any]]:
    seconds = {name: statistics.median(one["seconds"] for one in found[name]) for name in found}
    plain = found["lloyd"][0]["bytes_read"]
    for name, runs in found.items():
        one, bounded = runs[0], name != "lloyd"
        checked = sum(one["touched_by_iteration"]) / (layout.n_rows * one["n_iter"])
        yield [
            ORDERS[order],
            name,
            one["n_iter"],
            f"{checked:.0%}",
            f"{one['bytes_read'] / 1e9:.3g}",
            f"{one['bytes_read'] / plain:.2f}" if bounded else None,
            f"< {BYTES_TARGET:g}" if bounded and order == "arrival" else None,
            f"{seconds[name]:.3g}",
            f"{seconds[name] / seconds['lloyd']:.2f}" if bounded else None,
            f"<= {SECONDS_TARGET:.2f}" if bounded and order == "random" else None,
            f"{statistics.median(each['peak_bytes'] for each in runs) / 1e6:,.0f}",
        ]


def _notes(layout: Layout) -> list[str]:
    return [
        f"The rows come from {layout.n_sources} Gaussians. They are in a sharded Zarr array with "
        "inner chunks "
        f"of {layout.chunk_rows:,} rows ({layout.chunk_rows * layout.n_features * 4 / 1024:,.0f} kB); each "
        "inner chunk is read or skipped as a whole.",
        "Between passes, bounds and related state stay in memory (up to "
        f"{BOUNDS_BYTES} bytes per row), but no partition.",
        "Bytes and seconds include the final pass for the inertia, but not the seeding (k-means||), which "
        "is the same for all.",
        "Bytes are decoded bytes. They may come from the file cache of the system.",
        "Every fit runs in a separate process. The baseline is its resident size before the fit, with "
        "kernels loaded. The peak includes bounds, read-ahead and the partitions being processed.",
        "All algorithms give the same centres, inertia and number of iterations, to the bit.",
    ]


def _panel(order: str, found: dict[str, list[dict[str, Any]]], layout: Layout) -> Panel:
    curves = [
        Curve(name, np.array(runs[0]["bytes_by_iteration"]) / layout.n_bytes)
        for name, runs in found.items()
    ]
    return Panel(ORDERS[order], "bytes read / bytes of all rows", curves)
