"""Labels of rows in memory, against every peer with a search, and of rows in a store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from daskcluster.data.generate import generate
from tests.benchmarks.comparisons.assign import SAME_LABELS, faiss_search
from tests.benchmarks.comparisons.lloyd import QUICK, SHAPES, name_of
from tests.benchmarks.harness.bars import Bars, draw_bars
from tests.benchmarks.harness.cells import Cell, Figures, Records, Target
from tests.benchmarks.harness.parts import Part, Table, ratio
from tests.benchmarks.harness.peers import OURS, PEERS, quietly
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.stores import read

SCRATCH = ("daskcluster-predict",)
STORED, QUICK_STORED, STORE = (4_000_000, 16, 50), (100_000, 16, 50), "a store"

Search = Callable[[], np.ndarray]


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each shape in memory, and the cell of the store."""
    for shape in QUICK if settings.quick else SHAPES:
        yield Cell(name_of(shape), partial(measure, shape, settings))
    yield Cell(STORE, partial(measure_store, settings))


def measure(shape: tuple[int, int, int], settings: Settings) -> Figures:
    """Return the seconds of every program, and its share of rows with our label."""
    n, d, k = shape
    rows = mixture(n, d, k)
    centres = rows[:k].copy()
    programs: dict[str, Search] = {OURS: partial(_ours(centres, settings.threads).predict, rows)}
    notes = []
    for name, make in _SEARCHES.items():
        try:
            programs[name] = make(rows, centres, settings.threads)
        except ImportError as error:
            notes.append(f'{name} is skipped ({error}); pip install "daskcluster[benchmark]"')
    found = race(programs, settings.repeats)
    labels = found[OURS].value
    agree = {name: float((np.asarray(one.value) == labels).mean()) for name, one in found.items()}
    seconds = {name: one.median for name, one in found.items()}
    return {"seconds": seconds, "agree": agree, "flop": 2.0 * n * d * k, "notes": notes}


def _ours(centres: np.ndarray, threads: int) -> Any:
    """Return a model with these centres."""
    from daskcluster import KMeans, LocalEngine

    model = KMeans(
        len(centres), init=centres, n_init=1, max_iter=0, tol=0, engine=LocalEngine(threads)
    )
    return quietly(model, centres)


def _scikit_learn(rows: np.ndarray, centres: np.ndarray, threads: int, package: str) -> Search:
    from importlib import import_module

    from threadpoolctl import threadpool_limits

    kind = import_module(f"{package}.cluster").KMeans
    # Each centre twice: an update leaves the centres in place, and the extension needs that many rows.
    twice = np.repeat(centres, 2, axis=0)
    model = quietly(kind(len(centres), init=centres, n_init=1, max_iter=1), twice)

    def run() -> np.ndarray:
        with threadpool_limits(threads):
            return np.asarray(model.predict(rows))

    return run


_SEARCHES: dict[str, Callable[[np.ndarray, np.ndarray, int], Search]] = {
    "scikit-learn": partial(_scikit_learn, package=PEERS["scikit-learn"][0]),
    "scikit-learn-intelex": partial(_scikit_learn, package=PEERS["scikit-learn-intelex"][0]),
    "Faiss": faiss_search,
}


def measure_store(settings: Settings) -> Figures:
    """Return the seconds of reading a store, and of labelling it."""
    from daskcluster import open_dataset

    n, d, k = QUICK_STORED if settings.quick else STORED
    folder = settings.folder(SCRATCH[0])
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / f"{n}x{d}.zarr")
    if not (folder / f"{n}x{d}.zarr").exists():
        generate(path, n_rows=n, n_features=d, n_clusters=k, n_threads=settings.threads)
    dataset = open_dataset(path)
    model = _ours(dataset.take(np.arange(k)), settings.threads)

    def predict() -> None:
        shutil.rmtree(folder / "labels.zarr", ignore_errors=True)
        model.predict(open_dataset(path), output=str(folder / "labels.zarr"))

    found = race(
        {"read": partial(read, path, settings.threads), "predict": predict}, settings.repeats
    )
    return {"n": n, "d": d, "k": k, **{name: one.median for name, one in found.items()}}


def comparable(one: Figures) -> list[str]:
    """Return the peers with the same labels, up to ties."""
    return [name for name, share in one["agree"].items() if name != OURS and share >= SAME_LABELS]


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table and plot of rows in memory, and the table of the store."""
    in_memory = {name: one for name, one in records.items() if name != STORE}
    parts = _in_memory(in_memory, settings) if in_memory else []
    if (one := records.get(STORE)) is not None:
        parts.append(_store(one, settings))
    return parts


def _in_memory(records: Records, settings: Settings) -> list[Part]:
    table = Table(
        f"Seconds to label rows in memory, {settings.threads} threads, float32, medians of "
        f"{settings.repeats}",
        [
            "n, d, k",
            OURS,
            *_SEARCHES,
            "best peer / ours",
            "GFLOP/s",
            "smallest share of equal labels",
        ],
        notes=list(dict.fromkeys(note for one in records.values() for note in one["notes"])),
    )
    for name, one in records.items():
        seconds = one["seconds"]
        best = min((seconds[peer] for peer in comparable(one)), default=None)
        table.rows.append([
            name, seconds[OURS], *(seconds.get(peer) for peer in _SEARCHES),
            ratio(best, seconds[OURS]), one["flop"] / seconds[OURS] / 1e9,
            f"{min(one['agree'].values()):.4%}",
        ])  # fmt: skip
    groups = {
        name: {peer: one["seconds"][peer] / one["seconds"][OURS] for peer in comparable(one)}
        for name, one in records.items()
    }
    bars = Bars("time of a peer / ours", groups)
    text = "Time of each peer to label rows in memory, relative to ours"
    return [table, draw_bars("bench-predict.svg", text, bars, settings.images, line=1.0)]


def _store(one: Figures, settings: Settings) -> Table:
    shape = f"{one['n']:,}, {one['d']}, {one['k']}"
    return Table(
        f"Seconds to label a store, {settings.threads} threads, medians of {settings.repeats}",
        ["n, d, k", "read and decode, zarr alone", "predict and write labels", "ratio", "rows per second"],
        [[shape, one["read"], one["predict"], ratio(one["predict"], one["read"]),
          f"{one['n'] / one['predict']:,.0f}"]],
        ["Chunks of 8 MB, blosc-zstd. The labels are written to an int32 Zarr array, which appears "
         "only when it is complete."],
    )  # fmt: skip


TARGETS: tuple[Target, ...] = ()
