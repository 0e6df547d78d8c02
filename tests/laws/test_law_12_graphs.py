"""Law 12 for graphs of neighbours: the same clusters for any chunks and engine, and for the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import daskcluster as dc
from tests.reference import kernel_kmeans as reference

Fitted = dc.KernelKMeans | dc.MiniBatchKernelKMeans
STEPS = {
    "batch_size": st.integers(3, 300),
    "truncation": st.sampled_from([1, 20, 60, None]),
    "normalize_truncated": st.booleans(),
    "learning_rate": st.sampled_from(["sqrt", "count"]),
    "replacement": st.booleans(),
}


@dataclass(frozen=True)
class Problem:
    """Rows, their weights, chunks, and the parameters of a fit and of its graph."""

    rows: np.ndarray
    weights: np.ndarray
    chunk: int
    graph: dict[str, Any]
    fit: dict[str, Any]

    def fitted(self, source: Any, **parameters: Any) -> Fitted:
        kind = dc.MiniBatchKernelKMeans if "batch_size" in self.fit else dc.KernelKMeans
        return kind(**self.fit, **parameters).fit(source, sample_weight=self.weights)

    @property
    def matrix(self) -> np.ndarray:
        """The kernel by its definition."""
        rows, n_neighbors = self.rows.astype(np.float64), self.graph["n_neighbors"]
        if self.graph["kernel"] == "knn":
            return np.asarray(reference.knn(rows, n_neighbors))
        return np.asarray(reference.heat(rows, self.graph["heat_time"], n_neighbors))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw rows, weights, parameters and chunks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, k = draw(st.integers(20, 150)), draw(st.integers(1, 7)), draw(st.integers(1, 6))
    centres = draw(st.sampled_from([0.0, 2.0])) * rng.normal(size=(4, d))
    rows = centres[rng.integers(0, 4, n)] + rng.normal(size=(n, d))
    weights = rng.lognormal(size=n)
    weights[10 :: draw(st.integers(7, 200))] = 0.0
    graph = {
        "kernel": draw(st.sampled_from(["knn", "heat"])),
        "n_neighbors": draw(st.integers(4, 20)),
        "heat_time": draw(st.sampled_from([0.3, 1.0, 7.0])),
    }
    fit = {
        "n_clusters": k,
        "max_iter": draw(st.integers(0, 12)),
        "init": draw(st.sampled_from(["k-means++", "random"])),
        "random_state": draw(st.integers(0, 999)),
    }
    if draw(st.booleans()):
        fit |= {name: draw(values) for name, values in STEPS.items()}
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return Problem(rows.astype(dtype), weights, draw(st.integers(1, n)), graph, fit)


def fits(problem: Problem, engine: Any) -> list[Fitted]:
    """Fit rows in memory on a thread, and in chunks on an engine."""
    chunks = da.from_array(problem.rows, chunks=(problem.chunk, -1))
    return [
        problem.fitted(source, **problem.graph, engine=where)
        for source, where in ((problem.rows, dc.LocalEngine(1)), (chunks, engine))
    ]


def check_same(one: Fitted, other: Fitted) -> None:
    """Compare two fits bit by bit."""
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert one.inertia_ == other.inertia_
    costs, others = ([step["inertia"] for step in model.history_] for model in (one, other))
    assert costs == others


@settings(max_examples=40, deadline=None)
@given(problem=problems(), n_threads=st.sampled_from([1, 2, 5]))
def test_any_chunks_and_threads_give_the_same(problem: Problem, n_threads: int) -> None:
    check_same(*fits(problem, dc.LocalEngine(n_threads)))


@pytest.mark.parametrize("steps", [{}, {"batch_size": 40}, {"batch_size": 40, "truncation": None}])
@pytest.mark.parametrize("kernel", ["knn", "heat"])
def test_a_cluster_gives_the_same_as_the_matrix(
    client: Any, kernel: str, steps: dict[str, Any]
) -> None:
    rng = np.random.default_rng(5)
    graph = {"kernel": kernel, "n_neighbors": 7, "heat_time": 1.0}
    fit = {"n_clusters": 5, "max_iter": 9, "random_state": 0, **steps}
    problem = Problem(rng.normal(size=(130, 3)), rng.lognormal(size=130), 29, graph, fit)
    first, second = fits(problem, client)
    check_same(first, second)
    # Without ties, as here, the order of the sums does not matter.
    expected = problem.fitted(problem.matrix, kernel="precomputed")
    np.testing.assert_array_equal(first.labels_, expected.labels_)
    assert first.inertia_ == pytest.approx(expected.inertia_, rel=1e-8, abs=1e-12)
