"""Peak memory of out-of-core fits, each in a separate process, against the promised maximum."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from daskcluster.data.generate import generate
from daskcluster.data.readahead import WINDOW_BYTES
from tests.benchmarks.comparisons.ooc_fit import MIXTURE, SEEDING, start
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.settings import Settings

SCRATCH = ("daskcluster-memory",)
N, QUICK_N, D, K = 10_000_000, 1_000_000, 16, 16
ITERATIONS, TRUNCATION = 6, 5
MEGABYTE = 1e6
ROW_BYTES = {
    "lloyd": 0,
    "hamerly": 12,
    "yinyang": 8 + 4 * -(-K // 10),
    "elkan": 8 + 4 * K,
    SEEDING: 4,
    MIXTURE: 4 * TRUNCATION,
}
"""Bytes of state per row."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each algorithm."""
    for name in ROW_BYTES:
        yield Cell(name, partial(measure, name, settings))


def measure(name: str, settings: Settings) -> Figures:
    """Return the peak memory of a fit above libraries and kernels, and the parts of the maximum."""
    from daskcluster import open_dataset

    n = QUICK_N if settings.quick else N
    path = settings.folder(SCRATCH[0]) / f"{n}x{D}.zarr"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        generate(str(path), n_rows=n, n_features=D, n_clusters=2 * K, n_threads=settings.threads)
    dataset = open_dataset(str(path))
    with tempfile.TemporaryDirectory(prefix="daskcluster-compare-") as folder:
        file = Path(folder) / "centres.npy"
        np.save(file, dataset.take(np.arange(K)))
        words = [str(path), str(file), name, ITERATIONS, settings.threads, ROW_BYTES[name]]
        found = start([str(word) for word in words])
    partition = max(dataset.bytes_of(span) for span in dataset.partitions)
    return {
        "n": n,
        "peak": found["peak_bytes"],
        "read": found["bytes_read"],
        "passes": found["passes"],
        "row_bytes": ROW_BYTES[name],
        "state": ROW_BYTES[name] * n,
        "window": WINDOW_BYTES,
        "partitions": 2 * settings.threads * partition,
        "statistics": settings.threads * 4 * 8 * K * (D + 2),
    }


def promised(one: Figures) -> int:
    """Return the most bytes that the fit may use."""
    return int(one["window"] + one["partitions"] + one["statistics"] + one["state"])


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    n = max(one["n"] for one in records.values())
    table = Table(
        f"MB of memory above libraries and kernels, {n:,} x {D} float32 in Zarr, k = {K}, "
        f"{settings.threads} threads",
        ["algorithm", "passes", "GB read", "state, bytes per row", "state",
         "window, partitions, statistics", "allowed", "peak", "peak / allowed"],
        notes=[
            "Allowed: one read-ahead window, two partitions per thread, statistics and model, and "
            "the state "
            "of all rows. The memory limit leaves no partition in memory between passes.",
            "Peak: VmHWM of a separate process, less its VmRSS before the fit.",
        ],
    )  # fmt: skip
    for name, one in records.items():
        allowed = promised(one)
        table.rows.append([
            name, one["passes"], one["read"] / 1e9, one["row_bytes"], f"{one['state'] / MEGABYTE:.0f}",
            f"{(allowed - one['state']) / MEGABYTE:.0f}", f"{allowed / MEGABYTE:.0f}",
            f"{one['peak'] / MEGABYTE:.0f}", f"{one['peak'] / allowed:.2f}",
        ])  # fmt: skip
    return [table]


def _read(records: Records) -> Reading | None:
    if set(records) < set(ROW_BYTES) or any(one["n"] < N for one in records.values()):
        return None
    shares = {name: one["peak"] / promised(one) for name, one in records.items()}
    worst = max(shares, key=shares.__getitem__)
    text = f"{min(shares.values()):.2f} to {shares[worst]:.2f} ({worst})"
    return Reading(text, shares[worst] <= 1)


TARGETS: tuple[Target, ...] = (
    Target(
        "memory",
        "Out-of-core fits: peak memory above the loaded libraries, relative to the promised maximum",
        "<= 1 (read-ahead window + 2 partitions per thread + statistics + model + state of all rows)",
        _read,
    ),
)
