"""Near-duplicates among embeddings: recall, false pairs, time and memory, against SemDeDup's way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from daskcluster.data.convert import convert
from tests.benchmarks.duplicate_rows import Planted
from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.near_duplicates_run import SearchFigures

ABOUT = "near-duplicates among embeddings, against comparing rows within clusters"
TAKES = (
    "about 10 minutes on 2 cores, and 9 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: a minute); --sets search,semdedup,exact selects runs; finished runs are saved"
)

SHAPE, QUICK = (1_000_000, 768), (20_000, 256)
EXACT_ROWS = 50_000
"""Rows of which all pairs are compared by brute force."""
RUNS = {
    "search": "`near_duplicates`",
    "semdedup": "k-means, then all pairs within each cluster",
    "exact": "brute force",
}


def run(options: Settings) -> list[Table]:
    """Return the table of recall, false pairs, time and memory."""
    n, d = QUICK if options.quick else SHAPE
    folder = options.folder("daskcluster-near-duplicates")
    path = folder / f"rows-{n}-{d}.npy"
    if not path.exists():
        say(f"writing {n:,} x {d} rows")
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path.with_suffix(".pairs.npy"), Planted(n, d).write(path))
    if not path.with_suffix(".zarr").exists():
        convert(path, path.with_suffix(".zarr"))
    settings = {"shape": [n, d], "threads": options.threads}
    files = RunFiles(path.with_suffix(".runs"), settings, SearchFigures)
    runs = {
        name: files.get(name, lambda name=name: _measure(name, path, options.threads))
        for name in options.sets or RUNS
    }
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table(
        f"Near-duplicates: {n:,} x {d} float16, cosine >= 0.95, {options.threads} threads",
        ["run", "rows", "seconds", f"CPU seconds / {options.threads}", "planted found", "pairs",
         "false", "missed", "peak GB", "stated GB"],
    )  # fmt: skip
    for name, found in runs.items():
        stated = f"{found.stated_bytes / 1e9:.2f}" if found.stated_bytes else "-"
        table.rows.append(
            [RUNS[name], f"{found.n_rows:,}", found.seconds, found.cpu_seconds / options.threads,
             f"{found.recall:.2%}", f"{found.n_pairs:,}", f"{found.n_false:,}",
             f"{found.n_missed:,}", found.peak_bytes / 1e9, stated]
        )  # fmt: skip
    table.notes.append(
        "Clusters are anisotropic and of power-law sizes; 5 % of the rows are a near-duplicate of "
        "another, a third of them on the other side of the middle between two centres. The search reads "
        "a Zarr store, the other programs a mapped .npy file, whose pages count as memory. Memory is the "
        "peak of the whole process. False and missed pairs are "
        f"those of the first {EXACT_ROWS:,} rows, which brute force compares in float64."
    )
    return [table]


def _measure(name: str, path: Path, threads: int) -> SearchFigures:
    words = [name, str(path), str(threads), str(EXACT_ROWS)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.near_duplicates_run", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    return SearchFigures(**json.loads(done.stdout.splitlines()[-1]))
