"""Mini-batch kernel k-means by number of rows: the time of a step in memory, and whole stores."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.data.generate import Mixture, generate
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.plots import canvas_of, save, why_not
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.watched import EVERY, Log, watch

ABOUT = (
    "mini-batch kernel k-means by number of rows: the time of a step in memory, and whole stores"
)
TAKES = (
    "about 10 minutes on 2 cores, 2 GB of memory and 1 GB of disk in --scratch DIR, removed afterwards "
    "unless --keep (--quick: one minute); --sets steps or --sets stores runs one half"
)
PARTS = ("steps", "stores")
ROWS, QUICK_ROWS = (10_000, 100_000, 1_000_000, 10_000_000), (10_000, 100_000)
D, K, BATCH, TAU = 16, 10, 1024, 200
SPREAD = 1.0
GAMMA = 0.02
STEPS, LATE = 30, 10
LIMIT = "1GiB"
MIB = 2**20


def run(settings: Settings) -> list[Table | Figure | Note]:
    """Return the table and plot of the time of a step by number of rows, and the table of stores."""
    numbers = QUICK_ROWS if settings.quick else ROWS
    wanted = settings.sets or PARTS
    found: list[Table | Figure | Note] = []
    if "steps" in wanted:
        steps, records = _steps(numbers, settings.threads)
        found += [steps, _plot(numbers, records, settings.images)]
    return [*found, *([_stores(numbers[-2:], settings)] if "stores" in wanted else [])]


# -- a step ------------------------------------------------------------------------------------------


def _steps(numbers: tuple[int, ...], threads: int) -> tuple[Table, list[list[dict[str, Any]]]]:
    import daskcluster as dc

    table = Table(
        f"A step of truncated mini-batches by number of rows: b={BATCH}, tau={TAU}, k={K}, d={D}, "
        f"rbf, {threads} threads",
        ["rows", "kernel values per step", "ms per step", "for kernel values", "labels of all rows, s"],
        notes=[f"Rows in memory. Medians of the last {LATE} of {STEPS} steps, when windows are full."],
    )  # fmt: skip
    mixture, found = Mixture(D, K, spread=SPREAD), []
    rows = mixture.rows(0, numbers[-1])
    model = dc.MiniBatchKernelKMeans(
        K, gamma=GAMMA, batch_size=BATCH, truncation=TAU, max_iter=STEPS, random_state=0,
        engine=dc.LocalEngine(threads),
    )  # fmt: skip
    model.fit(rows[: numbers[0]])  # compiles before time is measured
    for n in numbers:
        say(f"  {n:,} rows")
        began = time.perf_counter()
        model.fit(rows[:n])
        rest = time.perf_counter() - began - sum(each["seconds"] for each in model.history_)
        late = model.history_[-LATE:]
        values, seconds, gram = (
            float(np.median([record[name] for record in late]))
            for name in ("n_distances", "seconds", "gram_seconds")
        )
        table.rows.append([f"{n:,}", f"{values:,.0f}", 1e3 * seconds, 1e3 * gram, rest])
        found.append(late)
    return table, found


def _plot(
    numbers: tuple[int, ...], records: list[list[dict[str, Any]]], folder: Path | None
) -> Figure | Note:
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    with canvas_of("kernel-rows.svg", (3.2, 2.2)) as canvas:
        axes = canvas.subplots(1, 1)
        for name, key, colour in (
            ("a step", "seconds", "#0072b2"),
            ("for kernel values", "gram_seconds", "#000000"),
        ):
            values = [[1e3 * record[key] for record in late] for late in records]
            middle = np.median(values, axis=1)
            spread = np.abs(np.percentile(values, (25, 75), axis=1) - middle)
            axes.errorbar(numbers, middle, spread, fmt="-o", markersize=2, color=colour, label=name)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("rows")
        axes.set_ylabel("ms")
        axes.grid(linewidth=0.3, color="#dddddd")
        axes.legend(frameon=False)
        canvas.tight_layout()
        return save(canvas, folder / "kernel-rows.svg", "Time of a step by number of rows")


# -- a store -----------------------------------------------------------------------------------------


def _stores(numbers: tuple[int, ...], settings: Settings) -> Table:
    table = Table(
        f"One command clusters and labels a store of {D} float32 features, {settings.threads} threads",
        ["rows", "decoded MB", "seconds", "passes", "peak memory, MiB", "limit, MiB",
         "ARI with the true clusters"],
        notes=[
            f"`daskcluster {' '.join(_words('ROWS.zarr', settings.threads))}`.",
            f"Memory: resident size of the process, measured every {EVERY:g} s. Python, libraries and "
            "compiled kernels take some 250 MiB of it.",
            "One pass each computes gamma, the inertia and the labels; the last two compare each row with "
            "the support rows.",
        ],
    )  # fmt: skip
    folder = settings.folder("daskcluster-kernel-rows")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for n in numbers:
            name = f"{n}.zarr"
            if not (folder / name).exists():
                say(f"  writing {name}")
                generate(
                    str(folder / name), n_rows=n, n_features=D, n_clusters=K, spread=SPREAD,
                    n_threads=settings.threads, overwrite=True,
                )  # fmt: skip
            log = watch(_words(name, settings.threads), folder)
            table.rows.append(_row(n, log, folder))
    finally:
        if not settings.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return table


def _words(name: str, threads: int) -> list[str]:
    return [
        "fit", name, "--algorithm", "mini-batch-kernel", "--n-clusters", str(K),
        "--batch-size", str(BATCH), "--truncation", str(TAU), "--random-state", "0",
        "--threads", str(threads), "--memory-limit", LIMIT,
        "--model", "model", "--labels", "labels.zarr", "--overwrite", "--json",
    ]  # fmt: skip


def _row(n: int, log: Log, folder: Path) -> list[Any]:
    import zarr

    from daskcluster.metrics import adjusted_rand_index

    labels = zarr.open_array(str(folder / "labels.zarr"), mode="r")[:]
    true = Mixture(D, K, spread=SPREAD).labels(0, n)
    score = float(adjusted_rand_index(true, np.asarray(labels)))
    return [
        f"{n:,}", f"{n * D * 4 / 1e6:,.0f}", log.seconds, log.record["passes"],
        f"{log.peak_bytes / MIB:,.0f}", "1,024", score,
    ]  # fmt: skip
