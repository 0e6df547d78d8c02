"""``missing="partial"``: distances over the features that a row has."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.metrics import adjusted_rand_score

import daskcluster as dc
from daskcluster.errors import InvalidParameterError
from daskcluster.kernels.distance import nearest_present

K, D = 4, 6
RNG = np.random.default_rng(11)
TRUTH = RNG.integers(0, K, 2500)
ROWS = (RNG.normal(size=(K, D)) * 6)[TRUTH] + RNG.normal(size=(2500, D))
HOLES = RNG.random(ROWS.shape) < 0.25
HOLES[:3] = [[True] * D, [False] + [True] * (D - 1), [False] * D]
GAPPY = np.where(HOLES, np.nan, ROWS)


def partial_distances(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.nansum((rows[:, None, :] - centres[None]) ** 2, axis=2)


def inertia_of(centres: np.ndarray, weights: Any = 1.0) -> float:
    return float((partial_distances(GAPPY, centres).min(axis=1) * weights).sum())


@pytest.fixture
def url(tmp_path: Path) -> str:
    zarr.create_array(str(tmp_path / "x"), data=GAPPY, chunks=(300, D))
    return str(tmp_path / "x")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_kernel_finds_the_nearest_centre(dtype: Any) -> None:
    rows, centres = GAPPY.astype(dtype), RNG.normal(size=(7, D)) * 5
    found = nearest_present(rows, centres)
    assert np.array_equal(found, partial_distances(rows.astype(float), centres).argmin(axis=1))
    assert found[0] == 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["memory", "stored"])
def test_a_fit_is_a_fixed_point_of_partial_distances(kind: str, weighted: bool, url: str) -> None:
    weights = RNG.uniform(0.5, 2, len(ROWS)) if weighted else None
    rows = dc.open_dataset(GAPPY if kind == "memory" else url, missing="partial", weights=weights)
    fitted = dc.KMeans(K, random_state=0, tol=0).fit(rows)
    centres, labels = fitted.cluster_centers_, np.asarray(fitted.labels_)
    assert np.array_equal(labels[1:], partial_distances(GAPPY, centres).argmin(axis=1)[1:])
    assert fitted.inertia_ == pytest.approx(inertia_of(centres, 1 if weights is None else weights))
    w = np.ones(len(ROWS)) if weights is None else weights
    present = ~HOLES * w[:, None]
    for cluster in range(K):
        own = labels == cluster
        means = np.nansum(GAPPY[own] * w[own, None], axis=0) / present[own].sum(axis=0)
        assert np.allclose(centres[cluster], means, atol=1e-6)
    assert adjusted_rand_score(TRUTH[3:], labels[3:]) > 0.9
    assert fitted.stop_reason_ == "converged"
    assert len(fitted.history_) == fitted.n_iter_
    # It is better than means, by the same measure.
    of_means = dc.KMeans(K, random_state=0).fit(dc.open_dataset(GAPPY, missing="mean"))
    if weights is None:
        assert fitted.inertia_ < inertia_of(of_means.cluster_centers_)


def test_models_label_rows_by_their_present_features(url: str, tmp_path: Path) -> None:
    rows = dc.open_dataset(url, missing="partial")
    fitted = dc.KMeans(K, random_state=0).fit(rows)
    labels = np.asarray(fitted.labels_)
    fitted.save(str(tmp_path / "m"))
    saved = dc.load_model(str(tmp_path / "m"))
    for model in (fitted, saved, pickle.loads(pickle.dumps(fitted))):
        for source in (GAPPY, url, rows, dc.open_dataset(GAPPY, missing="partial")):
            assert np.array_equal(np.asarray(model.predict(source)), labels)
    assert saved.inertia_ == fitted.inertia_
    with pytest.raises(InvalidParameterError, match="scikit-learn has no counterpart"):
        fitted.to_sklearn()


def test_the_same_bits_on_a_cluster(url: str, client: Any) -> None:
    alone = dc.KMeans(K, random_state=0).fit(dc.open_dataset(url, missing="partial"))
    rows = dc.open_dataset(url, missing="partial", engine=client)
    spread = dc.KMeans(K, random_state=0, engine=client).fit(rows)
    assert np.array_equal(np.asarray(spread.labels_), np.asarray(alone.labels_))
    assert np.array_equal(spread.cluster_centers_, alone.cluster_centers_)
    assert spread.inertia_ == alone.inertia_


def test_complete_rows_are_fitted_as_ever() -> None:
    plain = dc.KMeans(K, random_state=0).fit(ROWS)
    partial = dc.KMeans(K, random_state=0).fit(dc.open_dataset(ROWS, missing="partial"))
    assert partial.inertia_ <= plain.inertia_
    assert np.allclose(partial.cluster_centers_, plain.cluster_centers_, atol=1e-2)


def test_partial_rows_exclude_other_estimators_metrics_and_scales(url: str, tmp_path: Path) -> None:
    rows = dc.open_dataset(url, missing="partial")
    with pytest.raises(InvalidParameterError, match="MiniBatchKMeans cannot fit rows that were"):
        dc.MiniBatchKMeans(K).fit(rows)
    for more in ({"metric": "cosine"}, {"checkpoint": str(tmp_path / "c")}):
        with pytest.raises(InvalidParameterError, match="fitted with metric='euclidean' and"):
            dc.KMeans(K, **more).fit(rows)
    with pytest.raises(InvalidParameterError, match="cannot be combined with missing='partial'"):
        dc.open_dataset(url, missing="partial", scale="standard")
