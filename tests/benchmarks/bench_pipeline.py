"""From a store to labels in one command: coreset, seeding, EM for thousands of components, labels."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskcluster.data.generate import Mixture, generate
from tests.benchmarks.harness import Note, Options, Table, say
from tests.benchmarks.watched import EVERY, Log, watch

TAKES = (
    "about 10 minutes on 2 cores, and 6 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: 2 minutes and 0.3 GB)"
)

GIB = 2**30
MOST_BYTES = 4 * GIB
HELD_OUT = 1_000_000
_BLOCK = 1 << 17

STAGES = {
    "vc-gmm": "start: imports, metadata",
    "coreset": "coreset: two passes",
    "seeding": "seeding by afk-mc2 on the coreset",
    "ended": "EM on the coreset",
    "": "model and labels: one pass, all centres for each row",
}
"""By the word that the line at the end of a stage begins with."""


@dataclass(frozen=True)
class Task:
    """Rows and what is learnt from them; twice as many sources as clusters."""

    n_rows: int
    n_features: int = 16
    n_clusters: int = 4000
    coreset_size: int = 1 << 18
    spread: float = 2.0

    def mixture(self) -> Mixture:
        return Mixture(self.n_features, 2 * self.n_clusters, spread=self.spread)

    @property
    def n_bytes(self) -> int:
        return self.n_rows * self.n_features * 4

    @property
    def name(self) -> str:
        return f"{self.n_rows}x{self.n_features}-{2 * self.n_clusters}.zarr"


WHOLE = Task(80_000_000)
QUICK = Task(2_000_000, n_clusters=1000, coreset_size=1 << 16)


def run(options: Options) -> list[Table | Note]:
    """Return the table of stages, and that of what came of them."""
    task = QUICK if options.quick else WHOLE
    folder = options.folder("daskcluster-pipeline")
    source = _make(folder, task, options.threads)
    try:
        words = _command(task, options.threads)
        log = watch(words, folder)
        stages = stages_of(log.lines, log.seconds)
        costs = _costs(task, folder)
        _check_labels(task, folder)
        return [
            _stages(task, log, stages, options.threads),
            _results(task, log, costs, source, folder),
        ]
    finally:
        for name in ("model.zarr", "labels.zarr"):
            shutil.rmtree(folder / name, ignore_errors=True)
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _make(folder: Path, task: Task, threads: int) -> Path:
    """Write the rows, if they are not there; return where they are.

    Raises
    ------
    OSError
        The disk is too small.
    """
    path = folder / task.name
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = 1.2 * task.n_bytes, shutil.disk_usage(folder).free
    if not path.exists():
        if needed > free:
            raise OSError(
                f"{folder} has {free / 1e9:.1f} GB free, and the run takes {needed / 1e9:.1f} GB; "
                "give another folder with --scratch."
            )
        say(f"  {path.name} is being written")
        generate(
            str(path),
            n_rows=task.n_rows,
            n_features=task.n_features,
            n_clusters=2 * task.n_clusters,
            spread=task.spread,
            n_threads=threads,
            overwrite=True,
        )
    return path


def _command(task: Task, threads: int) -> list[str]:
    return [
        "fit", task.name, "--algorithm", "vc-gmm", "--n-clusters", str(task.n_clusters),
        "--coreset-size", str(task.coreset_size), "--random-state", "0", "--threads", str(threads),
        "--memory-limit", "4GiB",
        "--model", "model.zarr", "--labels", "labels.zarr", "--overwrite", "--json", "--progress",
    ]  # fmt: skip


def stages_of(lines: list[tuple[float, str]], end: float) -> dict[str, float]:
    """Return the seconds of every stage, from the lines that end them.

    Examples
    --------
    >>> lines = [(1.0, "vc-gmm: 10 rows"), (4.0, "coreset of 5"), (6.0, "seeding by"), (9.0, "ended ()")]
    >>> list(stages_of(lines, 20.0).values())
    [1.0, 3.0, 2.0, 3.0, 11.0]
    """
    found, last = {}, 0.0
    for word, name in STAGES.items():
        at = next((when for when, text in lines if text.startswith(word)), end) if word else end
        found[name], last = at - last, at
    return found


def _costs(task: Task, folder: Path) -> dict[str, float]:
    """Return the mean squared distance of rows that were not learnt from, for several sets of centres."""
    import daskcluster as dc

    mixture = task.mixture()
    rows = mixture.rows(task.n_rows, task.n_rows + min(HELD_OUT, task.n_rows))
    some = np.sort(np.random.default_rng(0).choice(task.n_rows, task.n_clusters, replace=False))
    sets = {
        "vc-gmm": dc.load_model(str(folder / "model.zarr")).means_,
        f"{task.n_clusters:,} random rows": dc.open_dataset(str(folder / task.name)).take(some),
        f"all {2 * task.n_clusters:,} true centres": mixture.centres().astype(np.float32),
    }
    return {name: dc.quantization_error(rows, c) / len(rows) for name, c in sets.items()}


def _check_labels(task: Task, folder: Path) -> None:
    """Refuse labels that are not those of `predict`, on the first and the last rows.

    Raises
    ------
    RuntimeError
    """
    import zarr

    import daskcluster as dc

    labels = zarr.open_array(str(folder / "labels.zarr"), mode="r")
    model, mixture = dc.load_model(str(folder / "model.zarr")), task.mixture()
    for start in (0, task.n_rows - _BLOCK):
        rows = mixture.rows(start, start + _BLOCK)
        if not np.array_equal(labels[start : start + _BLOCK], model.predict(rows)):
            raise RuntimeError(f"labels from row {start} on differ from those of predict.")


def _stages(task: Task, log: Log, stages: dict[str, float], threads: int) -> Table:
    total = sum(stages.values())
    flop = 2.0 * task.n_rows * task.n_clusters * task.n_features
    labelling = stages[STAGES[""]]
    return Table(
        f"{task.n_rows:,} x {task.n_features} float32 in Zarr to {task.n_clusters:,} Gaussians and the "
        f"label of every row, one command on {threads} threads",
        ["stage", "seconds", "share"],
        [
            *([name, seconds, f"{seconds / total:.0%}"] for name, seconds in stages.items()),
            ["all", total, "100%"],
        ],
        notes=[
            f"`daskcluster {' '.join(_command(task, threads))}`.",
            f"Coreset of {task.coreset_size:,} rows, {log.record['n_iter']} iterations, "
            f"stopped by {log.record['stop_reason']}.",
            f"Labels by full search: {flop / 1e12:.3g} TFLOP, {flop / labelling / 1e9:,.0f} GFLOP/s with "
            "reading, decoding and writing.",
        ],
    )


def _results(task: Task, log: Log, costs: dict[str, float], source: Path, folder: Path) -> Table:
    limit = f"<= {MOST_BYTES / GIB:g} GiB"
    stored, written = _size(source), _size(folder / "labels.zarr")
    return Table(
        "What it took and what came of it",
        ["what", "figure", "target"],
        [
            ["rows, decoded", f"{task.n_bytes / 1e9:.3g} GB", None],
            ["rows, on disk", f"{stored / 1e9:.3g} GB", None],
            ["passes over the rows", log.record["passes"], 3],
            ["read, decoded", f"{log.record['bytes_read'] / 1e9:.4g} GB", None],
            ["labels, on disk", f"{written / 1e9:.3g} GB", None],
            ["peak memory of all processes", f"{log.peak_bytes / GIB:.2f} GiB", limit],
            *([f"mean squared distance, {name}", f"{cost:.4f}", None] for name, cost in costs.items()),
        ],
        notes=[
            f"Mean squared distances of {min(HELD_OUT, task.n_rows):,} further rows of the same mixture, "
            "to the nearest centre.",
            "Without --memory-limit the rows would stay in memory after the first pass, as far as half of "
            "the machine's holds them.",
            f"Memory: resident sizes summed over the process and those below it, every {EVERY:g} s; "
            "shared pages count in each.",
            "The labels of the first and the last rows were compared with those of predict.",
        ],
    )  # fmt: skip


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
