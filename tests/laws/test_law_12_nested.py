"""Law 12 for nested mini-batches: Algorithm 5 of Newling and Fleuret (2016), round by round, to its end.

With bounds it is nmbatch, without them growbatch. The reference takes back every vote before a row gives a
new one; the estimator does not store votes.
"""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.methods.nested.batches import NestedOrder
from daskcluster.randomness import Key
from tests.reference.nested import nested as reference

K, N, B, SEED = 4, 600, 75, 3


def blobs():
    rng = np.random.default_rng(0)
    return 2.0 * rng.normal(size=(K, 3))[rng.integers(0, K, N)] + rng.normal(size=(N, 3))


def order_of_rows():
    return np.argsort(NestedOrder(N, Key(SEED, "nested")).places(0, N), kind="stable")


@pytest.mark.parametrize("definition", ["paper", "code"])
@pytest.mark.parametrize("rho", [0.5, 20.0])
def test_weights_are_votes_with_an_effective_number_of_rows(rho, definition):
    rows = blobs()
    weights = np.random.default_rng(1).lognormal(sigma=1.0, size=N)
    centres, rounds = reference(
        rows, rows[:K], order_of_rows(), B, rho=rho, definition=definition, weights=weights
    )
    model = dc.NestedMiniBatchKMeans(
        K, init=rows[:K], batch_size=B, rho=rho, doubling=definition, tol=0, random_state=SEED
    ).fit(rows, sample_weight=weights)
    assert [r["batch_size"] for r in model.history_] == [found["batch_size"] for found in rounds]
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-9)
    for record, found in zip(model.history_, rounds, strict=True):
        ratio = record["doubling_ratio"]
        if found["batch_size"] < N and ratio is not None and ratio > rho:
            assert ratio == pytest.approx(found["ratio"], rel=1e-7)


@pytest.mark.parametrize("seeds_vote", [True, False])
@pytest.mark.parametrize(("bounds", "rho"), [("elkan", 100.0), ("hamerly", 2.0), (False, 10.0)])
def test_algorithm_5(bounds, rho, seeds_vote):
    rows = blobs()
    order = order_of_rows()
    centres, rounds = reference(rows, rows[:K], order, B, rho=rho, seeds_vote=seeds_vote)
    model = dc.NestedMiniBatchKMeans(
        K, init=rows[:K], batch_size=B, rho=rho, bounds=bounds, seeds_vote=seeds_vote, tol=0,
        random_state=SEED,
    ).fit(rows)  # fmt: skip
    parts = [found for found in rounds if found["batch_size"] < N]
    records = model.history_[: len(parts)]
    assert len({found["batch_size"] for found in parts}) == 3, "the batch should double three times"
    assert [r["batch_size"] for r in records] == [found["batch_size"] for found in parts]
    np.testing.assert_allclose(
        [record["inertia"] for record in records],
        [found["sse"].sum() for found in parts],
        rtol=1e-9,
    )
    doubled = [
        record["doubling_ratio"] is None or record["doubling_ratio"] > rho for record in records
    ]
    assert doubled == [found["ratio"] > rho for found in parts]
    assert [r["batch_size"] for r in model.history_] == [found["batch_size"] for found in rounds]
    assert model.stop_reason_ == "converged"
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-9)
    np.testing.assert_array_equal(model.labels_, rounds[-1]["labels"])
