"""A hundred thousand clusters in two levels, in memory and from Zarr, next to k-means of as many passes."""

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

TAKES = (
    "about 20 minutes on 2 cores, and 0.5 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: a minute); --sets memory,zarr,unrefined,random,afk-mc2 takes some of its runs; finished "
    "ones stay there, and an interrupted benchmark continues with them"
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
    """Return times, memory, inertia and balance of all runs."""
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
    """Return what every run took; those of an interrupted benchmark are not made again."""
    settings = {"shape": list(shape), "threads": options.threads}
    files = RunFiles(path.with_suffix(".runs"), settings, FitFigures)
    return {
        name: files.get(name, partial(_measure, name, path, shape[2], options.threads))
        for name in options.sets or RUNS
    }


def _times(where: str, runs: Mapping[str, FitFigures], threads: int) -> Table:
    table = Table(
        f"Seconds and memory: {where}",
        ["run", "seconds", f"of all {threads} threads / {threads}", "cells or seeding", "iterations",
         "labels", "GB at peak", "passes", "inertia / n"],
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
        "Each run is a process of its own; memory is its peak less what it had once the libraries were "
        "imported and compiled, so that rows in memory count, too. The seconds of all threads, divided by "
        "their number, are what the clock would show if nothing else ran on the machine."
    )
    return table


def _balance(where: str, runs: Mapping[str, FitFigures]) -> Table:
    """Return the balance report of every run."""
    names = ("empty", "smallest", "median", "mean", "largest", "variation", "gini")
    table = Table(f"Rows of a cluster: {where}", ["run", *names])
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
