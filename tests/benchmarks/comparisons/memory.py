"""Peak memory of fits out of core, in processes of their own, against what is promised of them."""

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
"""State that is kept for every row."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each algorithm."""
    for name in ROW_BYTES:
        yield Cell(name, partial(measure, name, settings))


def measure(name: str, settings: Settings) -> Figures:
    """Return the peak of a fit above the process with its libraries and kernels, and the promise."""
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
    """Return the bytes that the fit should stay below."""
    return int(one["window"] + one["partitions"] + one["statistics"] + one["state"])


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    n = max(one["n"] for one in records.values())
    table = Table(
        f"Peak memory out of core, {n:,} x {D} float32 in Zarr, k = {K}, {settings.threads} threads: MB "
        "above the process with libraries and kernels",
        ["algorithm", "passes", "GB read", "bytes a row", "state", "window, partitions, statistics",
         "allowed", "peak", "peak / allowed"],
        notes=[
            "Allowed: the read-ahead window once, two partitions a thread, statistics and model, and the "
            "state of all rows. A memory limit leaves no partition in memory between passes.",
            "Peak: VmHWM of a process of its own, less its VmRSS before the fit.",
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
    text = f"{min(shares.values()):.2f} to {shares[worst]:.2f} of it ({worst})"
    return Reading(text, shares[worst] <= 1)


TARGETS: tuple[Target, ...] = (
    Target(
        "memory",
        "out-of-core memory: peak RSS above the imported-library baseline",
        "<= read-ahead window + 2 partitions per thread + statistics + model + per-row state",
        _read,
    ),
)
