"""A hundred thousand clusters in two levels, in memory and from Zarr, beside k-means of as many passes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from tests.benchmarks.harness import Options, Table, mixture, say

TAKES = (
    "about 45 minutes on 2 cores, and 0.3 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: a minute); --sets memory,zarr,unrefined,random,afk-mc2 takes some of its runs"
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


def run(options: Options) -> list[Table]:
    """Return times, memory and inertia of all runs."""
    n, d, k = QUICK if options.quick else SHAPE
    folder = options.folder("daskcluster-hierarchical")
    path = folder / f"rows-{n}-{d}-{k}.zarr"
    if not path.exists():
        say(f"writing {n:,} x {d} rows")
        folder.mkdir(parents=True, exist_ok=True)
        rows = mixture(n, d, k)
        zarr.create_array(str(path), data=rows, chunks=(CHUNK_ROWS, d))
        np.save(path.with_suffix(".npy"), rows)
    header = ["run", "seconds", "cells or seeding", "iterations", "labels", "GB at peak"]
    table = Table(
        f"{n:,} x {d} float32, k = {k:,}, {options.threads} threads",
        [*header, "inertia / n", "sizes", "variation"],
    )
    try:
        for name in options.sets or RUNS:
            say(RUNS[name])
            table.rows.append(_row(name, _measure(name, path, k, options.threads)))
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    table.notes.append(
        "Each run is a process of its own; memory is its peak less what it had once the libraries were "
        "imported and compiled, so that rows in memory count, too. Sizes: smallest, median, largest."
    )
    return [table]


def _measure(name: str, path: Path, k: int, threads: int) -> dict[str, Any]:
    words = [name, str(path), str(k), str(threads)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.hierarchical_fit", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(name: str, found: dict[str, Any]) -> list[Any]:
    balance = found["balance"]
    sizes = f"{balance['smallest']}, {balance['median']:g}, {balance['largest']}"
    return [
        RUNS[name],
        found["seconds"],
        found["seeding_seconds"],
        " + ".join(f"{seconds:.0f}" for seconds in found["iteration_seconds"]) or "-",
        found["label_seconds"],
        found["peak_bytes"] / 1e9,
        found["inertia"] / found["n_rows"],
        sizes,
        balance["variation"],
    ]
