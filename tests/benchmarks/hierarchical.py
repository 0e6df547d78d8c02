"""A hundred thousand clusters in two levels, in memory and from Zarr, against k-means."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import zarr

from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.hierarchical_fit import FitFigures

ABOUT = "100,000 clusters: `HierarchicalKMeans` against k-means with two iterations"
TAKES = (
    "about 20 minutes on 2 cores, and 0.5 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: a minute); --sets memory,zarr,unrefined,random,afk-mc2 selects runs; finished runs are "
    "saved, and an interrupted benchmark resumes"
)

SHAPE, QUICK = (2_000_000, 32, 100_000), (40_000, 32, 2_000)
CHUNK_ROWS = 50_000
RUNS = {
    "memory": "hierarchical, rows in memory",
    "zarr": "hierarchical, rows in Zarr",
    "unrefined": "hierarchical without refinement, rows in memory",
    "random": "k-means from random rows, 2 iterations",
    "afk-mc2": "k-means from afk-mc2, 2 iterations",
}


def run(options: Settings) -> list[Table]:
    """Return the tables of time, memory and inertia, and of cluster sizes."""
    n, d, k = QUICK if options.quick else SHAPE
    folder = options.folder("daskcluster-hierarchical")
    path = folder / f"rows-{n}-{d}-{k}.zarr"
    if not path.exists():
        say(f"writing {n:,} x {d} rows")
        folder.mkdir(parents=True, exist_ok=True)
        rows = mixture(n, d, k)
        zarr.create_array(str(path), data=rows, chunks=(CHUNK_ROWS, d))
        np.save(path.with_suffix(".npy"), rows)
    runs = _runs(path, (n, d, k), options)
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    where = f"{n:,} x {d} float32, k = {k:,}, {options.threads} threads"
    return [_times(where, runs, options.threads), _balance(where, runs)]


def _runs(path: Path, shape: tuple[int, int, int], options: Settings) -> dict[str, FitFigures]:
    """Return the figures of every run; saved ones are not measured again."""
    settings = {"shape": list(shape), "threads": options.threads}
    files = RunFiles(path.with_suffix(".runs"), settings, FitFigures)
    return {
        name: files.get(name, partial(_measure, name, path, shape[2], options.threads))
        for name in options.sets or RUNS
    }


def _times(where: str, runs: Mapping[str, FitFigures], threads: int) -> Table:
    table = Table(
        f"Seconds and memory: {where}",
        ["run", "seconds", f"CPU seconds / {threads}", "cells or seeding, s", "iterations, s",
         "labels, s", "peak GB", "passes", "inertia / n"],
        shown=True,
    )  # fmt: skip
    for name, found in runs.items():
        steps = " + ".join(f"{seconds:.0f}" for seconds in found.iteration_seconds)
        table.rows.append(
            [
                RUNS[name],
                found.seconds,
                found.cpu_seconds / threads,
                found.seeding_seconds,
                steps or "-",
                found.label_seconds,
                found.peak_bytes / 1e9,
                found.passes,
                found.inertia / found.n_rows,
            ]
        )
    table.notes.append(
        "Each run is a separate process. Memory is its peak above the size after imports and compilation, "
        "so rows in memory count, too. CPU seconds divided by the number of threads estimate the time on "
        "an idle machine."
    )
    return table


def _balance(where: str, runs: Mapping[str, FitFigures]) -> Table:
    """Return the statistics of cluster sizes of every run."""
    names = ("empty", "smallest", "median", "mean", "largest", "variation", "gini")
    table = Table(f"Rows per cluster: {where}", ["run", *names])
    for name, found in runs.items():
        table.rows.append([RUNS[name], *(found.balance[one] for one in names)])
    return table


def _measure(name: str, path: Path, k: int, threads: int) -> FitFigures:
    words = [name, str(path), str(k), str(threads)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.hierarchical_fit", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    return FitFigures(**json.loads(done.stdout.splitlines()[-1]))
