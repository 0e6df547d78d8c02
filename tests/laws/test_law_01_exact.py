"""Law 1: every exact algorithm gives the labels, centres and iteration count of plain Lloyd."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import daskcluster as dc
from daskcluster.chunkwise import centres
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.errors import InvalidDataError
from daskcluster.events import Notice
from daskcluster.methods.kmeans import assignment
from daskcluster.methods.kmeans.parameters import EXACT
from tests.laws.data import CASES, case
from tests.laws.test_law_02_chunking import same_bits
from tests.tiles import BOUNDS_SPARE

ACCELERATED = [name for name in EXACT if name != "lloyd"]


@pytest.mark.parametrize("algorithm", ACCELERATED)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("k", [1, 7, 40])
def test_equals_lloyd(algorithm, name, k):
    X, w = case(name, n=900)
    start = X[:: 900 // k][:k]
    expected = dc.KMeans(k, init=start, algorithm="lloyd", tol=0).fit(X, sample_weight=w)
    same_bits(
        dc.KMeans(k, init=start, algorithm=algorithm, tol=0).fit(X, sample_weight=w), expected
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("algorithm", ["lloyd", "auto"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_wide_rows_have_the_results_of_all_centres(monkeypatch, algorithm, metric, dtype):
    rng = np.random.default_rng(0)
    scale = 0.95 ** np.arange(128)
    means = 1.0 + rng.standard_normal((520, 128)) * scale
    rows = means[rng.integers(0, 520, 4000)] + 0.4 * rng.standard_normal((4000, 128)) * scale
    rows[::40] = rows[0]  # ties
    rows, start = rows.astype(dtype), rows[:520].astype(dtype)
    made = []

    def fit():
        settings = {"init": start, "algorithm": algorithm, "metric": metric, "tol": 0}
        return dc.KMeans(520, max_iter=4, **settings).fit(rows)

    found = fit()
    monkeypatch.setattr(centres, "sampled_search", lambda *_: (FixedSearch(), None))
    monkeypatch.setattr(assignment, "fixed_search", lambda *_: made.append(1) or FixedSearch())
    same_bits(found, fit())
    assert made  # the search by bounds was asked for
    assert np.array_equal(found.labels_, found.predict(rows))


@st.composite
def problems(draw):
    """Draw rows with duplicates and ties, weights, a start with doubles and far centres, a dtype."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(1, 400)), draw(st.sampled_from([1, 2, 3, 8, 17, 40]))
    kind = draw(st.sampled_from(["integers", "clusters", "noise", "far", "one point"]))
    if kind == "integers":
        rows = rng.integers(0, 3, (n, d)).astype(float)
    elif kind == "one point":
        rows = np.ones((n, d))
    else:
        centres = 4 * rng.standard_normal((9, d)) * (kind != "noise")
        rows = centres[rng.integers(0, 9, n)] + 0.5 * rng.standard_normal((n, d))
        rows += 1e4 * (kind == "far")
    k = draw(st.integers(1, min(n, 60)))
    start = rows[rng.choice(n, k, replace=draw(st.booleans()) and k > 1)].copy()
    if draw(st.booleans()):
        start[rng.integers(k)] += 1e3  # runs empty
    weights = rng.choice([0.0, 1.0, 2.5], n) if draw(st.booleans()) else None
    if weights is not None and not weights.any():
        weights = None
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return rows.astype(dtype), start.astype(dtype), weights


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("algorithm", ACCELERATED)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=problems())
def test_any_problem(algorithm, problem):
    X, start, w = problem
    k = len(start)
    plain = dc.KMeans(k, init=start, algorithm="lloyd", tol=0, max_iter=40)
    bounded = dc.KMeans(k, init=start, algorithm=algorithm, tol=0, max_iter=40)
    same_bits(bounded.fit(X, sample_weight=w), plain.fit(X, sample_weight=w))
    assert [h["inertia"] for h in bounded.history_] == [h["inertia"] for h in plain.history_]


@pytest.mark.parametrize("algorithm", ACCELERATED)
@pytest.mark.parametrize("d", [2, 64])
def test_near_duplicate_centres_far_from_the_origin(algorithm, d):
    """Rounding decides between such centres: bounds must leave them to the tile."""
    rng = np.random.default_rng(5)
    X = (1e4 + rng.standard_normal((3000, d))).astype(np.float32)
    start = np.concatenate([X[:8], np.nextafter(X[:8], np.float32(np.inf)), X[:8] + 1e-3])
    plain = dc.KMeans(24, init=start, algorithm="lloyd", tol=0, max_iter=60).fit(X)
    same_bits(dc.KMeans(24, init=start, algorithm=algorithm, tol=0, max_iter=60).fit(X), plain)


@pytest.mark.parametrize("algorithm", ACCELERATED)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_rows_that_have_to_be_converted(algorithm, dtype, metric):
    X = np.random.default_rng(6).integers(1, 9, (2000, 6)).astype(dtype)
    options = {"init": X[:12].astype(np.float32), "metric": metric, "tol": 0}
    plain = dc.KMeans(12, algorithm="lloyd", **options).fit(X)
    same_bits(dc.KMeans(12, algorithm=algorithm, **options).fit(X), plain)


@pytest.mark.parametrize("algorithm", ACCELERATED)
def test_the_largest_rows_are_decided_as_by_lloyd(algorithm):
    """Larger ones are refused: their scores would overflow."""
    X = (np.random.default_rng(7).standard_normal((500, 3)) * 2e15).astype(np.float32)
    plain = dc.KMeans(5, init=X[:5], algorithm="lloyd", max_iter=10).fit(X)
    same_bits(dc.KMeans(5, init=X[:5], algorithm=algorithm, max_iter=10).fit(X), plain)
    for name in (algorithm, "lloyd"):
        with pytest.raises(InvalidDataError, match="squared distances overflow"):
            dc.KMeans(5, init=X[:5], algorithm=name).fit(X * np.float32(1e4))


@pytest.mark.parametrize("algorithm", ["hamerly", "elkan", "yinyang"])
def test_fewer_rows_and_distances(algorithm):
    rng = np.random.default_rng(8)
    centres = 10 * rng.standard_normal((30, 20))
    X = (centres[rng.integers(0, 30, 6000)] + rng.standard_normal((6000, 20))).astype(np.float32)
    history = dc.KMeans(30, init=X[:30], algorithm=algorithm, tol=0).fit(X).history_
    assert history[0]["n_touched"] == 6000
    if BOUNDS_SPARE:
        assert history[-1]["n_touched"] < 3600
        assert history[-1]["n_distances"] < 0.1 * history[0]["n_distances"]
    else:
        assert {record["n_distances"] for record in history} == {6000 * 30}


@pytest.mark.parametrize("name", CASES)
def test_labels_kept_in_memory_change_nothing(tmp_path, name):
    """Rows in memory keep labels between passes, also for empty clusters; rows on disk do not."""
    X, w = case(name, n=900)
    np.save(tmp_path / "rows.npy", X)
    far = np.full((3, X.shape[1]), 10 * X.max(), X.dtype) * np.arange(1, 4)[:, None].astype(X.dtype)
    start = np.concatenate([X[:5], far])
    one = dc.KMeans(8, init=start, tol=0).fit(X, sample_weight=w)
    assert one.history_[0]["n_empty"] == 3
    same_bits(dc.KMeans(8, init=start, tol=0).fit(str(tmp_path / "rows.npy"), sample_weight=w), one)


@pytest.mark.parametrize("algorithm", ACCELERATED)
def test_restarts_do_not_share_bounds(algorithm):
    X, w = case("weighted float32", n=900)
    options = {"init": "random", "n_init": 3, "random_state": 2, "tol": 0}
    plain = dc.KMeans(9, algorithm="lloyd", **options).fit(X, sample_weight=w)
    same_bits(dc.KMeans(9, algorithm=algorithm, **options).fit(X, sample_weight=w), plain)


def test_bounds_that_do_not_fit_give_way():
    X, _ = case("float32", n=900)
    notices = []

    def listen(event):
        if isinstance(event, Notice):
            notices.append(event.text)

    options = {"init": X[:40], "tol": 0, "callbacks": [listen]}
    plain = dc.KMeans(40, algorithm="lloyd", **options).fit(X)
    for room, takes_over in [(100_000, "yinyang"), (11_000, "hamerly"), (10, "lloyd")]:
        same_bits(dc.KMeans(40, algorithm="elkan", bounds_memory=room, **options).fit(X), plain)
        assert f"{takes_over} takes its place" in notices.pop()
        assert not notices
