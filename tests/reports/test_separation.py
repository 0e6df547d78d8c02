"""How well clusters are separated, in figures and in words."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import daskcluster as dc
from daskcluster import jobs
from daskcluster.chunkwise.examples import Sample
from daskcluster.reports.contents import Clusters, Separation, border_in_words, map_of_rows


def separation_of(rows: np.ndarray, k: int, **more: object) -> tuple[Separation, Clusters]:
    model = dc.KMeans(k, random_state=0, n_init=5, engine="local", **more).fit(rows)
    found = jobs.examine(model.to_model(), dc.open_dataset(rows), shown=5, engine="local")
    assert found.sample is not None
    separation = Separation.of(found.sample, model.cluster_centers_)
    assert separation is not None
    return separation, found


def normal_rows(n_features: int, gap: float, n_rows: int = 6_000) -> np.ndarray:
    """Return four equal normal distributions, the means of any two `gap` deviations apart."""
    rng = np.random.default_rng(1)
    means = np.zeros((4, n_features))
    means[np.arange(4), np.arange(4)] = gap / np.sqrt(2)
    rows = means[rng.integers(0, 4, n_rows)] + rng.normal(size=(n_rows, n_features))
    return rows.astype(np.float32)


@pytest.mark.parametrize("n_features", [4, 48])
def test_words_depend_on_the_gap_and_not_on_the_number_of_features(n_features: int) -> None:
    for gap, words in ((6.0, "well separated"), (3.3, "overlapping")):
        found, _ = separation_of(normal_rows(n_features, gap), 4)
        assert {border_in_words(density) for density in found.borders} == {words}
        assert found.merged is None


def test_too_many_clusters_have_no_border_and_merge_into_the_true_ones() -> None:
    found, examined = separation_of(normal_rows(6, 8.0), 8)
    assert [border_in_words(density) for density in found.borders].count("no border") >= 6
    assert found.merged is not None
    assert found.merged[0] == 4
    assert "k = 8 may be too large: merged to 4" in found.verdict(None)
    true, well = separation_of(normal_rows(6, 8.0), 4)
    assert true.verdict(well.stability) == "All 4 clusters are well separated."
    assert examined.stability is not None
    assert well.stability is not None
    assert examined.stability.agreement < 0.8 < well.stability.agreement


def test_clusters_of_noise_are_not_stable() -> None:
    rows = np.random.default_rng(0).normal(size=(4000, 12))
    found, examined = separation_of(rows, 6)
    assert "Other seeds find other clusters" in found.verdict(examined.stability)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_silhouettes_are_those_of_the_metrics(metric: str) -> None:
    rows = normal_rows(5, 4.0, n_rows=11_000) + 3
    found, examined = separation_of(rows, 4, metric=metric)
    model = dc.KMeans(4, random_state=0, n_init=5, engine="local", metric=metric).fit(rows)
    expected = dc.metrics.silhouette(rows, model.labels_, metric=metric, random_state=0)
    assert examined.sample is not None
    assert len(examined.sample.labels) == 10_000
    assert found.mean == pytest.approx(expected, rel=1e-6)
    assert found.by_cluster @ found.counts / 10_000 == pytest.approx(found.mean)


def test_sparse_rows_are_compared_like_dense_ones() -> None:
    rows = normal_rows(6, 5.0, n_rows=2_000)
    rows[rows < 0] = 0
    document = dc.KMeans(4, random_state=0, engine="local").fit(rows).to_model()
    both = [
        jobs.examine(document, dc.open_dataset(each), shown=4, engine="local")
        for each in (rows, csr_array(rows))
    ]
    dense, sparse = (Separation.of(one.sample, document.centres) for one in both if one.sample)
    assert dense is not None
    assert sparse is not None
    assert np.allclose(dense.by_cluster, sparse.by_cluster, atol=1e-5)
    assert np.allclose(dense.borders, sparse.borders)
    assert both[0].stability is not None
    assert both[1].stability is not None
    assert both[0].stability.agreement == pytest.approx(both[1].stability.agreement, abs=0.05)


def test_no_figures_where_they_mean_nothing() -> None:
    rows, labels = np.arange(12.0).reshape(6, 2), np.array([0, 0, 0, 1, 1, 1])
    centres = np.array([[2.0, 3.0], [8.0, 9.0]])
    assert Separation.of(Sample(rows, labels, 6), centres) is not None
    assert Separation.of(Sample(rows, labels, 6, weighted=True), centres) is None
    assert Separation.of(Sample(rows, np.zeros(6, int), 6), centres) is None
    rows[0, 0] = np.nan
    assert Separation.of(Sample(rows, labels, 6), centres) is None
    assert map_of_rows(rows[:1], labels[:1], np.ones(2)) is None
    weighted = jobs.examine(
        dc.KMeans(2, random_state=0).fit(centres).to_model(),
        dc.open_dataset(np.repeat(centres, 50, axis=0), weights=np.ones(100)),
        shown=2,
    )
    assert weighted.stability is None
