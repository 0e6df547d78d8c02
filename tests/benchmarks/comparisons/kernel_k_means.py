"""Kernel k-means on MNIST: truncated mini-batches against full batches."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target, at_least
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.peers import quietly
from tests.benchmarks.harness.rows import MNIST, pixels
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
CLUSTERS, BATCH, TAU = 10, 1024, 200
STEPS, FULL_ITERATIONS = 40, 10
QUICK_ROWS, QUICK_FULL_ITERATIONS = 3_000, 2
LATE = 10
"""Number of last steps that are timed, when windows are full."""
TARGET = 100.0
TRUNCATED, FULL = "truncated mini-batches", "full batch"


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield the cells of truncated mini-batches and of the full batch."""
    yield Cell(TRUNCATED, partial(measure, TRUNCATED, settings))
    yield Cell(FULL, partial(measure, FULL, settings))


def measure(program: str, settings: Settings) -> Figures:
    """Return the seconds per step, and the final mean squared distance in the kernel's feature space."""
    rows, source = pixels(settings.data)
    rows = rows[:QUICK_ROWS] if settings.quick else rows
    quietly(_estimator(program, settings, steps=2), np.ascontiguousarray(rows[:1100]))
    steps = STEPS if program == TRUNCATED else _full_iterations(settings)
    model = quietly(_estimator(program, settings, steps), rows)
    records = model.history_[-LATE:] if program == TRUNCATED else model.history_
    return {
        "source": source,
        "rows": len(rows),
        "steps": len(model.history_),
        "seconds": statistics.median(record["seconds"] for record in records),
        "gram_seconds": statistics.median(record.get("gram_seconds", 0.0) for record in records),
        "cost": float(model.inertia_) / len(rows),
    }


def _full_iterations(settings: Settings) -> int:
    return QUICK_FULL_ITERATIONS if settings.quick else FULL_ITERATIONS


def _estimator(program: str, settings: Settings, steps: int) -> Any:
    import daskcluster as dc

    both: dict[str, Any] = {
        "kernel": "rbf",
        "max_iter": steps,
        "random_state": 0,
        "engine": dc.LocalEngine(settings.threads),
    }
    if program == FULL:
        return dc.KernelKMeans(CLUSTERS, **both)
    return dc.MiniBatchKernelKMeans(CLUSTERS, batch_size=BATCH, truncation=TAU, **both)


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    one = next(iter(records.values()))
    table = Table(
        f"Kernel k-means of {one['rows']:,} x 784 ({one['source']}), rbf, k = {CLUSTERS}, "
        f"{settings.threads} threads",
        ["program", "steps", "seconds per step", "for kernel values", "full batch / this", "target",
         "mean squared distance"],
        notes=[
            f"b = {BATCH}, tau = {TAU}; medians of the last {LATE} steps, when windows are full, and of "
            "all iterations of the full batch. Kernel values are computed when they are needed.",
            "Mean squared distance of all rows in the kernel's feature space, after the last step.",
        ],
    )  # fmt: skip
    for name, each in records.items():
        found = _ratio(records) if name == TRUNCATED else None
        table.rows.append([
            name, each["steps"], each["seconds"], each["gram_seconds"], found,
            f">= {TARGET:g}" if name == TRUNCATED else None, f"{each['cost']:.4f}",
        ])  # fmt: skip
    return [table]


def _ratio(records: Records) -> float | None:
    if not {TRUNCATED, FULL} <= set(records):
        return None
    return float(records[FULL]["seconds"] / records[TRUNCATED]["seconds"])


def _read(records: Records) -> Reading | None:
    found = _ratio(records)
    if found is None or any(
        one["source"] != MNIST or one["rows"] < 70_000 for one in records.values()
    ):
        return None
    return at_least(found, TARGET, "{:.0f}")


TARGETS: tuple[Target, ...] = (
    Target(
        "kernel-k-means",
        "Truncated mini-batch kernel k-means, MNIST, 70,000 rows: speed-up of an iteration over the full "
        f"batch ({FULL_ITERATIONS} iterations)",
        f">= {TARGET:g}",
        _read,
    ),
)
