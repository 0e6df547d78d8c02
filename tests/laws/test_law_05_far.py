"""Law 5 far from the origin, and near the ends of the range of numbers: oracles in long double."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.chunkwise.data_statistics import RANGES
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement

OFFSETS = [0.0, 1e5, 1e7, 1e8, 1e9, 1e10]
CORNERS = np.array([[0.0, 0.0], [16.0, 0.0], [0.0, 16.0], [16.0, 16.0]])
STEP = 2.0**-12
"""Rows are multiples of it: every offset leaves them as they are, and fits see the same problem."""


def corners(n=600, seed=0):
    rng = np.random.default_rng(seed)
    rows = CORNERS[rng.integers(0, 4, n)] + rng.normal(size=(n, 2))
    return np.round(rows / STEP) * STEP


def costs(X, centres):
    """Squared distances of all rows to all centres, in long double."""
    gaps = np.asarray(X, np.longdouble)[:, None] - np.asarray(centres, np.longdouble)[None]
    return (gaps * gaps).sum(axis=2)


def inertia(X, centres, weights=None):
    least = costs(X, centres).min(axis=1)
    return float(least.sum() if weights is None else (least * weights).sum())


def check_nearest(model, X, rel=1e-9):
    """Labels are nearest, but for the rounding of scores; inertia is what the definition gives."""
    squared = costs(X, model.cluster_centers_)
    chosen = squared[np.arange(len(X)), np.asarray(model.labels_)]
    assert (chosen <= squared.min(axis=1) + rel * squared.max()).all()
    truth = inertia(X, model.cluster_centers_)
    if not isinstance(model, dc.CoresetKMeans):  # which tells what the coreset costs
        assert model.inertia_ == pytest.approx(truth, rel=1e-6, abs=1e-12 * float(squared.max()))
    assert -model.score(X) == pytest.approx(truth, rel=1e-6, abs=1e-12 * float(squared.max()))


K_MEANS = {
    "k-means++": lambda seed: dc.KMeans(4, init="k-means++", n_init=1, random_state=seed),
    "k-means||": lambda seed: dc.KMeans(4, init="k-means||", n_init=1, random_state=seed),
    "afk-mc2": lambda seed: dc.KMeans(4, init="afk-mc2", n_init=1, random_state=seed),
    "mini-batch": lambda seed: dc.MiniBatchKMeans(4, batch_size=100, random_state=seed),
    "nested": lambda seed: dc.NestedMiniBatchKMeans(4, batch_size=100, random_state=seed),
    "variance reduced": lambda seed: dc.VarianceReducedKMeans(4, random_state=seed),
    "backward Euler": lambda seed: dc.BackwardEulerKMeans(4, init="k-means++", random_state=seed),
    "coreset": lambda seed: dc.CoresetKMeans(4, coreset_size=200, random_state=seed),
    "hierarchical": lambda seed: dc.HierarchicalKMeans(4, random_state=seed),
    "streaming": lambda seed: dc.StreamingKMeans(4, random_state=seed),
}


@pytest.mark.parametrize("offset", [1e7, 1e10])
@pytest.mark.parametrize("name", K_MEANS)
def test_fits_far_from_the_origin_are_as_good(name, offset):
    rows = corners()
    best = inertia(rows, CORNERS)
    for seed in range(3):
        near = K_MEANS[name](seed).fit(rows)
        far = K_MEANS[name](seed).fit(rows + offset)
        there = inertia(rows, near.cluster_centers_)
        here = inertia(rows + offset, far.cluster_centers_)
        assert here <= 1.02 * there + 0.02 * best
        assert -far.score(rows + offset) == pytest.approx(here, rel=1e-6)
        if name != "coreset":  # which tells what the coreset costs
            assert far.inertia_ == pytest.approx(here, rel=1e-6)


@pytest.mark.parametrize("method", [dc.kmeans_plusplus, dc.kmeans_parallel, dc.afk_mc2])
@pytest.mark.parametrize("offset", OFFSETS)
def test_seeding_draws_the_same_rows_at_any_offset(method, offset):
    rows = corners()
    for seed in range(3):
        near = method(rows, 4, random_state=seed)
        far = method(rows + offset, 4, random_state=seed)
        near, far = (found[0] if isinstance(found, tuple) else found for found in (near, far))
        np.testing.assert_allclose(far - offset, near, atol=1e-15 * offset + 1e-12)


@pytest.mark.parametrize("offset", OFFSETS)
def test_scores_agree_with_the_definition_at_any_offset(offset):
    rows = corners() + offset
    weights = np.random.default_rng(1).lognormal(size=len(rows))
    centres = CORNERS + offset
    truth, weighted = inertia(rows, centres), inertia(rows, centres, weights)
    assert dc.quantization_error(rows, centres) == pytest.approx(truth, rel=1e-12)
    found = dc.quantization_error(rows, centres, sample_weight=weights)
    assert found == pytest.approx(weighted, rel=1e-12)
    model = dc.KMeans(4, init=centres, max_iter=1).fit(rows)
    check_nearest(model, rows)
    new = np.repeat(rows[::-1], 9, axis=0)[:5000]  # more than are looked at first
    assert -model.score(new) == pytest.approx(inertia(new, model.cluster_centers_), rel=1e-12)


@pytest.mark.parametrize("kind", ["isotropic", "spherical", "diag", "tied", "full"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("offset", [0.0, 1e8, 1e10])
def test_scores_of_mixtures_are_means_of_those_of_rows(kind, offset):
    rows = corners() + offset
    model = dc.VariationalGaussianMixture(
        4, covariance_type=kind, truncation=4, init=CORNERS + offset, max_iter=4
    ).fit(rows)
    assert model.score(rows) == pytest.approx(model.score_samples(rows).mean(), rel=1e-12)


@pytest.mark.parametrize("offset", [1e8, 1e10])
def test_metrics_far_from_the_origin(offset):
    rows = corners()
    labels = costs(rows, CORNERS).argmin(axis=1)
    for measure in ("simplified_silhouette", "davies_bouldin", "calinski_harabasz"):
        near, far = (getattr(dc.metrics, measure)(X, labels) for X in (rows, rows + offset))
        assert far == pytest.approx(near, rel=1e-4)


def test_one_far_row_does_not_spoil_the_draws_of_the_others():
    rows = np.concatenate([corners(), [[1e12, 0.0]]])
    for seed in range(5):
        found, _ = dc.kmeans_plusplus(rows, 5, random_state=seed)
        assert inertia(rows, found) < 20 * inertia(corners(), CORNERS)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("first", ["near", "same", "zero"])
def test_first_rows_that_say_little_of_the_others(first, dtype, weighted):
    # The guess is too small by far: passes are repeated until sums fit their grids.
    rng = np.random.default_rng(0)
    begin = {"near": 7.0 + 1e-6 * rng.random((4200, 2)), "same": np.full((4200, 2), 7.0)}
    rows = np.concatenate([begin.get(first, np.zeros((4200, 2))), 1e4 * rng.normal(size=(300, 2))])
    rows = rows.astype(dtype)
    weights = rng.lognormal(size=len(rows)) if weighted else None
    truth = inertia(rows, rows[-4:], weights)
    found = dc.quantization_error(rows, rows[-4:], sample_weight=weights)
    assert found == pytest.approx(truth, rel=1e-12)
    with LocalEngine().place(open_dataset(rows, weights=weights)) as placement:
        one, other = ScaledPlacement(placement), ScaledPlacement(placement)
        data_statistics = one.known()
        other.remember(data_statistics)
        assert other.scale.totals == one.scale.totals
        assert one.scale.covers(data_statistics)
        assert one.scale.totals[0] < 2 * float(costs(rows, data_statistics.origin[None]).sum())


def test_grids_follow_the_spread_and_not_the_distance_from_zero():
    rows = corners()
    near, far = (Scale.probe(X, 10**6, None, X.mean(axis=0)) for X in (rows, rows + 2.0**33))
    assert far.distances(rows[:1] + 2.0**33).high <= 4 * near.distances(rows[:1]).high


# -- scales ------------------------------------------------------------------------------------------


def ends(dtype):
    least, most = RANGES[np.dtype(dtype)]
    return [least, most / 64]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", K_MEANS)
def test_fits_near_the_ends_of_the_range(name, dtype):
    rows = corners(n=300)
    for scale in ends(dtype):
        X = (rows * scale).astype(dtype)
        model = K_MEANS[name](0).fit(X)
        check_nearest(model, X, rel=1e-5 if dtype == np.float32 else 1e-12)
        assert np.array_equal(np.asarray(model.predict(X)), np.asarray(model.labels_))


@pytest.mark.parametrize("power", [-380, -60, -7, 5, 60, 380])
def test_labels_do_not_depend_on_a_power_of_two(power):
    rows = corners(n=300)
    one = dc.KMeans(7, random_state=0).fit(rows)
    other = dc.KMeans(7, random_state=0).fit(np.ldexp(rows, power))
    assert np.array_equal(one.labels_, other.labels_)
    assert other.inertia_ == pytest.approx(one.inertia_ * 4.0**power, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["isotropic", "spherical", "diag", "tied", "full"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mixtures_near_the_ends_of_the_range(kind, dtype):
    rows = corners(n=300)

    def fitted(scale):
        X, means = ((each * scale).astype(dtype) for each in (rows, CORNERS))
        model = dc.VariationalGaussianMixture(
            4, covariance_type=kind, truncation=4, init=means, max_iter=4
        )
        return model.fit(X), X

    near, _ = fitted(1.0)
    for scale in (2.0**-50, 2.0**40) if dtype == np.float32 else (2.0**-380, 2.0**380):
        model, X = fitted(scale)
        assert model.score(X) == pytest.approx(model.score_samples(X).mean(), rel=1e-9)
        found = np.asarray(model.covariances_) / scale / scale
        least = 1e-9 * np.max(near.covariances_)  # products of features may be zero
        np.testing.assert_allclose(found, near.covariances_, rtol=1e-3, atol=least)


EVERY = {
    **K_MEANS,
    "given centres": lambda seed: dc.KMeans(4, init=CORNERS),
    "mixture": lambda seed: dc.VariationalGaussianMixture(4, random_state=seed),
    "kernel": lambda seed: dc.KernelKMeans(4, random_state=seed),
    "mini-batch kernel": lambda seed: dc.MiniBatchKernelKMeans(4, random_state=seed),
}


def bad_rows(what, dtype):
    rows = corners(n=300)
    least, most = RANGES[np.dtype(dtype)]
    if what == "one too large":
        rows[3, 1] = 4.0 * most
    elif what == "largest number":
        rows[3, 1] = np.finfo(dtype).max
    else:
        rows *= most if what == "all too large" else least / 64
    return rows.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "what", ["one too large", "largest number", "all too large", "all too small"]
)
@pytest.mark.parametrize("name", EVERY)
def test_rows_out_of_range_are_refused(name, what, dtype):
    said = "no value larger than" if what == "all too small" else r"of magnitude .* in feature \d"
    with pytest.raises(dc.errors.InvalidDataError, match=said) as caught:
        EVERY[name](0).fit(bad_rows(what, dtype)).predict(np.zeros((1, 2), dtype))
    assert "all rows by a power of two" in str(caught.value)
    assert ("convert them to float64" in str(caught.value)) == (dtype == np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_out_of_range_are_refused_by_everything_else(dtype):
    rows, bad = corners(n=300).astype(dtype), bad_rows("one too large", dtype)
    labels = np.arange(300) % 4
    model = dc.KMeans(4, init=rows[:4]).fit(rows)
    mixture = dc.VariationalGaussianMixture(4, init=rows[:4], max_iter=2).fit(rows)
    for refuses in (
        lambda: model.predict(bad),
        lambda: model.transform(bad),
        lambda: model.score(bad),
        lambda: mixture.predict(bad),
        lambda: mixture.score(bad),
        lambda: mixture.score_samples(bad),
        lambda: dc.MiniBatchKMeans(4).partial_fit(bad),
        lambda: dc.StreamingKMeans(4).partial_fit(bad),
        lambda: dc.quantization_error(bad, rows[:4]),
        lambda: dc.quantization_error(rows, bad[:4]),
        lambda: dc.kmeans_plusplus(bad, 4),
        lambda: dc.kmeans_parallel(bad, 4),
        lambda: dc.afk_mc2(bad, 4),
        lambda: dc.lightweight_coreset(bad, 50),
        lambda: dc.metrics.simplified_silhouette(bad, labels),
        lambda: dc.metrics.davies_bouldin(bad, labels),
        lambda: dc.metrics.calinski_harabasz(bad, labels),
        lambda: dc.open_dataset(bad, scale="standard"),
        lambda: dc.KMeans(4, init=bad[:4]).fit(rows),
    ):
        with pytest.raises(dc.errors.InvalidDataError, match="should be <="):
            refuses()


def test_rows_of_zeros_are_in_range():
    model = dc.KMeans(2, random_state=0).fit(np.zeros((20, 3)))
    assert model.inertia_ == 0.0
    assert dc.quantization_error(np.zeros((20, 3)), np.zeros((1, 3))) == 0.0


def test_directions_do_not_depend_on_lengths_of_rows():
    rows = corners(n=300) - 8.0
    model = dc.KMeans(4, metric="cosine", random_state=0)
    expected = model.fit_predict(rows)
    assert np.array_equal(model.fit_predict(np.ldexp(rows, 600)), expected)
    assert np.array_equal(model.predict(np.ldexp(rows, 1000)), expected)


# -- edges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e10])
@pytest.mark.parametrize("shape", ["one cluster", "all rows", "one feature", "duplicates"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_edges_agree_with_the_oracle(shape, offset):
    rows = corners(n=24)
    rows, k = {
        "one cluster": (rows, 1),
        "all rows": (rows, 24),
        "one feature": (rows[:, :1], 3),
        "duplicates": (np.repeat(rows[:6], 4, axis=0), 6),
    }[shape]
    X = rows + offset
    weights = np.random.default_rng(2).integers(1, 5, len(X)).astype(float)
    for init in ("k-means++", "k-means||", "afk-mc2", "random"):
        model = dc.KMeans(k, init=init, n_init=1, random_state=0).fit(X)
        check_nearest(model, X)
        if shape == "duplicates" and init in ("k-means++", "k-means||"):
            assert model.inertia_ == pytest.approx(0.0, abs=1e-8)
        heavy = dc.KMeans(k, init=init, n_init=1, random_state=0).fit(X, sample_weight=weights)
        truth = inertia(X, heavy.cluster_centers_, weights)
        assert heavy.inertia_ == pytest.approx(truth, rel=1e-6, abs=1e-9)
