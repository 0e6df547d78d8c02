"""From a store to labels by one command: coreset, seeding, EM of thousands of components, labels."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from daskcluster.data.generate import Mixture, generate
from daskcluster.errors import DiskSpaceError
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.stores import bytes_of
from tests.benchmarks.harness.watched import EVERY, watch

SCRATCH = ("daskcluster-pipeline",)
RECORDED = ("passes", "bytes_read", "n_iter", "stop_reason")
GIB = 2**30
MOST_BYTES = 4 * GIB
MOST = f"{MOST_BYTES / GIB:g} GiB"
MOST_SECONDS = 600.0
"""The limit that the target calls "minutes"."""
HELD_OUT = 1_000_000
_BLOCK = 1 << 17

STAGES = {
    "vc-gmm": "start: imports, metadata",
    "coreset": "coreset: two passes",
    "seeding": "seeding by afk-mc2 on the coreset",
    "ended": "EM on the coreset",
    "": "model and labels: one pass, all centres for each row",
}
"""Names of the stages, by the first word of the line that ends each."""


@dataclass(frozen=True)
class Task:
    """Size of the data and of the model; the rows come from twice as many sources as clusters."""

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


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield the one cell."""
    task = QUICK if settings.quick else WHOLE
    yield Cell(task.name.removesuffix(".zarr"), partial(measure, task, settings))


def measure(task: Task, settings: Settings) -> Figures:
    """Run the command; return its stages, resources and results."""
    folder = settings.folder(SCRATCH[0])
    source = _make(folder, task, settings)
    try:
        words = _command(task, settings.threads)
        log = watch(words, folder, settings.tell)
        _check_labels(task, folder)
        return {
            "n": task.n_rows,
            "d": task.n_features,
            "k": task.n_clusters,
            "coreset": task.coreset_size,
            "command": f"daskcluster {' '.join(words)}",
            "stages": stages_of(log.lines, log.seconds),
            "record": {name: log.record[name] for name in RECORDED},
            "peak_bytes": log.peak_bytes,
            "stored_bytes": bytes_of(source),
            "label_bytes": bytes_of(folder / "labels.zarr"),
            "costs": _costs(task, folder),
        }
    finally:
        for name in ("model.zarr", "labels.zarr"):
            shutil.rmtree(folder / name, ignore_errors=True)


def _make(folder: Path, task: Task, settings: Settings) -> Path:
    """Write the rows unless they exist; return their path.

    Raises
    ------
    DiskSpaceError
        The disk is too small.
    """
    path = folder / task.name
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = 1.2 * task.n_bytes, shutil.disk_usage(folder).free
    if not path.exists():
        if needed > free:
            raise DiskSpaceError(
                f"{folder} has {free / 1e9:.1f} GB free, but the run needs {needed / 1e9:.1f} GB; "
                "choose another folder with --scratch."
            )
        settings.tell(f"  writing {path.name}")
        generate(
            str(path),
            n_rows=task.n_rows,
            n_features=task.n_features,
            n_clusters=2 * task.n_clusters,
            spread=task.spread,
            n_threads=settings.threads,
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
    """Return the seconds of every stage, from the lines that end the stages.

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
    """Return the mean squared distance of held-out rows for several sets of centres."""
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
    """Compare the labels of the first and the last rows with those of `predict`.

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
            raise RuntimeError(f"labels from row {start} on differ from those of `predict`.")


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table of stages, and the table of resources and results."""
    return [part for one in records.values() for part in (_stages(one, settings), _results(one))]


def _stages(one: Figures, settings: Settings) -> Table:
    stages, record = one["stages"], one["record"]
    total = sum(stages.values())
    flop = 2.0 * one["n"] * one["k"] * one["d"]
    labelling = stages[STAGES[""]]
    return Table(
        f"{one['n']:,} x {one['d']} float32 in Zarr to {one['k']:,} Gaussians and the "
        f"label of every row, one command on {settings.threads} threads",
        ["stage", "seconds", "share"],
        [
            *([name, seconds, f"{seconds / total:.0%}"] for name, seconds in stages.items()),
            ["all", total, "100%"],
        ],
        notes=[
            f"`{one['command']}`.",
            f"The coreset has {one['coreset']:,} rows. EM made {record['n_iter']} iterations; stop reason: "
            f"{record['stop_reason']}.",
            f"Labels by full search: {flop / 1e12:.3g} TFLOP, {flop / labelling / 1e9:,.0f} GFLOP/s "
            "including "
            "reading, decoding and writing.",
        ],
        name="stages",
        shown=True,
    )


def _results(one: Figures) -> Table:
    record = one["record"]
    return Table(
        "Resources and results",
        ["quantity", "figure", "target"],
        [
            ["rows, decoded", f"{4 * one['n'] * one['d'] / 1e9:.3g} GB", None],
            ["rows, on disk", f"{one['stored_bytes'] / 1e9:.3g} GB", None],
            ["passes over the rows", record["passes"], 3],
            ["read, decoded", f"{record['bytes_read'] / 1e9:.4g} GB", None],
            ["labels, on disk", f"{one['label_bytes'] / 1e9:.3g} GB", None],
            ["peak memory of all processes", f"{one['peak_bytes'] / GIB:.2f} GiB", f"<= {MOST}"],
            *([f"mean squared distance, {name}", f"{cost:.4f}", None]
              for name, cost in one["costs"].items()),
        ],
        notes=[
            f"Mean squared distances are to the nearest centre, over {min(HELD_OUT, one['n']):,} "
            "further rows "
            "of the same mixture.",
            "Without --memory-limit, rows would stay in memory after the first pass, in up to half of the "
            "machine's memory.",
            f"Memory: sum of the resident sizes of the process and its children, every {EVERY:g} s; shared "
            "pages count once per process.",
            "The labels of the first and the last rows are the same as those of `predict`.",
        ],
    )  # fmt: skip


def _read(records: Records) -> Reading | None:
    one = next((one for one in records.values() if one["n"] == WHOLE.n_rows), None)
    if one is None:
        return None
    seconds, peak = sum(one["stages"].values()), one["peak_bytes"]
    met = peak <= MOST_BYTES and seconds <= MOST_SECONDS
    return Reading(f"{seconds:.0f} s, {peak / GIB:.2f} GiB", met)


TARGETS: tuple[Target, ...] = (
    Target(
        "pipeline",
        "80,000,000 x 16 float32 rows in Zarr (5 GB) on 2 cores: coreset, seeding, EM of C = 4000 "
        "components, labels written",
        f"minutes, peak memory <= {MOST} per process tree",
        _read,
    ),
)
