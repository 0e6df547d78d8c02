"""CoresetKMeans: weighted k-means of the coreset, lazy labels, the scikit-learn contract, quality."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import events
from daskcluster.estimators.rows import Labels


def blobs(n=6000, k=6, d=3, seed=0):
    rng = np.random.default_rng(seed)
    centres = 10 * rng.normal(size=(k, d))
    return (centres[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(np.float32)


X = blobs()


def stored(folder, rows=X):
    array = zarr.create_array(
        folder / "rows.zarr", shape=rows.shape, chunks=(500, rows.shape[1]), dtype=rows.dtype
    )
    array[:] = rows
    return str(folder / "rows.zarr")


def test_it_is_weighted_kmeans_of_the_coreset():
    model = dc.CoresetKMeans(6, coreset_size=900, random_state=0, init="k-means++").fit(X)
    few = model.coreset_
    assert few.n_rows == 900
    again = dc.KMeans(6, init=model.cluster_centers_, max_iter=1, tol=0).fit(few)
    assert model.inertia_ == pytest.approx(again.inertia_, rel=1e-3)
    assert model.cluster_weights_.sum() == pytest.approx(few.weights.sum())
    full = dc.KMeans(6, random_state=0).fit(X)
    assert -model.score(X) <= 1.1 * full.inertia_


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_same_bits_anywhere(tmp_path, client, metric):
    options = {"coreset_size": 400, "random_state": 3, "metric": metric, "init": "afk-mc2"}
    one = dc.CoresetKMeans(5, **options, engine=dc.LocalEngine(1)).fit(X)
    for engine in ("local", client):
        other = dc.CoresetKMeans(5, **options, engine=engine).fit(
            stored(tmp_path / str(engine)[:5])
        )
        assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
        assert (one.inertia_, one.n_iter_) == (other.inertia_, other.n_iter_)
        assert np.array_equal(one.labels_, np.asarray(other.labels_))


def test_labels_are_made_when_asked_for(tmp_path):
    passes = []

    def hear(event):
        if isinstance(event, events.PassEnded):
            passes.append(event.name)

    model = dc.CoresetKMeans(4, coreset_size=300, random_state=0, callbacks=[hear])
    model.fit(stored(tmp_path))
    assert len(passes) == model.passes_ == 2
    assert isinstance(model.labels_, Labels)
    assert np.array_equal(np.asarray(model.labels_), model.predict(X))
    inside = dc.CoresetKMeans(4, coreset_size=300, random_state=0).fit(X)
    assert inside.labels_.dtype == np.int32
    assert np.array_equal(inside.labels_, model.predict(X))


def test_pickles_carry_no_rows(tmp_path):
    model = dc.CoresetKMeans(4, coreset_size=5000, random_state=0).fit(X)
    assert len(pickle.dumps(model)) < 20_000
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    with pytest.raises(AttributeError, match=r"use predict\(X\)"):
        _ = again.labels_
    labels = model.labels_
    assert np.array_equal(pickle.loads(pickle.dumps(model)).labels_, labels)


def test_events_are_those_of_one_fit():
    seen = []
    model = dc.CoresetKMeans(3, coreset_size=300, random_state=0, callbacks=[seen.append]).fit(X)
    kinds = [type(event).__name__ for event in seen if "Pass" not in type(event).__name__]
    assert kinds[:3] == ["FitStarted", "Notice", "SeedingEnded"]
    assert kinds[-1] == "FitEnded"
    assert kinds.count("IterationEnded") >= model.n_iter_
    assert (seen[0].n_rows, seen[-1].passes) == (6000, 2)


def test_sparse_and_weighted_rows():
    rows = sparse.random_array((3000, 40), density=0.1, rng=np.random.default_rng(0), format="csr")
    weights = np.random.default_rng(1).random(3000)
    model = dc.CoresetKMeans(4, coreset_size=500, random_state=0).fit(rows, sample_weight=weights)
    assert model.cluster_weights_.sum() == pytest.approx(weights.sum(), rel=0.2)
    assert model.labels_.shape == (3000,)


def test_bad_parameters():
    with pytest.raises(ValueError, match="coreset_size=5 should be >= n_clusters=8"):
        dc.CoresetKMeans(8, coreset_size=5).fit(X)
    with pytest.raises(ValueError, match="'max_iter' parameter of CoresetKMeans"):
        dc.CoresetKMeans(8, max_iter=-1).fit(X)
    with pytest.raises(ValueError, match="n_samples=4 should be >= n_clusters=8"):
        dc.CoresetKMeans(8).fit(X[:4])


# -- quality ------------------------------------------------------------------------------------------


def test_quality_against_all_rows(tmp_path):
    model = dc.CoresetKMeans(6, coreset_size=1500, random_state=0).fit(X)
    report = model.quality(stored(tmp_path))
    names = [cost.name for cost in report.costs]
    assert names == ["fitted", "mean", "random rows", "k-means++", "k-means"]
    for cost in report.costs[1:4]:  # not fitted to the coreset: within five standard errors
        assert abs(cost.estimated - cost.true) <= 5 * cost.standard_error
    assert report.costs[0].true == pytest.approx(-model.score(X), rel=1e-9)
    assert report.costs[0].estimated == pytest.approx(model.inertia_, rel=1e-9)
    assert report.largest_error == max(abs(cost.relative_error) for cost in report.costs)
    assert report.as_dict()["costs"][1]["name"] == "mean"


def test_quality_is_one_pass_for_all_sets(tmp_path):
    few = dc.lightweight_coreset(X, 300, 0)
    passes = []

    class Counted(dc.LocalEngine):
        def place(self, *arguments, **options):
            placement = super().place(*arguments, **options)
            passes.append(placement.traffic)
            return placement

    dc.coreset_quality(few, stored(tmp_path), n_clusters=4, engine=Counted(1))
    assert [traffic.passes for traffic in passes] == [1]


def test_standard_errors_are_those_of_repeated_draws():
    centres = X[:5]
    runs = [
        dc.coreset_quality(
            dc.lightweight_coreset(X, 200, seed, engine=dc.LocalEngine(1)),
            centres={"five rows": centres},
            n_clusters=1,
        ).costs[0]
        for seed in range(60)
    ]
    spread = np.std([run.estimated for run in runs], ddof=1)
    assert spread == pytest.approx(np.mean([run.standard_error for run in runs]), rel=0.4)
    true = dc.quantization_error(X, centres)
    error = spread / len(runs) ** 0.5
    assert abs(np.mean([run.estimated for run in runs]) - true) <= 4 * error


def test_small_coresets_look_too_good():
    small, large = (
        dc.coreset_quality(dc.lightweight_coreset(X, size, 0), X, n_clusters=12).costs[-1]
        for size in (40, 3000)
    )
    assert small.relative_error < -0.2
    assert abs(large.relative_error) < 0.1


def test_the_report_is_a_table():
    few = dc.lightweight_coreset(X, 300, 0)
    lines = str(dc.coreset_quality(few, X, n_clusters=3)).splitlines()
    assert lines[0].split() == ["centres", "k", "estimated", "+-", "true", "off", "by"]
    assert lines[1].startswith("mean ")
    assert lines[1].endswith("%")
    assert len(lines) == 5
    assert dc.coreset_quality(few).largest_error is None


def test_quality_refuses_other_features():
    few = dc.lightweight_coreset(X, 300, 0)
    with pytest.raises(ValueError, match="X has 2 features, but the coreset is expecting 3"):
        dc.coreset_quality(few, X[:, :2])
    with pytest.raises(ValueError, match=r"centres 'given' of shape \(1, 2\)"):
        dc.coreset_quality(few, centres=[[1.0, 2.0]])
