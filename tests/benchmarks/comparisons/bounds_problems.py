"""The data sets for the comparison of bounds: clustered, mixtures, and noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tests.benchmarks.harness.rows import MNIST, mixture, mnist
from tests.benchmarks.harness.settings import Settings

TO_THE_END = 1000
NOISE_ITERATIONS = 60
QUICK_ITERATIONS = 100
MIXTURES = ((100_000, 128, 1000), (400_000, 32, 100), (1_000_000, 16, 50))
SEPARATED = (500_000, 16, 100)
NOISES = ((500_000, 8, 50), (100_000, 64, 100))
MOST_REPEATS, FEW_REPEATS = 5, 3
"""Most runs of a problem; mixtures take long and get fewer."""
NAMED_SETS = ("birch2", "worms_2")
NAMED_SETS_CLUSTERS = 100


@dataclass(frozen=True)
class Problem:
    """Rows and the centres to start from.

    Attributes
    ----------
    name : str
    rows : ndarray of shape (n, d), float32
    centres : ndarray of shape (k, d), float32
    max_iter : int
    repeats : int
        Runs at most.
    plotted : bool
    without_structure : bool
        Uniform noise: nothing that bounds could find.
    """

    name: str
    rows: np.ndarray
    centres: np.ndarray
    max_iter: int = TO_THE_END
    repeats: int = FEW_REPEATS
    plotted: bool = False
    without_structure: bool = False

    @property
    def k(self) -> int:
        return len(self.centres)

    @property
    def shape(self) -> str:
        return f"{self.rows.shape[0]:,}, {self.rows.shape[1]}, {self.k}"


def problems(settings: Settings) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """Yield the name of every problem and a function that creates it, so that only one is in memory."""
    shrink, most = (10, QUICK_ITERATIONS) if settings.quick else (1, TO_THE_END)
    yield "MNIST", partial(_mnist, settings, shrink, most)
    for name in NAMED_SETS:
        if (path := _path_of(name, settings)) is not None:
            yield name, partial(_named_set, name, path, shrink, most)
    yield "separated mixture", partial(_separated, shrink, most)
    for n, d, k in MIXTURES:
        few = max(10, k // shrink)
        yield f"mixture {n:,} x {d}", partial(_mixture, n // shrink, d, few, most)
    for i, (n, d, k) in enumerate(NOISES):
        few = max(10, k // shrink)
        yield f"noise {n:,} x {d}", partial(_noise, n // shrink, d, few, plotted=i == 0)


def missing(present: Collection[str]) -> list[str]:
    """Return remarks on missing data sets, given the names of the others."""
    return [
        f"{name} is left out: it needs {name}.npz in the folder of --data."
        for name in NAMED_SETS
        if name not in present
    ]


def _path_of(name: str, settings: Settings) -> Path | None:
    path = None if settings.data is None else settings.data / f"{name}.npz"
    return path if path is not None and path.exists() else None


def _mnist(settings: Settings, shrink: int, most: int) -> Problem:
    rows, source = mnist(settings.data)
    rows, k = rows[: len(rows) // shrink], max(10, 50 // shrink)
    return Problem(
        source, rows, rows[:k].copy(), most, repeats=MOST_REPEATS, plotted=source == MNIST
    )


def _named_set(name: str, path: Path, shrink: int, most: int) -> Problem:
    with np.load(path) as file:
        rows = file["X"][::shrink].astype(np.float64)
    # One factor for all features: their proportions are part of the problem.
    rows = (rows / np.sqrt(rows.var(axis=0).mean())).astype(np.float32)
    # These files are in the order of the clusters, so the first rows would all be of one.
    chosen = np.random.default_rng(0).choice(
        len(rows), NAMED_SETS_CLUSTERS // shrink, replace=False
    )
    return Problem(name, rows, rows[chosen], most, repeats=MOST_REPEATS, plotted=True)


def _separated(shrink: int, most: int) -> Problem:
    n, d, k = SEPARATED
    rows = mixture(n // shrink, d, k // 2 // shrink, spread=10.0)
    return Problem("separated mixture", rows, rows[: k // shrink].copy(), most, plotted=True)


def _mixture(n: int, d: int, k: int, most: int) -> Problem:
    rows = mixture(n, d, k)
    return Problem("mixture", rows, rows[:k].copy(), most)


def _noise(n: int, d: int, k: int, *, plotted: bool) -> Problem:
    rows = np.random.default_rng(0).random((n, d), dtype=np.float32)
    return Problem(
        "uniform noise", rows, rows[:k].copy(), NOISE_ITERATIONS,
        repeats=MOST_REPEATS, plotted=plotted, without_structure=True,
    )  # fmt: skip
