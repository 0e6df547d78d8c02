"""Seeding: distributions, degenerate data, and that it beats chance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.chunkwise.seeding import ROUND, RoundParams
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.randomness import Key
from daskcluster.seeding.methods import draw_rows


def blobs(k=100, n=4000, d=2, seed=0):
    rng = np.random.default_rng(seed)
    centres = 100 * rng.random((k, d))
    return centres[np.arange(n) % k] + 0.05 * rng.normal(size=(n, d))


@pytest.mark.parametrize("method", ["plusplus", "parallel"])
def test_separated_clusters_are_all_found(method):
    X = blobs()
    if method == "plusplus":
        centres, _ = dc.kmeans_plusplus(X, 100, random_state=0)
    else:
        centres = dc.kmeans_parallel(X, 100, random_state=0)
    best = dc.quantization_error(X, dc.KMeans(100, init=X[:100]).fit(X).cluster_centers_)
    assert dc.quantization_error(X, centres) < 3 * best


def test_random_rows_follow_their_weights():
    weights = np.array([0.0, 1, 2, 3, 4])
    dataset = open_dataset(np.zeros((5, 1)), weights=weights)
    drawn = [int(draw_rows(dataset, 1, Key(seed, "test"))[0]) for seed in range(3000)]
    counts = np.bincount(drawn, minlength=5)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], 3000 * weights[1:] / 10).pvalue > 1e-3


def test_second_centre_follows_weighted_squared_distances():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    weights = np.array([1e9, 4.0, 2.0, 1.0])  # the first centre is row 0
    drawn = [
        int(
            dc.kmeans_plusplus(X, 2, sample_weight=weights, random_state=seed, n_local_trials=1)[1][
                1
            ]
        )
        for seed in range(600)
    ]
    mass = weights[1:] * X[1:, 0] ** 2
    counts = np.bincount(drawn, minlength=4)[1:]
    assert stats.chisquare(counts, 600 * mass / mass.sum()).pvalue > 1e-3


def test_parallel_rounds_sample_in_proportion():
    """The first round draws row i with probability min(1, l w d^2 / phi), independently."""
    from daskcluster.chunkwise.seeding import FIRST_ROUND, RoundParams
    from daskcluster.engine.local import LocalEngine
    from daskcluster.engine.scaled import ScaledPlacement

    X = np.array([[0.0], [1], [2], [3], [4]])
    weights = np.array([1.0, 1, 2, 1, 3])
    hits = np.zeros(5)
    trials = 2000
    with LocalEngine(n_threads=1).place(open_dataset(X, weights=weights)) as placement:
        rows = ScaledPlacement(placement)
        for seed in range(trials):
            key = Key(seed, "k-means||", 0)
            found = rows.reduce(
                FIRST_ROUND,
                lambda scale, key=key: RoundParams(
                    X[:1], 0, key, 50, scale.distances(X[:1]), scale.weights.high
                ),
            )
            hits[found.kept.indices[found.kept.keys < 2.0 / found.cost.value]] += 1
    mass = weights * X[:, 0] ** 2
    expected = np.minimum(1.0, 2.0 * mass / mass.sum())
    error = np.sqrt(expected * (1 - expected) / trials)
    assert (np.abs(hits / trials - expected) <= 4 * error + 1e-12).all()


def test_plusplus_indices_are_rows():
    X = blobs(k=7, n=200).astype(np.float32)
    for seed in range(10):
        centres, indices = dc.kmeans_plusplus(X, 12, random_state=seed)
        assert centres.dtype == np.float32
        assert (X[indices] == centres).all(), seed
        assert len(set(indices.tolist())) == 12, seed


def test_duplicates_run_out():
    X = np.repeat(np.arange(3.0)[:, None], 10, axis=0)
    for centres in (
        dc.kmeans_plusplus(X, 5, random_state=0)[0],
        dc.kmeans_parallel(X, 5, random_state=0),
    ):
        assert centres.shape == (5, 1)
        assert set(centres[:, 0]) == {0.0, 1.0, 2.0}


def test_too_many_centres():
    with pytest.raises(ValueError, match="n_samples=5 should be >= n_clusters=6"):
        dc.kmeans_plusplus(np.zeros((5, 2)), 6)


def test_restarts_of_one_placement_know_nothing_of_each_other():
    from daskcluster.engine.local import LocalEngine
    from daskcluster.engine.scaled import ScaledPlacement
    from daskcluster.seeding.methods import kmeans_parallel, kmeans_plusplus

    def seed_with(seed):
        return (
            kmeans_plusplus(rows, 8, seed)[0],
            kmeans_parallel(rows, 8, seed, reduce_candidates=lambda found, weights, k: found),
        )

    X = np.random.default_rng(0).normal(size=(2000, 3))
    with LocalEngine(n_threads=1).place(open_dataset(X)) as placement:
        rows = ScaledPlacement(placement)
        first, _, again = seed_with(1), seed_with(2), seed_with(1)
        assert np.array_equal(first[0], again[0])
        assert np.array_equal(first[1], again[1])


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_lost_state_of_parallel_rounds_comes_back_to_the_same_bits(monkeypatch, kind):
    """Far from the origin many candidates are as near up to rounding: which one a row has must not
    depend on whether its state was kept.
    """
    from scipy import sparse

    from daskcluster.engine.operations import CacheSlot

    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 8), dtype=np.float32) + 60 * rng.integers(0, 9, (30_000, 1))
    X = X.astype(np.float32) if kind == "dense" else sparse.csr_array(X.astype(np.float32))

    def seed():
        return dc.kmeans_parallel(X, 12, random_state=0, engine=dc.LocalEngine(2))

    kept, calls = seed(), []
    pop = CacheSlot.pop_state

    def forgetful(place, name):
        calls.append(name)
        found = pop(place, name)
        return (-1, None) if len(calls) % 3 == 0 else found

    monkeypatch.setattr(CacheSlot, "pop_state", forgetful)
    again = seed()
    assert len(calls) > 6
    assert again.tobytes() == kept.tobytes()


def test_all_rounds_search_new_candidates_with_one_tile() -> None:
    rows = np.random.default_rng(0).random((40, 6), dtype=np.float32)
    rounds = [(first, first + size) for first, size in ((0, 1), (1, 13), (14, 6), (20, 14))]
    params = RoundParams(rows[:34], 20, Key(0, "round"), 9, SumGrid(1.0, 1.0), 1.0, n_clusters=20)
    prepared = ROUND.prepare(dataclasses.replace(params, rounds=tuple(rounds)))
    tiles = {new.panels.tile for new in (prepared.new, *(new for _, new in prepared.earlier))}
    assert len(tiles) == 1


def test_parallel_candidates_are_searched_for_groups_that_share_a_centre() -> None:
    """Overlapping groups, in so many dimensions that k-means++ often splits one and joins two."""
    rng, found = np.random.default_rng(3), 0
    truth = 1.5 * rng.normal(size=(20, 16))
    X = (truth[rng.integers(0, 20, 10_000)] + rng.normal(size=(10_000, 16))).astype(np.float32)
    for seed in range(10):
        centres = dc.kmeans_parallel(X, 20, random_state=seed)
        nearest = ((truth[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        found += len(np.unique(nearest)) == 20
    assert found >= 8
