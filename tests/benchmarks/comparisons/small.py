"""Small calls: labels of few rows, and fits of few rows, against scikit-learn and Faiss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from tests.benchmarks.comparisons.assign import faiss_search
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.machine import version_of
from tests.benchmarks.harness.parts import Part, Table, ratio
from tests.benchmarks.harness.peers import OURS, quietly
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
SHAPES = {
    "labels of 1 row": ("predict", 1, 32, 50, 300),
    "labels of 100 rows": ("predict", 100, 32, 50, 300),
    "labels of 10,000 rows": ("predict", 10_000, 32, 50, 100),
    "labels of 1,560 wide rows": ("predict", 1_560, 617, 1_000, 20),
    "fit of 500 rows": ("fit", 500, 32, 50, 20),
}
"""The call, n, d, k, and how often it runs in one measurement."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each call."""
    for name, shape in SHAPES.items():
        yield Cell(name, partial(measure, shape, settings))


def measure(shape: tuple[str, int, int, int, int], settings: Settings) -> Figures:
    """Return the seconds of one call of every program."""
    call, n, d, k, times = shape
    times = max(1, times // 10) if settings.quick else times
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((max(n, 2 * k), d), dtype=np.float32)
    programs = (_fits if call == "fit" else _labels)(rows, n, k, settings)
    repeated = {name: partial(_repeat, program, times) for name, program in programs.items()}
    with threadpool_limits(settings.threads):
        found = race(repeated, settings.repeats)
    seconds = {name: one.median / times for name, one in found.items()}
    return {"n": n, "d": d, "k": k, "seconds": seconds}


def _repeat(program: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        program()


def _labels(rows: np.ndarray, n: int, k: int, settings: Settings) -> dict[str, Callable[[], Any]]:
    from sklearn.cluster import KMeans as Peer

    from daskcluster import KMeans, LocalEngine

    start, some = rows[:k].copy(), rows[:n].copy()
    ours = KMeans(k, init=start, n_init=1, max_iter=1, engine=LocalEngine(settings.threads))
    theirs = Peer(k, init=start, n_init=1, max_iter=1)
    models = {OURS: quietly(ours, rows), "scikit-learn": quietly(theirs, rows)}
    programs = {name: partial(model.predict, some) for name, model in models.items()}
    if version_of("faiss-cpu") is not None:
        programs["Faiss"] = faiss_search(some, start, settings.threads)
    return programs


def _fits(rows: np.ndarray, n: int, k: int, settings: Settings) -> dict[str, Callable[[], Any]]:
    from sklearn.cluster import KMeans as Peer

    from daskcluster import KMeans, LocalEngine

    some, engine = rows[:n].copy(), LocalEngine(settings.threads)
    options: dict[str, Any] = {"init": "k-means++", "n_init": 1, "random_state": 0}
    return {
        OURS: lambda: KMeans(k, engine=engine, **options).fit(some),
        "scikit-learn": lambda: Peer(k, **options).fit(some),
    }


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    peers = ("scikit-learn", "Faiss")
    table = Table(
        f"Milliseconds of a small call, {settings.threads} threads, float32, medians of "
        f"{settings.repeats}",
        ["call", "n, d, k", OURS, *peers, "scikit-learn / ours", "Faiss / ours"],
    )
    for name, one in records.items():
        milliseconds = {peer: 1e3 * value for peer, value in one["seconds"].items()}
        ours = milliseconds[OURS]
        table.rows.append([
            name, f"{one['n']:,}, {one['d']}, {one['k']:,}", ours,
            *(milliseconds.get(peer) for peer in peers),
            *(ratio(milliseconds.get(peer), ours) for peer in peers),
        ])  # fmt: skip
    table.notes.append(
        "Calls follow one another, as in a loop of a service. Both fits seed by k-means++ with one start. "
        "Faiss's flat search includes its index of the centres."
    )
    return [table]


def _read(records: Records) -> Reading | None:
    found = [
        one["seconds"][peer] / one["seconds"][OURS]
        for one in records.values()
        for peer in one["seconds"]
        if peer != OURS
    ]
    return Reading(f"{min(found):.2f}", min(found) >= 1.0) if found else None


TARGETS: tuple[Target, ...] = (
    Target("small", "Small calls: least speed-up over scikit-learn and Faiss", ">= 1", _read),
)
