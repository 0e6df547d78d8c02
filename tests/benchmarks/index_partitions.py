"""Partitions of an index: sizes, time, and recall at equal scan, against the training of Faiss."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.benchmarks.duplicate_rows import BLOCK_ROWS, Planted
from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.index_partitions_run import SCANS, IndexFigures, nearest_rows

ABOUT = (
    "partitions of an index: sizes, time, and recall at equal scan, against the training of Faiss"
)
TAKES = (
    "about 6 minutes on 2 cores, and 0.6 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: half a minute); --sets partition,faiss,faiss-all selects runs, which are saved"
)

SHAPE, QUICK = (1_000_000, 256), (40_000, 64)
TARGET, QUICK_TARGET = 1000, 200
QUERIES, QUICK_QUERIES = 5_000, 200
RUNS = {
    "partition": "`partition`",
    "faiss": "Faiss, its default sample",
    "faiss-all": "Faiss, all rows",
}


def run(options: Settings) -> list[Table]:
    """Return the table of sizes, time and memory, and that of recalls."""
    n, d = QUICK if options.quick else SHAPE
    target = QUICK_TARGET if options.quick else TARGET
    folder = options.folder("daskcluster-index-partitions")
    path = folder / f"rows-{n}-{d}.npy"
    asked = path.with_suffix(".queries.npz")
    if not asked.exists():
        say(f"writing {n:,} x {d} rows")
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, asked, Planted(n, d), QUICK_QUERIES if options.quick else QUERIES)
    settings = {"shape": [n, d], "target": target, "threads": options.threads}
    files = RunFiles(path.with_suffix(".runs"), settings, IndexFigures)
    has_faiss = importlib.util.find_spec("faiss") is not None
    names = [name for name in options.sets or RUNS if has_faiss or not name.startswith("faiss")]
    words = [str(path), str(asked), str(target), str(options.threads)]
    runs = {name: files.get(name, lambda name=name: _measure(name, *words)) for name in names}
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    what = f"{n:,} x {d} float16 in {n // target:,} partitions, {options.threads} threads"
    tables = [_sizes(runs, what), _recalls(runs)]
    if not has_faiss:
        tables[0].notes.append("Without Faiss, which is not installed: `pip install faiss-cpu`.")
    return tables


def _write(path: Path, asked: Path, made: Planted, n_queries: int) -> None:
    made.write(path)
    start = -(-made.n // BLOCK_ROWS) * BLOCK_ROWS
    queries = made.block(start, start + n_queries)[0].astype(np.float32)
    truth = nearest_rows(np.load(path, mmap_mode="r"), queries)
    np.savez(asked, queries=queries, truth=truth)


def _measure(*words: str) -> IndexFigures:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.index_partitions_run", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr}")
    return IndexFigures(**json.loads(done.stdout.splitlines()[-1]))


def _sizes(runs: Mapping[str, IndexFigures], what: str) -> Table:
    table = Table(
        f"Index partitions: {what}",
        ["run", "seconds", "of them training", "partitions", "variation of sizes", "largest / mean",
         "peak GB", "stated GB"],
    )  # fmt: skip
    for name, found in runs.items():
        trained = f"{found.training_seconds:.1f}" if found.training_seconds else "-"
        stated = f"{found.stated_bytes / 1e9:.2f}" if found.stated_bytes else "-"
        table.rows.append(
            [RUNS[name], f"{found.seconds:.1f}", trained, f"{found.n_partitions:,}",
             f"{found.variation:.3f}", f"{found.largest_over_mean:.2f}",
             f"{found.peak_bytes / 1e9:.2f}", stated]
        )  # fmt: skip
    table.notes.append(
        "Clusters are anisotropic and of power-law sizes. `partition` reads the rows from disk; Faiss has "
        "them all in memory as float32. Both train and then assign all rows."
    )
    return table


def _recalls(runs: Mapping[str, IndexFigures]) -> Table:
    table = Table(
        "Recall@10 where a search compares this share of all rows",
        ["run", *(f"{scan:.2%}" for scan in SCANS)],
    )
    for name, found in runs.items():
        table.rows.append([RUNS[name], *(f"{np.mean(each):.4f}" for each in found.recalls)])
    if {"partition", "faiss-all"} <= set(runs):
        pairs = zip(runs["partition"].recalls, runs["faiss-all"].recalls, strict=True)
        table.rows.append(["the former less the latter", *(_difference(*pair) for pair in pairs)])
    table.notes.append(
        "Queries come from the same clusters. Every query looks into the same number of partitions. "
        "Differences are means of queries with their standard errors."
    )
    return table


def _difference(one: list[float], other: list[float]) -> str:
    gaps = np.subtract(one, other)
    return f"{gaps.mean():+.4f} ± {gaps.std() / np.sqrt(len(gaps)):.4f}"
