"""Steps that keep the sums of labelling, against steps that compute all inner products anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from daskcluster.methods.kernel_kmeans.chunkwise import GramFunction, Points
from daskcluster.methods.kernel_kmeans.minibatch.algorithm import GramBatch, MovingWindows
from tests.reference import kernel_kmeans as reference

K, B, TAU = 5, 96, 30
ROWS = np.random.default_rng(2).normal(size=(400, 6)).astype(np.float32)
GRAMS = {
    "rbf": GramFunction("rbf", gamma=0.2),
    "polynomial": GramFunction("polynomial", gamma=0.2, degree=3, coef0=1.0),
    "callable": GramFunction("callable", function=lambda X, Y: reference.gram(X, Y, gamma=0.2)),
}


def moved(gram: GramFunction, n_steps: int, rows: Any = ROWS, **options: Any) -> MovingWindows:
    """Return windows after steps with rates that keep all means."""
    first = [Points(rows[j : j + 1], np.array([j])) for j in range(K)]
    moving = MovingWindows.start(gram, first, gram.diagonal(rows[:K], np.arange(K)), TAU, **options)
    rng = np.random.default_rng(0)
    with moving.threads():
        for _ in range(n_steps):
            numbers, weights = rng.integers(0, len(rows), B), rng.integers(0, 3, B).astype(float)
            taken = rows[numbers]
            batch = GramBatch(taken, numbers, weights, gram.diagonal(taken, numbers))
            labels = moving.relative(batch).argmin(axis=1)
            counts = np.bincount(labels, weights, minlength=K)
            moving.move(batch, labels, np.sqrt(counts / counts.sum()))
    return moving


def state(moving: MovingWindows) -> list[bytes]:
    return [
        array.tobytes()
        for window in moving.windows
        for array in (window.products, window.factors, *(m.points.indices for m in window.means))
    ]


def test_steps_have_the_same_bits_with_any_number_of_threads() -> None:
    whole = state(moved(GRAMS["rbf"], 6))
    for n_threads in (2, 3, 7):
        assert state(moved(GRAMS["rbf"], 6, n_threads=n_threads)) == whole


def test_an_error_frees_the_threads_and_steps_go_on_without_them() -> None:
    gram = GRAMS["rbf"]
    moving = moved(gram, 2, n_threads=3)
    batch = GramBatch(ROWS[:B], np.arange(B), np.ones(B), gram.diagonal(ROWS[:B], np.arange(B)))
    before = moving.relative(batch)
    with pytest.raises(ValueError, match="stop"), moving.threads():
        raise ValueError("stop")
    assert np.array_equal(moving.relative(batch), before)
