"""Law 12: with the options that follow a paper to the letter, an estimator makes the paper's steps.

Each test runs the public estimator where its own rules would interfere, against the slow, plain reference
that was written from the paper alone.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.randomness import Key
from tests.laws.data import case
from tests.reference import backward_euler, kmeans, variance_reduced

K, N, SEED = 4, 300, 0


@pytest.fixture
def rows():
    return case("float64", n=N)[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("gamma", [1.2 * K, 30.0])
def test_stochastic_backward_euler(rows, gamma):
    """Yin, Pham, Oberman and Osher (2018), section 2.1."""
    steps = {"step_size": gamma, "decay": 0.9, "averaging": 0.5, "inner_iter": 3, "max_iter": 6}
    model = dc.BackwardEulerKMeans(
        K, init=rows[:K], batch_size=60, size_limit=None, guard=False, random_state=SEED, **steps
    ).fit(rows)
    with Batches(dc.open_dataset(rows), 60, Key(SEED, "restart", 0).derived_seed()) as batches:
        drawn = [batches.next() and [batches.row_of(i) for i in range(60)] for _ in range(19)]
    centres, _, halvings = backward_euler.run(
        rows, None, rows[:K], [np.array(listed) for listed in drawn],
        gamma=gamma, beta=0.9, alpha=0.5, imaxit=3, omaxit=6, guard=False,
    )  # fmt: skip
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-6)
    assert model.inertia_ == pytest.approx(kmeans.inertia(rows, centres, None), rel=1e-6)
    assert halvings == [0] * 6


@pytest.mark.parametrize("rate", [K / N, 0.9])
@pytest.mark.parametrize("variant", ["vrkm", "vrkm++"])
def test_variance_reduction(rows, variant, rate):
    """Zhao and others (2018), Algorithms 3 and 4."""
    model = dc.VarianceReducedKMeans(
        K, init=rows[:K], variant=variant, learning_rate=rate, n_partitions=1, guard=False, tol=0.0,
        max_iter=5, random_state=SEED,
    ).fit(rows)  # fmt: skip
    draws = [
        [((Key(SEED, "steps", epoch).uniforms(0, N) * N).astype(int), 1.0)] for epoch in range(1, 6)
    ]
    expected = variance_reduced.epochs(rows, rows[:K], draws, rate, full_gradient=variant == "vrkm")
    np.testing.assert_allclose(model.cluster_centers_, expected[-1][0], rtol=1e-6)
    losses = [record["inertia"] for record in model.history_]
    np.testing.assert_allclose(losses, [inertia for _, inertia in expected], rtol=1e-9)
    rises = any(later > earlier for earlier, later in pairwise(losses))
    assert rises or rate < 0.9, "the guard had nothing to undo, so the test cannot fail"
