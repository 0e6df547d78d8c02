"""Measures of separation equal scikit-learn's, to the same bits wherever rows and labels live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as peer
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import metrics
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import PassEnded
from daskcluster.metrics import separation
from tests.reference.separation import simplified_silhouette

N, D, K = 3000, 5, 6
PEERS: dict[str, Callable[..., float]] = {
    "calinski_harabasz": peer.calinski_harabasz_score,
    "davies_bouldin": peer.davies_bouldin_score,
    "silhouette": peer.silhouette_score,
    "simplified_silhouette": simplified_silhouette,
}
NAMES = pytest.mark.parametrize("name", PEERS)


def clouds(
    seed: int = 0, dtype: Any = np.float64, far: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, N)
    rows = rng.lognormal(sigma=1.5, size=(K, D))[labels] * 3 + rng.standard_normal((N, D)) + far
    wrong = rng.random(N) < 0.1
    return rows.astype(dtype), np.where(wrong, rng.integers(0, K, N), labels)


@NAMES
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_are_those_of_scikit_learn(name: str, dtype: Any) -> None:
    rows, labels = clouds(dtype=dtype)
    expected = PEERS[name](rows.astype(np.float64), labels)
    assert getattr(metrics, name)(rows, labels) == pytest.approx(expected, rel=1e-9)


@NAMES
def test_far_from_the_origin_no_digits_are_lost(name: str) -> None:
    rows, labels = clouds(far=1e6)
    near = getattr(metrics, name)(rows - 1e6, labels)
    assert getattr(metrics, name)(rows, labels) == pytest.approx(near, rel=1e-6)


def test_tight_clusters_lose_no_digits() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 100)
    rows = 1e3 * rng.standard_normal((4, 3))[labels] + 1e-6 * rng.standard_normal((400, 3))
    expected = peer.calinski_harabasz_score(rows, labels)
    assert metrics.calinski_harabasz(rows, labels) == pytest.approx(expected, rel=1e-6)


EDGES: dict[str, tuple[Any, Any]] = {
    "noise is a cluster": ([[0.0], [1], [8], [9], [30]], [0, 0, 1, 1, -1]),
    "rows alone": ([[0.0], [1], [8], [20]], [0, 0, 1, 2]),
    "strings": ([[0.0], [1], [8], [9]], ["b", "b", "a", "a"]),
    "equal rows": ([[1.0], [1], [5], [5]], [0, 0, 1, 1]),
    "all rows equal": ([[1.0], [1], [1], [1]], [0, 0, 1, 1]),
    "large labels": ([[0.0], [1], [8], [9]], [10**12, 10**12, -5, -5]),
}


@pytest.mark.parametrize("name", ["calinski_harabasz", "davies_bouldin", "silhouette"])
def test_edge_cases_are_those_of_scikit_learn(name: str) -> None:
    for case, (rows, labels) in EDGES.items():
        found, expected = (f(np.array(rows), labels) for f in (getattr(metrics, name), PEERS[name]))
        assert found == pytest.approx(expected, abs=1e-12), case


@NAMES
def test_nothing_to_separate_is_scikit_learns_error(name: str) -> None:
    rows = np.arange(4.0)[:, None]
    for labels in ([0, 0, 0, 0], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match="Number of labels is") as theirs:
            peer.calinski_harabasz_score(rows, labels)
        with pytest.raises(InvalidParameterError) as ours:
            getattr(metrics, name)(rows, labels)
        assert str(ours.value).startswith(str(theirs.value))


@NAMES
def test_labels_and_rows_that_do_not_fit(name: str) -> None:
    measure = getattr(metrics, name)
    with pytest.raises(InvalidDataError, match="labels has 3 rows, X has 4"):
        measure(np.zeros((4, 1)), [0, 1, 1])
    with pytest.raises(InvalidDataError, match="NaN: first in row 2"):
        measure(np.array([[0.0], [1], [np.nan], [3]]), [0, 0, 1, 1])


# -- wherever they live ------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """Return rows and labels in memory and in Zarr, chunked unevenly."""
    rows, labels = clouds(dtype=np.float32)
    for name, values, chunks in (("rows", rows, (700, D)), ("labels", labels.astype("i4"), (450,))):
        array = zarr.create_array(
            str(tmp_path / name), shape=values.shape, chunks=chunks, dtype=values.dtype
        )
        array[:] = values
    return {
        "rows": rows,
        "labels": labels,
        "rows url": str(tmp_path / "rows"),
        "labels url": str(tmp_path / "labels"),
    }


@NAMES
def test_the_same_bits_wherever_they_live(name: str, stored: dict[str, Any], client: Any) -> None:
    sampled = {"sample_size": 500, "random_state": 3} if name == "silhouette" else {}

    def measure(rows: Any, labels: Any, engine: Any = None) -> float:
        found: float = getattr(metrics, name)(rows, labels, engine=engine, **sampled)
        return found

    rows, labels = stored["rows"], stored["labels"]
    expected = measure(rows, labels, LocalEngine(1))
    assert measure(stored["rows url"], stored["labels url"], LocalEngine(2)) == expected
    assert measure(stored["rows url"], zarr.open_array(stored["labels url"], mode="r")) == expected
    assert measure(rows, stored["labels url"]) == expected
    assert measure(stored["rows url"], stored["labels url"], client) == expected
    assert measure(stored["rows url"], labels.tolist(), client) == expected


def test_labels_in_memory_reach_workers_of_this_host(
    stored: dict[str, Any], client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(separation, "_INLINE_BYTES", 100)
    expected = metrics.davies_bouldin(stored["rows"], stored["labels"])
    assert metrics.davies_bouldin(stored["rows url"], stored["labels"], engine=client) == expected


@NAMES
def test_sparse_rows(name: str) -> None:
    rng = np.random.default_rng(1)
    dense = rng.random((800, 12)) * (rng.random((800, 12)) < 0.3)
    labels = rng.integers(0, 4, 800)
    found = getattr(metrics, name)(sparse.csr_array(dense), labels)
    assert found == pytest.approx(getattr(metrics, name)(dense, labels), rel=1e-7)


@NAMES
def test_a_weight_counts_as_copies(name: str) -> None:
    rows, labels = clouds()
    weights = np.random.default_rng(2).integers(0, 4, N)
    weighted = dc.open_dataset(rows, weights=weights)
    if name == "silhouette":
        with pytest.raises(InvalidParameterError, match="without weights"):
            metrics.silhouette(weighted, labels)
        return
    copies = getattr(metrics, name)(np.repeat(rows, weights, axis=0), np.repeat(labels, weights))
    assert getattr(metrics, name)(weighted, labels) == pytest.approx(copies, rel=1e-10)


@pytest.mark.parametrize("name", ["silhouette", "simplified_silhouette"])
def test_cosine(name: str) -> None:
    rows, labels = clouds()
    if name == "silhouette":
        expected = peer.silhouette_score(rows, labels, metric="cosine")
    else:
        expected = simplified_silhouette(rows, labels, "cosine")
    found = getattr(metrics, name)(rows, labels, metric="cosine")
    assert found == pytest.approx(expected, rel=1e-7)
    with pytest.raises(InvalidParameterError, match="metric='manhattan' should be one of"):
        getattr(metrics, name)(rows, labels, metric="manhattan")


def test_a_sample_is_near_the_whole() -> None:
    rows, labels = clouds()
    whole = metrics.silhouette(rows, labels, sample_size=None)
    assert metrics.silhouette(rows, labels, sample_size=N) == whole
    seeds = [metrics.silhouette(rows, labels, sample_size=800, random_state=s) for s in range(5)]
    assert np.mean(seeds) == pytest.approx(whole, abs=0.03)
    assert len(set(seeds)) == 5
    with pytest.raises(InvalidParameterError, match="sample_size=2 should be at least 3"):
        metrics.silhouette(rows, labels, sample_size=2)


def test_blocks_of_rows_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = clouds()
    expected = separation.silhouettes(rows, labels)
    monkeypatch.setattr(separation, "_CELLS", 7 * N)
    np.testing.assert_allclose(separation.silhouettes(rows, labels), expected, rtol=1e-12)
    np.testing.assert_allclose(expected, peer.silhouette_samples(rows, labels), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("calinski_harabasz", 1),
        ("davies_bouldin", 2),
        ("simplified_silhouette", 2),
        ("silhouette", 1),
    ],
)
def test_passes_are_those_that_are_promised(
    name: str, passes: int, stored: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    place = LocalEngine.place

    def listening(self: LocalEngine, dataset: Any, **options: Any) -> Any:
        return place(self, dataset, **{**options, "callbacks": (heard.append,)})

    monkeypatch.setattr(LocalEngine, "place", listening)
    getattr(metrics, name)(stored["rows url"], stored["labels url"])
    assert sum(isinstance(event, PassEnded) for event in heard) == passes


def test_labels_that_change_under_the_measurement_are_noticed() -> None:
    with pytest.raises(InvalidDataError, match="changed while they were being read"):
        separation.numbered(np.array([1, 5]), np.array([1, 2]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_silhouettes_of_every_row_are_in_the_order_of_the_rows(metric: str) -> None:
    rows, labels = clouds(2)
    rows, labels = rows[:400], labels[:400]
    found = metrics.silhouette_samples(rows, labels, metric=metric)
    assert found == pytest.approx(peer.silhouette_samples(rows, labels, metric=metric), abs=1e-9)
    chunked = zarr.create_array({}, shape=rows.shape, chunks=(17, rows.shape[1]), dtype=rows.dtype)
    chunked[:] = rows
    assert np.array_equal(metrics.silhouette_samples(chunked, labels, metric=metric), found)
    assert metrics.silhouette(rows, labels, metric=metric, sample_size=None) == found.mean()
    with pytest.raises(InvalidParameterError, match="rows without weights"):
        metrics.silhouette_samples(dc.open_dataset(rows, weights=np.ones(len(rows))), labels)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_of_zeros_have_the_cosine_distance_one_to_all_others(
    form: Callable[[Any], Any],
) -> None:
    rows, labels = clouds(3)
    rows, labels = rows[:400], labels[:400]
    rows[::9] = 0.0
    found = metrics.silhouette_samples(form(rows), labels, metric="cosine")
    assert found == pytest.approx(peer.silhouette_samples(rows, labels, metric="cosine"), abs=1e-9)


def test_labels_from_a_npy_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(400, 3)), rng.integers(0, 3, 400)
    np.save(tmp_path / "labels.npy", labels)
    for measure in (dc.metrics.davies_bouldin, dc.metrics.silhouette):
        assert measure(rows, str(tmp_path / "labels.npy")) == measure(rows, labels)
