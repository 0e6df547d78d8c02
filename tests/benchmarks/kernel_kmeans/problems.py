"""Data sets with true labels, and their kernels."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings

SETS = {
    "pendigits": {"gamma": 4.0},
    "pendigits-knn": {"n_neighbors": 800},
    "pendigits-heat": {"n_neighbors": 10, "heat_time": 64.0},
    "mnist10k": {"gamma": 2.0},
    "mnist10k-knn": {"n_neighbors": 800},
    "mnist10k-heat": {"n_neighbors": 10, "heat_time": 64.0},
    "rings": {"gamma": 10.0},
    "rings-heat": {"n_neighbors": 10, "heat_time": 4096.0},
    "moons": {"gamma": 20.0},
    "moons-heat": {"n_neighbors": 10, "heat_time": 4096.0},
    "mnist": {"gamma": 2.0},
}
"""Parameters of the kernels; gamma is a multiple of ``"auto"``."""

SHAPES = {"pendigits": (10_992, 16), "mnist10k": (10_000, 784), "mnist": (70_000, 784)}
QUICK_ROWS = 2000
_BLOCK = 1024
_NOTHING = 1e-100
"""Smaller values are set to 0: subnormal numbers are a hundred times as slow."""


@dataclass
class Problem:
    """Rows, their true labels, and a kernel.

    Attributes
    ----------
    name : str
    X : ndarray of shape (n, d), float32
    y : ndarray of shape (n,)
    settings : dict
        Parameters of the kernel, as in `SETS`.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    settings: dict[str, float]

    @property
    def k(self) -> int:
        return len(np.unique(self.y))

    @property
    def is_large(self) -> bool:
        return len(self.X) > 20_000

    @property
    def is_shape(self) -> bool:
        """Rings or moons."""
        return self.name.partition("-")[0] in ("rings", "moons")

    @property
    def kernel(self) -> str:
        if "gamma" in self.settings:
            return "rbf"
        return "heat" if "heat_time" in self.settings else "knn"

    @cached_property
    def gamma(self) -> float:
        """gamma of the rbf kernel."""
        rule = 1.0 / (4.0 * self.X.var(axis=0, dtype=np.float64).sum())
        return float(self.settings["gamma"] * rule)

    @cached_property
    def matrix(self) -> np.ndarray:
        """Exact kernel matrix of a graph, float32 (n, n), computed in `matrix_seconds`."""
        began = time.perf_counter()
        found = graph_matrix(
            self.X, int(self.settings["n_neighbors"]), self.settings.get("heat_time")
        )
        self.matrix_seconds = time.perf_counter() - began
        return found

    @property
    def rows(self) -> np.ndarray:
        """Input of kernel k-means: rows, or the kernel matrix of a graph."""
        return self.X if self.kernel == "rbf" else self.matrix

    @property
    def parameters(self) -> dict[str, Any]:
        """Kernel parameters of the estimators."""
        if self.kernel == "rbf":
            return {"kernel": "rbf", "gamma": self.gamma}
        return {"kernel": "precomputed"}


def graph_matrix(X: np.ndarray, n_neighbors: int, heat_time: float | None) -> np.ndarray:
    """Return the k-nn or the heat kernel of all rows, float32 (n, n).

    The heat kernel of a time is the square of that of half the time: one product of dense matrices.
    """
    import daskcluster as dc
    from daskcluster.methods.kernel_kmeans.graph import GraphGram, neighbour_graph

    adjacency = neighbour_graph(dc.open_dataset(X), n_neighbors).adjacency
    n = len(X)
    if heat_time is None:
        return np.asarray(GraphGram(adjacency).columns(np.arange(adjacency.shape[0])), np.float32)
    halvings = max(0, math.ceil(math.log2(heat_time / 2.0)))
    gram, found = GraphGram(adjacency, heat_time / 2**halvings), np.empty((n, n))
    for first in range(0, n, _BLOCK):
        which = np.arange(first, min(first + _BLOCK, n))
        found[:, which] = gram.columns(which)
    for _ in range(halvings):
        found[np.abs(found) < _NOTHING] = 0.0
        found = found @ found
    return np.asarray((found + found.T) / 2.0, np.float32)


def problem(name: str, options: Settings) -> Problem:
    """Return the set of that name, one of `SETS`.

    Raises
    ------
    ValueError
        There is none.
    """
    if name not in SETS:
        raise ValueError(f"--sets {name}: expected one of {', '.join(SETS)}.")
    rows = name.partition("-")[0]
    known = {"rings": _rings, "moons": _moons}
    X, y, title = known[rows]() if rows in known else _stored(rows, options)
    if options.quick:
        X, y = X[:QUICK_ROWS], y[:QUICK_ROWS]
    return Problem(name + title, X, y, dict(SETS[name]))


def _rings(n: int = 4000) -> tuple[np.ndarray, np.ndarray, str]:
    rng = np.random.default_rng(0)
    y, angle = rng.integers(0, 2, n), rng.uniform(0, 2 * np.pi, n)
    X = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 + 4 * y[:, None])
    return (X + 0.1 * rng.normal(size=X.shape)).astype(np.float32), y, ""


def _moons(n: int = 4000) -> tuple[np.ndarray, np.ndarray, str]:
    rng = np.random.default_rng(0)
    y, angle = rng.integers(0, 2, n), rng.uniform(0, np.pi, n)
    X = np.stack([np.cos(angle), np.sin(angle)], 1) * np.where(y == 0, 1, -1)[:, None]
    X += y[:, None] * np.array([1.0, 0.5])
    return (X + 0.05 * rng.normal(size=X.shape)).astype(np.float32), y, ""


def _stored(name: str, options: Settings) -> tuple[np.ndarray, np.ndarray, str]:
    """Return a set from `--data`, or Gaussians of its shape if the file is missing."""
    file = {"mnist10k": "mnist"}.get(name, name)
    path = None if options.data is None else options.data / f"{file}.npz"
    n, d = SHAPES[name]
    if path is None or not path.exists():
        say(f"  {name} is generated: there is no {file}.npz in --data")
        rng = np.random.default_rng(0)
        y = rng.integers(0, 10, n)
        X = rng.normal(size=(10, d))[y] + rng.normal(size=(n, d))
        return X.astype(np.float32), y, " (generated)"
    with np.load(path) as stored:
        X, y = stored["X"].astype(np.float32), stored["y"]
    if len(X) > n:
        chosen = np.random.default_rng(0).permutation(len(X))[:n]
        X, y = X[chosen], y[chosen]
    return X, y, ""
