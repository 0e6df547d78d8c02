"""BackwardEulerKMeans: starts alone and among others, every source and engine, the estimator's contract."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import daskcluster as dc
from daskcluster import errors, events, jobs
from daskcluster.methods.backward_euler import fit as backward_euler_fit
from daskcluster.methods.backward_euler.projection import plan_fit
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.randomness import Key
from tests.laws.data import CASES, case
from tests.reference import backward_euler as truth
from tests.reference import kmeans

X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
SMALL = {"batch_size": 60, "inner_iter": 3, "max_iter": 6, "random_state": 0}
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": (
        "repeated rows and weighted rows are drawn into different samples and batches"
    ),
    "check_sample_weight_equivalence_on_sparse_data": "as on dense data",
}


@parametrize_with_checks(
    [dc.BackwardEulerKMeans(random_state=0, max_iter=20)],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def stored(folder, rows, chunk=100):
    array = zarr.create_array(
        folder / "rows.zarr", shape=rows.shape, chunks=(chunk, rows.shape[1]), dtype=rows.dtype
    )
    array[:] = rows
    return str(folder / "rows.zarr")


def same_bits(one, other):
    assert one.cluster_centers_.dtype == other.cluster_centers_.dtype
    assert np.array_equal(one.cluster_centers_, other.cluster_centers_)
    assert np.array_equal(np.asarray(one.labels_), np.asarray(other.labels_))
    assert np.array_equal(one.start_inertias_, other.start_inertias_)
    assert (one.inertia_, one.n_iter_, one.stop_reason_) == (
        other.inertia_, other.n_iter_, other.stop_reason_,
    )  # fmt: skip
    steps = ("inertia", "shift", "step_size", "n_empty", "n_touched")
    for mine, theirs in zip(one.history_, other.history_, strict=True):
        assert [mine[name] for name in steps] == [theirs[name] for name in steps]


def test_fit_follows_the_reference():
    rows, weights = case("weighted float64", n=300)
    model = dc.BackwardEulerKMeans(4, init=rows[:4], **SMALL).fit(rows, sample_weight=weights)
    seed = Key(0, "restart", 0).derived_seed()
    with Batches(dc.open_dataset(rows, weights=weights), 60, seed) as batches:
        drawn = [batches.next() and [batches.row_of(i) for i in range(60)] for _ in range(40)]
    centres, _, _ = truth.run(
        rows, weights, rows[:4], [np.array(listed) for listed in drawn],
        gamma=2.2 * 4, beta=1 / 1.02, alpha=0.9, imaxit=3, omaxit=6, size_limit=1.25,
    )  # fmt: skip
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-9, atol=1e-9)
    final = kmeans.inertia(rows, model.cluster_centers_, weights)
    np.testing.assert_allclose(model.inertia_, final, rtol=1e-9)
    assert model.start_inertias_.tolist() == [model.inertia_]
    assert np.array_equal(model.labels_, model.predict(rows))
    assert (model.n_iter_, model.stop_reason_, len(model.history_)) == (6, "max_iter", 6)
    assert model.passes_ == -(-19 * 60 // 300) + 1
    assert model.history_[0]["step_size"] == 2.2 * 4


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_to_the_letter_steps_are_those_of_the_paper():
    rows, _ = case("float64", n=300)
    steps = {"step_size": 30.0, "decay": 0.9, "averaging": 0.5}
    letter = {"size_limit": None, "guard": False}
    model = dc.BackwardEulerKMeans(4, init=rows[:4], **steps, **letter, **SMALL).fit(rows)
    with Batches(dc.open_dataset(rows), 60, Key(0, "restart", 0).derived_seed()) as batches:
        drawn = [batches.next() and [batches.row_of(i) for i in range(60)] for _ in range(40)]
    centres, starts, _ = truth.run(
        rows, None, rows[:4], [np.array(listed) for listed in drawn],
        gamma=30.0, beta=0.9, alpha=0.5, imaxit=3, omaxit=6, guard=False,
    )  # fmt: skip
    np.testing.assert_allclose(model.cluster_centers_, centres, rtol=1e-6)
    assert max(starts) > 100 * starts[0], "these steps should diverge"
    assert not any(record["n_halved"] for record in model.history_)
    kept = dc.BackwardEulerKMeans(4, init=rows[:4], **steps, **SMALL).fit(rows)
    assert kept.inertia_ < 0.01 * model.inertia_


def test_a_limit_of_steps_by_size_lets_unequal_clusters_settle():
    random = np.random.default_rng(3)
    sizes, middles = [4000, *[100] * 7], 40.0 * np.arange(8)[:, None] * [1.0, 0.3]
    rows = np.concatenate(
        [middle + random.normal(size=(n, 2)) for middle, n in zip(middles, sizes, strict=True)]
    )
    model = dc.BackwardEulerKMeans(8, init=middles, batch_size=500, random_state=0)
    free = clone(model).set_params(size_limit=None).fit(rows)
    limited = model.fit(rows)
    halved = [sum(record["n_halved"] for record in each.history_) for each in (free, limited)]
    assert halved[1] < halved[0] / 10
    assert limited.inertia_ < 0.5 * free.inertia_
    assert limited.inertia_ < 1.02 * kmeans.inertia(rows, middles, None)


@pytest.mark.parametrize("n_init", [1, 3])
def test_lloyds_algorithm_finishes_the_best_start(n_init):
    options = {**SMALL, "n_init": n_init}
    plain = dc.BackwardEulerKMeans(5, **options).fit(X)
    fixed = dc.BackwardEulerKMeans(5, refine_iter=100, **options).fit(X)
    after = dc.KMeans(5, init=plain.cluster_centers_, algorithm="lloyd", tol=0.0).fit(X)
    assert np.array_equal(fixed.cluster_centers_, after.cluster_centers_)
    assert np.array_equal(fixed.labels_, fixed.predict(X))
    assert fixed.inertia_ < plain.inertia_
    assert (fixed.n_iter_, len(fixed.history_)) == (plain.n_iter_, len(plain.history_))
    assert fixed.passes_ == plain.passes_ + after.n_iter_


def test_starts_are_the_same_alone_and_among_others():
    model = dc.BackwardEulerKMeans(5, **SMALL)
    five = clone(model).set_params(n_init=5).fit(X)
    two = clone(model).set_params(n_init=2, engine=dc.LocalEngine(n_threads=1)).fit(X)
    one = clone(model).fit(X)
    assert np.array_equal(five.start_inertias_[:2], two.start_inertias_)
    assert two.start_inertias_[0] == one.inertia_
    assert len(set(five.start_inertias_)) == 5
    assert five.inertia_ == five.start_inertias_.min()
    assert np.array_equal(five.labels_, five.predict(X))
    first_is_best = clone(model).set_params(n_init=2, max_iter=0, init=X[:5]).fit(X)
    assert first_is_best.inertia_ == first_is_best.start_inertias_[0]


@pytest.mark.parametrize("name", CASES)
def test_sources_and_threads_give_the_same_bits(tmp_path, name):
    import dask.array as da

    rows, weights = case(name, n=400)
    model = dc.BackwardEulerKMeans(5, n_init=3, **SMALL)
    expected = clone(model).set_params(engine=dc.LocalEngine(n_threads=1)).fit(rows, None, weights)
    two = dc.LocalEngine(n_threads=2)
    for source in (np.asfortranarray(rows), stored(tmp_path, rows), da.from_array(rows, 70)):
        same_bits(clone(model).set_params(engine=two).fit(source, None, weights), expected)


def test_a_cluster_gives_the_same_bits(tmp_path, client, monkeypatch):
    rows, weights = case("weighted float32", n=400)
    source = stored(tmp_path, rows, chunk=20)
    model = dc.BackwardEulerKMeans(5, n_init=3, **SMALL)
    for given in (rows, source):
        expected = clone(model).set_params(engine="local").fit(given, None, weights)
        same_bits(clone(model).set_params(engine=client).fit(given, None, weights), expected)
    # A worker's start reads its pools itself; weights that only this process has keep starts here.
    monkeypatch.setattr(backward_euler_fit, "ROOM_BYTES", rows.nbytes // 2)
    expected = clone(model).set_params(engine="local").fit(source)
    same_bits(clone(model).set_params(engine=client).fit(source), expected)
    single = clone(model).set_params(n_init=1, engine=client).fit(source)
    assert single.inertia_ == expected.start_inertias_[0]
    assert expected.bytes_read_ > 3 * rows.nbytes / 2


def test_starts_run_on_workers_that_can_read_the_rows(tmp_path, client, monkeypatch):
    asked = []

    def run(self, tasks):
        asked.append(len(tasks))
        return [task() for task in tasks]

    monkeypatch.setattr(dc.DaskEngine, "run", run)
    model = dc.BackwardEulerKMeans(5, n_init=3, engine=client, **SMALL)
    clone(model).fit(X)
    assert asked == []
    clone(model).fit(stored(tmp_path, X))
    assert asked == [2]  # a share for each of two threads


def test_sparse_rows_give_the_result_of_dense_ones(tmp_path):
    rows = X * (np.random.default_rng(1).random(X.shape) < 0.5)
    model = dc.BackwardEulerKMeans(5, init=rows[:5].copy(), n_init=2, **SMALL)
    dense, csr = (clone(model).fit(kind) for kind in (rows, sparse.csr_matrix(rows)))
    np.testing.assert_allclose(csr.cluster_centers_, dense.cluster_centers_, rtol=1e-4, atol=1e-5)
    assert np.array_equal(csr.labels_, dense.labels_)


def test_scaled_weights_change_only_the_inertia():
    rows, weights = case("weighted float64", n=300)
    fits = [
        dc.BackwardEulerKMeans(5, **SMALL).fit(rows, sample_weight=weights * s) for s in (1.0, 4.0)
    ]
    assert np.array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)
    assert fits[1].inertia_ == 4.0 * fits[0].inertia_


def test_whole_batches_of_weighted_rows_equal_copies():
    rows, _ = case("float64", n=120)
    copies = np.random.default_rng(0).integers(1, 4, 120)
    model = dc.BackwardEulerKMeans(4, init=rows[:4], **{**SMALL, "batch_size": 10**6})
    weighted = clone(model).fit(rows, sample_weight=copies)
    repeated = clone(model).fit(np.repeat(rows, copies, axis=0))
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-9)
    np.testing.assert_allclose(weighted.inertia_, repeated.inertia_)


def test_cosine_gives_centres_of_length_one():
    model = dc.BackwardEulerKMeans(5, metric="cosine", **SMALL).fit(X)
    np.testing.assert_allclose(np.linalg.norm(model.cluster_centers_, axis=1), 1.0, rtol=1e-6)
    scaled = clone(model).fit(X * np.float32(8.0))
    assert np.array_equal(scaled.labels_, model.labels_)


def test_no_iteration_keeps_the_first_centres():
    model = dc.BackwardEulerKMeans(4, init=X[:4], max_iter=0).fit(X)
    assert np.array_equal(model.cluster_centers_, X[:4])
    assert (model.n_iter_, model.history_, model.passes_) == (0, [], 1)


def test_a_poor_start_is_left_behind():
    # Lloyd's algorithm ends with two centres in one cluster, and one between two others.
    random = np.random.default_rng(0)
    middles = np.array([[-5.0, -3.0], [5.0, -3.0], [0.0, 5.0], [2.5, 4.0]])
    rows = np.repeat(middles, 500, axis=0) + 0.8 * random.normal(size=(2000, 2))
    start = np.array([[-5.0, -3.0], [4.0, -3.6], [6.0, -2.4], [1.2, 4.5]])
    stuck = dc.KMeans(4, init=start).fit(rows)
    best = dc.KMeans(4, init=middles).fit(rows).inertia_
    assert stuck.inertia_ > 1.2 * best
    model = dc.BackwardEulerKMeans(
        4, init=stuck.cluster_centers_, n_init=8, batch_size=200, random_state=0
    ).fit(rows)
    assert (model.start_inertias_ < 1.02 * best).sum() >= 6


def test_callbacks_hear_steps_of_one_start_and_the_ends_of_several():
    heard = []
    dc.BackwardEulerKMeans(4, callbacks=[heard.append], **SMALL).fit(X)
    names = [type(event).__name__ for event in heard]
    assert names.count("ImplicitStepEnded") == 6
    assert names[0] == "FitStarted"
    assert names[-1] == "FitEnded"
    heard.clear()
    several = dc.BackwardEulerKMeans(4, n_init=3, callbacks=[heard.append], **SMALL).fit(X)
    ends = [event for event in heard if isinstance(event, events.StartEnded)]
    assert [event.inertia for event in ends] == several.start_inertias_.tolist()

    def stop(event):
        if isinstance(event, (events.ImplicitStepEnded, events.StartEnded)):
            raise events.StopFit

    ended = dc.BackwardEulerKMeans(4, callbacks=[stop], **SMALL).fit(X)
    assert (ended.n_iter_, ended.stop_reason_) == (1, "callback")
    assert dc.BackwardEulerKMeans(4, n_init=2, callbacks=[stop], **SMALL).fit(X).n_iter_ == 6


def test_a_time_limit_leaves_starts_out():
    options = {**SMALL, "max_time": 1e-9, "engine": dc.LocalEngine(n_threads=1)}
    model = dc.BackwardEulerKMeans(4, n_init=3, **options).fit(X)
    assert (model.n_iter_, model.stop_reason_) == (1, "max_time")
    assert np.isnan(model.start_inertias_).tolist() == [False, True, True]


def test_verbose_says_what_happens(capsys):
    dc.BackwardEulerKMeans(4, n_init=2, verbose=1, **SMALL).fit(X)
    assert "Start 2 of 2, inertia" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"batch_size": 0}, ValueError, r"'batch_size' .*\[1, inf\). Got 0"),
        ({"inner_iter": 0}, ValueError, r"'inner_iter' .*\[1, inf\). Got 0"),
        ({"n_init": "auto"}, TypeError, r"'n_init' .*Got 'auto'"),
        ({"step_size": 0.0}, ValueError, r"'step_size' .*\(0.0, inf\) or 'auto'. Got 0.0"),
        ({"step_size": "large"}, TypeError, r"'step_size' .*Got 'large'"),
        ({"decay": 1.5}, ValueError, r"'decay' .*\(0.0, 1.0\]. Got 1.5"),
        ({"averaging": 1.0}, ValueError, r"'averaging' .*\[0.0, 1.0\). Got 1.0"),
        ({"n_clusters": 301}, ValueError, r"n_samples=300 should be >= n_clusters=301"),
        ({"size_limit": 0.0}, ValueError, r"'size_limit' .*\(0.0, inf\).* Got 0.0"),
        ({"init": X[:7]}, ValueError, r"initial centers \(7, 4\)"),
    ],
)
def test_bad_parameters(parameters, error, text):
    with pytest.raises(error, match=text):
        dc.BackwardEulerKMeans(**parameters).fit(X)


def test_rows_that_are_not_finite_are_named_by_several_starts_too():
    bad = X.copy()
    bad[123, 2] = np.nan
    for n_init in (1, 3):
        with pytest.raises(errors.InvalidDataError, match="contains NaN: first in row 123"):
            dc.BackwardEulerKMeans(3, n_init=n_init, random_state=0).fit(bad)


def test_a_plan_says_how_many_passes_a_fit_takes():
    defaults = {name: p.default for name, p in ALGORITHMS.find("backward-euler").parameters.items()}
    for changes in (SMALL, {**SMALL, "n_init": 3}, {**SMALL, "max_iter": 0, "refine_iter": 2}):
        values = {**defaults, **changes, "n_clusters": 4}
        plan = plan_fit(dc.open_dataset(X), values)
        model = dc.BackwardEulerKMeans(**values).fit(X)
        assert plan.passes_at_most == model.passes_
        assert plan.seeding == model.seeding_


def test_as_a_job_and_back(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    record = jobs.fit(
        str(tmp_path / "rows.npy"), n_clusters=4, model=str(tmp_path / "m"),
        algorithm="backward-euler", batch_size=60, n_init=2, random_state=0,
    )  # fmt: skip
    model = dc.load_model(str(tmp_path / "m"))
    assert type(model) is dc.BackwardEulerKMeans
    expected = dc.BackwardEulerKMeans(4, batch_size=60, n_init=2, random_state=0).fit(X)
    assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
    assert (record.inertia, record.estimator) == (expected.inertia_, "BackwardEulerKMeans")
