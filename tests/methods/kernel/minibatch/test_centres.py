"""Steps that keep the sums of labelling, against steps that compute all inner products anew."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, Points
from daskcluster.methods.kernel.minibatch.centres import GramBatch, MovingWindows
from daskcluster.sparse_rows import SparseRows
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


@pytest.mark.parametrize(
    ("name", "form"), [*((name, "dense") for name in GRAMS), ("rbf", "sparse")]
)
def test_products_of_kept_sums_are_those_computed_anew(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: Any = ROWS if form == "dense" else SparseRows.of(ROWS)
    kept = moved(GRAMS[name], 7, rows)
    monkeypatch.setattr(MovingWindows, "_keeps", lambda *_: False)
    anew = moved(GRAMS[name], 7, rows)
    for one, other in zip(kept.windows, anew.windows, strict=True):
        assert [list(m.points.indices) for m in one.means] == [
            list(m.points.indices) for m in other.means
        ]
        np.testing.assert_allclose(one.products, other.products, rtol=1e-13)
    assert kept.meter.n_values < 0.9 * anew.meter.n_values


def test_products_of_means_have_their_definition() -> None:
    for window in moved(GRAMS["rbf"], 7).windows:
        points, shares = [m.points.indices for m in window.means], [m.shares for m in window.means]
        wanted = [
            [
                a @ reference.gram(ROWS[p], ROWS[q], gamma=0.2) @ b
                for q, b in zip(points, shares, strict=True)
            ]
            for p, a in zip(points, shares, strict=True)
        ]
        np.testing.assert_allclose(window.products, wanted, rtol=1e-6)


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


def test_the_values_of_a_step_are_those_of_labels_and_within_clusters() -> None:
    gram, moving = GRAMS["rbf"], moved(GRAMS["rbf"], 4)
    batch = GramBatch(ROWS[:B], np.arange(B), np.ones(B), gram.diagonal(ROWS[:B], np.arange(B)))
    held, before = sum(len(m) for w in moving.windows for m in w.means), moving.meter.n_values
    labels = moving.relative(batch).argmin(axis=1)
    moving.move(batch, labels, np.full(K, 0.5))
    own = int((np.bincount(labels, minlength=K) ** 2).sum())
    assert moving.meter.n_values - before == B * held + own


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_sums_of_points_over_their_own_groups(form: str) -> None:
    groups = np.repeat(np.arange(9), [1, 1, 1, 1, 1, 40, 2, 17, 30])  # several in a panel
    factors = np.random.default_rng(1).random(len(groups))
    rows: Any = ROWS[: len(groups)] if form == "dense" else SparseRows.of(ROWS[: len(groups)])
    sums = GramSums(GRAMS["rbf"], Points(rows, np.arange(len(groups))), factors, groups, 9)
    wanted = np.take_along_axis(sums(rows), groups[:, None], axis=1)
    for cuts in ([0, 9], [0, 3, 4, 9]):
        found = np.empty((len(groups), 1))
        for first, last in pairwise(cuts):
            sums.own(slice(first, last), found)
        assert found.tobytes() == wanted.tobytes()
