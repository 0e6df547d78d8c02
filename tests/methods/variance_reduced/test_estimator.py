"""VarianceReducedKMeans: the paper's iterates, Lloyd's algorithm as a limit, the guard, the same bits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import InvalidParameterError, WrongTypeError
from daskcluster.events import Notice
from daskcluster.methods.variance_reduced.algorithm import Secant, StepRule
from daskcluster.randomness import Key
from tests.laws.data import CASES, case
from tests.reference.variance_reduced import epochs as reference


def blobs(n=2000, d=6, k=5, *, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(k, d))[rng.integers(0, k, n)] * 2 + rng.normal(size=(n, d))).astype(
        dtype
    )


def fit(X, weights=None, **changes):
    values = {"n_clusters": 5, "init": np.asarray(X[:5]), "tol": 0, "random_state": 3, **changes}
    return dc.VarianceReducedKMeans(**values).fit(X, sample_weight=weights)


def same(one, other):
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(np.asarray(one.labels_), np.asarray(other.labels_))
    assert (one.inertia_, one.n_iter_, one.stop_reason_) == (
        other.inertia_,
        other.n_iter_,
        other.stop_reason_,
    )


def draws(n, epoch, *, size=1.0, edges=None, seed=3):
    """The rows that the epoch draws, partition by partition."""
    total, edges = round(size * n), [0, n] if edges is None else edges
    uniforms = Key(seed, "steps", epoch).uniforms(0, total)
    parts = []
    for start, stop in pairwise(edges):
        mine = uniforms[total * start // n : total * stop // n]
        parts.append((start + (mine * (stop - start)).astype(int), 1.0))
    return parts


# -- against the paper, step by step ----------------------------------------------------------------


@pytest.mark.parametrize("size", [0.5, 2.0])
@pytest.mark.parametrize("factor", [1, 6])
def test_epochs_are_those_of_the_paper(size, factor):
    X, n = blobs(400, 3), 400
    rate = factor * 5 / n
    expected = reference(X, X[:5], [draws(n, s, size=size) for s in (1, 2, 3)], rate)
    for number, (centres, inertia) in enumerate(expected, 1):
        model = fit(X, learning_rate=rate, epoch_size=size, max_iter=number)
        np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-9, atol=1e-9)
        assert model.history_[-1]["inertia"] == pytest.approx(inertia, rel=1e-9)
        assert model.history_[-1]["n_steps"] == round(size * n)
        assert 0 < model.history_[0]["n_switched"] < round(size * n)


def test_partitions_step_for_themselves_and_are_added_up():
    X, n = blobs(400, 3), 400
    edges = [0, 133, 266, 400]
    expected = reference(X, X[:5], [draws(n, s, edges=edges) for s in (1, 2)], 0.05)
    model = fit(X, learning_rate=0.05, n_partitions=3, max_iter=2)
    np.testing.assert_allclose(model.cluster_centers_, expected[-1][0], rtol=1e-9, atol=1e-9)
    assert not np.array_equal(
        model.cluster_centers_, fit(X, learning_rate=0.05, max_iter=2).cluster_centers_
    )


def test_the_full_gradient_is_zero_hence_both_variants_have_the_same_iterates():
    X, n = blobs(400, 3), 400
    parts = [draws(n, s) for s in (1, 2)]
    one = reference(X, X[:5], parts, 0.05)[-1][0]
    two = reference(X, X[:5], parts, 0.05, full_gradient=True)[-1][0]
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
    wide = blobs(dtype=np.float32)
    plain, full = fit(wide, max_iter=6), fit(wide, variant="vrkm", max_iter=6)
    same(plain, full)
    assert all(record["full_gradient"] is None for record in plain.history_)
    assert all(record["full_gradient"] < 1e-6 for record in full.history_)
    assert full.passes_ - plain.passes_ == 6


@pytest.mark.parametrize("limit", [{"epoch_size": 0}, {"learning_rate": 0}])
@pytest.mark.parametrize("name", CASES)
def test_without_steps_it_is_lloyds_algorithm(name, limit):
    X, weights = case(name)
    lloyd = dc.KMeans(5, init=X[:5], tol=0, algorithm="lloyd").fit(X, sample_weight=weights)
    model = fit(X, weights, **limit)
    same(model, lloyd)
    assert model.stop_reason_ == "converged"


# -- the guard and the end --------------------------------------------------------------------------


def test_inertia_never_rises_whatever_the_rate():
    X, said = blobs(), []
    model = fit(X, learning_rate=3.0, max_iter=60, callbacks=[said.append])
    kept = [r["inertia"] for r in model.history_ if not r["went_back"]]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(kept))
    assert model.inertia_ <= kept[-1] * (1 + 1e-12)  # one is from statistics, one row by row
    rates = [record["learning_rate"] for record in model.history_]
    n_back = sum(record["went_back"] for record in model.history_)
    assert n_back > 1
    assert rates[-1] == 3.0 / 2**n_back
    notices = [event.text for event in said if isinstance(event, Notice)]
    assert len(notices) == n_back
    assert any("centres go back to the last position correction" in text for text in notices)


def test_if_the_last_epoch_diverges_its_centres_are_not_kept():
    X, said = blobs(), []
    model = fit(X, learning_rate=0.9, max_iter=1, callbacks=[said.append])
    lloyd = dc.KMeans(5, init=X[:5], max_iter=1, tol=0).fit(X)
    same(model, lloyd)
    assert any(isinstance(event, Notice) for event in said)


def test_without_the_guard_the_rate_stays_and_nothing_is_undone():
    X = blobs(400, 3)
    free = fit(X, learning_rate=0.9, max_iter=4, guard=False)
    assert [record["learning_rate"] for record in free.history_] == [0.9] * 4
    assert not any(record["went_back"] for record in free.history_)
    assert free.inertia_ > fit(X, learning_rate=0.9, max_iter=4).inertia_


def test_an_adaptive_rate_is_that_of_barzilai_and_borwein():
    X = blobs(400, 3)
    history = fit(X, max_iter=4, adaptive_rate=True).history_
    rates = [record["learning_rate"] for record in history]
    assert rates[0] == 5 / 400  # as without it
    before = X[:5].astype(float)
    for number, rate in enumerate(rates[1:], start=1):
        after = fit(X, max_iter=number, adaptive_rate=True).cluster_centers_.astype(float)
        moved, turned = after - before, gradient(X, after) - gradient(X, before)
        expected = (moved**2).sum() / abs((moved * turned).sum()) / len(X)
        assert rate == pytest.approx(min(expected, 1.0), rel=0.01)
        before = after


def gradient(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the mean gradient of half the inertia, row by row."""
    labels = ((rows[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    found = np.zeros_like(centres)
    for row, label in zip(rows.astype(float), labels, strict=True):
        found[label] += (centres[label] - row) / len(rows)
    return found


def test_an_adaptive_rate_stays_below_one_that_was_halved():
    X = blobs()
    model = fit(X, learning_rate=3.0, adaptive_rate=True, max_iter=30)
    most = 1.0
    for record, later in pairwise(model.history_):
        most = record["learning_rate"] / 2 if record["went_back"] else most
        assert later["went_back"] or later["learning_rate"] <= most
    kept = [r["inertia"] for r in model.history_ if not r["went_back"]]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(kept))


def test_centres_that_stay_have_no_rate():
    here = Secant.of(np.ones((2, 3)), np.zeros((2, 3)), np.ones(2))
    assert here.rate(here, 10) is None


def test_stop_reasons():
    X = blobs()
    assert fit(X, max_iter=3).stop_reason_ == "max_iter"
    assert fit(X, max_iter=0).n_iter_ == 0
    ended = fit(X, tol=1e-3)
    assert ended.stop_reason_ == "tolerance"
    last, before = ended.history_[-1], ended.history_[-2]
    assert abs(before["inertia"] - last["inertia"]) <= 1e-3 * last["inertia"]
    assert last["n_steps"] == 0
    done = fit(X, max_iter=300)
    assert done.stop_reason_ == "converged"
    np.testing.assert_array_equal(done.labels_, done.predict(X))


def test_epochs_that_double():
    X = blobs(300)
    model = fit(X, epoch_size="doubling", max_iter=12, n_clusters=40, init=X[:40])
    steps = [record["n_steps"] for record in model.history_ if record["n_steps"]]
    assert steps == [min(2**s, 600) for s in range(1, len(steps) + 1)]
    assert len(steps) > 6
    assert StepRule("doubling").n_steps(5000, 300) == 600


# -- rows wherever they are -------------------------------------------------------------------------


@pytest.mark.parametrize("n_partitions", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_chunks_and_engines_do_not_matter(client, tmp_path, name, n_partitions):
    X, weights = case(name)
    changes = {"max_iter": 3, "n_partitions": n_partitions, "init": X[:5]}
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(97, X.shape[1]))
    for rows in (X, url):
        source = X if n_partitions == 1 else rows  # more partitions end where chunks do
        expected = fit(source, weights, **changes, engine=LocalEngine(1))
        same(fit(rows, weights, **changes, engine=LocalEngine(1)), expected)
        same(fit(rows, weights, **changes, engine=LocalEngine(2)), expected)
        same(fit(rows, weights, **changes, engine=client), expected)


def test_partitions_of_stored_rows_are_whole_chunks(tmp_path):
    X = blobs(1000, 4)
    store = zarr.create_array(str(tmp_path / "a"), shape=X.shape, chunks=(130, 4), dtype=X.dtype)
    store[:] = X
    model = fit(store, init=X[:5], n_partitions=3, max_iter=2)
    edges = [0, 390, 650, 1000]
    expected = reference(X, X[:5], [draws(1000, s, edges=edges) for s in (1, 2)], 5 / 1000)
    np.testing.assert_allclose(model.cluster_centers_, expected[-1][0], rtol=1e-9)


def test_passes_are_counted():
    X = blobs(3000)
    stored = zarr.array(X, chunks=(300, 6))
    memory = fit(X, max_iter=4)
    assert memory.passes_ == 5
    assert (memory.passes_, memory.bytes_read_) == (5, 0)
    gathered = fit(stored, init=X[:5], max_iter=4)
    assert gathered.passes_ == 6
    apart = fit(stored, init=X[:5], n_partitions=3, max_iter=4)
    assert apart.passes_ == 9


def test_sparse_rows_are_as_good_as_dense_ones():
    X = blobs(600, 30)
    X[np.abs(X) < 1.5] = 0.0
    expected = fit(X, max_iter=4, learning_rate=0.05)
    model = fit(sparse.csr_array(X), init=X[:5], max_iter=4, learning_rate=0.05)
    np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, rtol=1e-9)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    narrow = fit(sparse.csr_array(X.astype(np.float32)), init=X[:5], max_iter=1)
    np.testing.assert_allclose(
        narrow.cluster_centers_, fit(X, max_iter=1).cluster_centers_, rtol=1e-2, atol=1e-2
    )
    parts = fit(sparse.csr_array(X), init=X[:5], max_iter=2, n_partitions=3)
    same(
        parts,
        fit(sparse.csr_array(X), init=X[:5], max_iter=2, n_partitions=3, engine=LocalEngine(1)),
    )


def test_rows_of_small_integers_are_converted_as_they_are_drawn():
    X = np.random.default_rng(0).integers(0, 255, (900, 12)).astype(np.uint8)
    same(fit(X, max_iter=3), fit(X.astype(np.float32), max_iter=3))


def test_weights_draw_rows():
    """A row with weight w is drawn w times as often, and steps are no longer for it."""
    X, n = blobs(300, 3), 300
    weights = np.random.default_rng(1).integers(0, 4, n).astype(float)
    ends = np.cumsum(weights)
    parts = []
    for s in (1, 2, 3):
        uniforms = Key(3, "steps", s).uniforms(0, n)
        parts.append([(np.searchsorted(ends, uniforms * ends[-1], side="right"), 1.0)])
    assert weights[np.concatenate([rows for [(rows, _)] in parts])].min() > 0
    expected = reference(X, X[:5], parts, 0.05, weights=weights)
    model = fit(X, weights, learning_rate=0.05, max_iter=3)
    np.testing.assert_allclose(model.cluster_centers_, expected[-1][0], rtol=1e-9)
    scaled = fit(X, weights * 8.0, learning_rate=0.05, max_iter=3)
    np.testing.assert_array_equal(scaled.cluster_centers_, model.cluster_centers_)
    assert scaled.inertia_ == pytest.approx(8.0 * model.inertia_)


def test_partitions_of_heavier_rows_take_longer_steps():
    X, n = blobs(300, 3), 300
    weights = np.where(np.arange(n) < 150, 1.0, 3.0)
    parts = [(rows, 0.5 if rows[0] < 150 else 1.5) for rows, _ in draws(n, 1, edges=[0, 150, 300])]
    expected = reference(X, X[:5], [parts], 0.05, weights=weights)
    model = fit(X, weights, learning_rate=0.05, max_iter=1, n_partitions=2)
    np.testing.assert_allclose(model.cluster_centers_, expected[-1][0], rtol=1e-9)


def test_an_empty_cluster_keeps_its_centre():
    X = blobs(300, 3)
    start = np.concatenate([X[:4], np.full((1, 3), 1e3)])
    model = fit(X, init=start, max_iter=3, tol=0)
    np.testing.assert_array_equal(model.cluster_centers_[4], start[4])
    assert all(record["n_empty"] >= 1 for record in model.history_)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"learning_rate": "fast"}, InvalidParameterError, "a float >= 0 or 'auto'"),
        ({"epoch_size": "half"}, InvalidParameterError, "or 'doubling'"),
        ({"epoch_size": None}, WrongTypeError, "'epoch_size'"),
    ],
)
def test_parameters_are_checked(changes, error, text):
    with pytest.raises(error, match=text):
        fit(blobs(50), **changes)


def test_a_dataset_of_one_row():
    rows = open_dataset(np.ones((1, 2)))
    model = dc.VarianceReducedKMeans(1, random_state=0).fit(rows)
    assert model.inertia_ == 0.0
