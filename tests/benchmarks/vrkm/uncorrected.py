"""SVRG without position correction, for Figure 3."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tests.benchmarks.vrkm.problems import Problem


def losses(problem: Problem, seed: int, epochs: int, *, rate: float) -> list[float]:
    """Return the loss before each epoch and after the last, up to the first that is not finite.

    Steps start from the centres of the full pass, not from the means of their rows, and carry the full
    gradient of each cluster, as equation 6 has it.
    """
    centres = problem.first_centres(seed).astype(np.float64)
    rng, found = np.random.default_rng(seed), []
    n = len(problem.rows)
    for epoch in range(epochs + 1):
        loss, labels, gradient = _full_pass(problem, centres)
        found.append(loss)
        if epoch < epochs:
            centres = _steps(problem.rows, labels, centres, gradient, rng.integers(0, n, n), rate)
        if not np.isfinite(centres).all() or loss > 1e3 * found[0]:
            break
    return found


def _full_pass(problem: Problem, centres: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    from daskcluster.chunkwise.centres import PreparedCentres

    ready = PreparedCentres(centres.astype(np.float32))
    labels, distances = np.empty(len(problem.rows), np.int32), np.empty(len(problem.rows))
    ready.nearest(problem.rows, labels)
    ready.sqdist_to_assigned(problem.rows, labels, distances)
    gradient = np.zeros_like(centres)
    for j in range(len(centres)):
        members = problem.rows[labels == j]
        if len(members):
            gradient[j] = centres[j] - members.mean(axis=0, dtype=np.float64)
    return float(distances.sum()), labels, gradient


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _steps(
    rows: Any, labels: Any, snapshot: Any, gradient: Any, drawn: Any, rate: float
) -> Any:  # pragma: no cover
    centres = snapshot.copy()
    k, d = centres.shape
    for i in drawn:
        best, a = np.inf, 0
        for j in range(k):
            total = 0.0
            for t in range(d):
                gap = rows[i, t] - centres[j, t]
                total += gap * gap
                if t & 63 == 63 and total > best:
                    break
            if total < best:
                best, a = total, j
        b = labels[i]
        for t in range(d):
            pull, push = centres[a, t] - rows[i, t], snapshot[b, t] - rows[i, t]
            centres[a, t] -= rate * pull
            centres[b, t] += rate * push
        for j in range(k):
            for t in range(d):
                centres[j, t] -= rate * gradient[j, t]
    return centres
