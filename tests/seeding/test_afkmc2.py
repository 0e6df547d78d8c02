"""AFK-MC2: chains are those of the reference, proposals and centres follow their distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse, stats

import daskcluster as dc
from daskcluster.seeding.methods import Proposals, choose_by_chains
from daskcluster.sparse_rows import SparseRows
from tests.laws.data import lognormal
from tests.reference import afkmc2 as reference
from tests.seeding.test_seeding import blobs


@pytest.mark.parametrize("length", [1, 2, 7, 50])
@pytest.mark.parametrize("kind", ["float32", "float64", "csr"])
def test_chains_are_those_of_the_reference(length, kind):
    rng = np.random.default_rng(length)
    n, d, n_chains = 300, 5, 150 if length < 50 else 70
    X = lognormal(n, d, dtype=np.float32 if kind == "float32" else np.float64)
    X[rng.integers(0, n, 40)] = X[0]  # duplicates of the first centre among the proposals
    rates = 0.5 + ((X - X[0]).astype(float) ** 2).sum(axis=1)
    weights = rng.lognormal(size=n)
    picked = rng.integers(0, n, n_chains * length)
    uniforms = rng.random((n_chains, length))
    rows = SparseRows.of(X) if kind == "csr" else X
    proposals = Proposals(picked, rows, rates, np.zeros(n, bool))
    centres, chosen = choose_by_chains(X[:1], proposals, uniforms, n_chains)

    shape = (n_chains, length)
    p = picked.reshape(shape)
    ends = reference.chains(X[0], X[p], (weights * rates)[p], uniforms, weights[p])
    expected = p[np.arange(n_chains), ends]
    kept = [
        row
        for i, row in enumerate(expected)
        if not (X[row] == X[0]).all() and row not in expected[:i]
    ]
    assert chosen.tolist() == kept
    assert np.array_equal(centres, np.concatenate([X[:1], X[chosen]]))
    fewer, first = choose_by_chains(X[:1], proposals, uniforms, 11)
    assert first.tolist() == kept[:11]
    assert np.array_equal(fewer, centres[:12])


def test_separated_clusters_are_found():
    X = blobs()
    centres, indices = dc.afk_mc2(X, 100, chain_length=100, random_state=0)
    assert np.array_equal(X[indices], centres)
    best = dc.quantization_error(X, dc.KMeans(100, init=X[:100]).fit(X).cluster_centers_)
    uniform = dc.KMeans(100, init="random", n_init=1, max_iter=0, random_state=0).fit(X).inertia_
    found = dc.quantization_error(X, centres)
    assert found < uniform / 3
    assert found < dc.quantization_error(X, dc.afk_mc2(X, 100, chain_length=1, random_state=0)[0])
    assert best < found


@pytest.mark.parametrize(("length", "mixture"), [(1, True), (60, False)])
def test_second_centre(length, mixture):
    """Chains of one draw from q, long ones from the weighted squared distances to the first centre."""
    X = np.array([[0.0], [1.0], [2.0], [3.0], [1.0]])
    weights = np.array([1e9, 4.0, 2.0, 1.0, 0.0])  # the first centre is row 0
    engine = dc.LocalEngine(1)
    drawn = [
        int(
            dc.afk_mc2(
                X, 2, chain_length=length, sample_weight=weights, random_state=seed, engine=engine
            )[1][1]
        )
        for seed in range(500)
    ]
    counts = np.bincount(drawn, minlength=5)
    assert counts[0] == counts[4] == 0
    # By weight a chain of one draws the first centre only, which is no end of a chain.
    mass = weights[1:4] * X[1:4, 0] ** 2 / (weights * X[:, 0] ** 2).sum()
    q = mass + weights[1:4] / weights.sum() if mixture else mass
    assert stats.chisquare(counts[1:4], 500 * q / q.sum()).pvalue > 1e-3


def test_weight_equals_copies():
    X, counts = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array([3, 1, 2, 1])
    copies = np.repeat(np.arange(4), counts)
    seen = np.zeros((2, 4, 4))
    engine = dc.LocalEngine(1)
    for seed in range(400):
        one = dc.afk_mc2(X, 2, sample_weight=counts, random_state=seed, engine=engine)[1]
        other = copies[dc.afk_mc2(X[copies], 2, random_state=seed, engine=engine)[1]]
        seen[0][tuple(one)] += 1
        seen[1][tuple(other)] += 1
    used = seen.sum(axis=0) > 0
    assert stats.chi2_contingency(seen[:, used]).pvalue > 1e-3


def test_duplicates_run_out():
    X = np.repeat(np.arange(3.0)[:, None], 10, axis=0)
    for length in (1, 5):
        centres, indices = dc.afk_mc2(X, 5, chain_length=length, random_state=0)
        assert set(centres[:, 0]) == {0.0, 1.0, 2.0}
        assert len(set(indices.tolist())) == 5


def test_identical_rows():
    centres, _ = dc.afk_mc2(np.full((6, 2), 1.5), 4, random_state=0)
    assert np.array_equal(centres, np.full((4, 2), 1.5))


def test_all_rows_become_centres():
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(30, 2))
        _, indices = dc.afk_mc2(X, 30, random_state=seed)
        assert sorted(indices.tolist()) == list(range(30)), seed


def test_sparse_rows():
    X = sparse.random_array((800, 50), density=0.1, rng=np.random.default_rng(0), format="csr")
    one, other = (dc.afk_mc2(rows, 20, random_state=1)[1] for rows in (X, X.toarray()))
    assert np.array_equal(one, other)


def test_bad_chain_length():
    for length in (0, 1.5):
        with pytest.raises((ValueError, TypeError), match="'chain_length' parameter of afk_mc2"):
            dc.afk_mc2(np.eye(3), 2, chain_length=length)
