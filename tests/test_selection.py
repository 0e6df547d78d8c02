"""`select_k`: what it finds, what it says of the range, how often it reads, the same anywhere."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.cluster import KMeans as TheirKMeans

import daskcluster as dc
from daskcluster import events, open_dataset
from daskcluster.errors import InvalidParameterError, MissingExtraError, WrongTypeError
from daskcluster.jobs.selection import effective_rows, simplified_silhouette


def blobs(k: int = 7, n: int = 6000, d: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 25 * rng.normal(size=(k, d))
    return (centres[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(np.float32)


X = blobs()
FAST: dict[str, Any] = {"random_state": 0, "n_seeds": 2, "coreset_size": 1500}


@pytest.mark.parametrize("criterion", ["knee", "silhouette", "bic"])
def test_the_number_of_blobs_is_found(criterion: str) -> None:
    found = dc.select_k(X, 3, 11, criterion=criterion, **FAST)
    assert (found.best_k, found.notes) == (7, ())
    assert [each.k for each in found.candidates] == list(range(3, 12))
    assert found.best.k == 7
    assert (found.coreset_size, found.n_rows, found.n_features) == (1500, 6000, 3)


def test_a_coreset_does_not_make_up_components() -> None:
    rows = blobs(k=3, n=60_000)
    found = dc.select_k(rows, 1, 8, criterion="bic", random_state=0, n_seeds=1, coreset_size=400)
    assert found.best_k == 3
    few = dc.lightweight_coreset(rows, 400, random_state=0)
    assert 100 < effective_rows(few) <= 400
    assert effective_rows(open_dataset(rows)) == 60_000


@pytest.mark.parametrize("criterion", ["knee", "bic"])
def test_scaled_rows_are_measured_on_their_scale(criterion: str) -> None:
    wide = dc.open_dataset((X * [1.0, 1e3, 1e-2]).astype(np.float32), scale="standard")
    found = dc.select_k(wide, 2, 9, criterion=criterion, **FAST)
    plain = dc.select_k(dc.open_dataset(X, scale="standard"), 2, 9, criterion=criterion, **FAST)
    assert found.best_k == plain.best_k == 7
    best, same = found.best, plain.best
    if criterion == "knee":
        assert best.error is not None
        assert abs(best.error) < 0.1
        assert best.true_inertia == pytest.approx(same.true_inertia, rel=1e-4)
    assert np.ptp(found.centres[7][:, 1]) > 1e4  # in the units of the data


@pytest.mark.parametrize(
    ("k_min", "k_max", "criterion", "text"),
    [
        (2, 5, "silhouette", "k=5, the largest that was tried; the range may be too small"),
        (2, 5, "bic", "k=5, the largest that was tried; the range may be too small"),
        (9, 14, "silhouette", "k=9, the smallest that was tried"),
        (2, 8, "knee", "k=7, next to the largest tried"),
    ],
)
def test_it_says_when_the_range_is_too_small(
    k_min: int, k_max: int, criterion: str, text: str
) -> None:
    found = dc.select_k(X, k_min, k_max, criterion=criterion, check=0, **FAST)
    assert [note for note in found.notes if text in note], found.notes


def test_rows_without_clusters_have_no_knee() -> None:
    rows = np.random.default_rng(0).random((5000, 2))
    found = dc.select_k(rows, 2, 30, check=0, **FAST)
    assert found.notes[0].startswith("no knee is clear between k=2 and k=30")


def test_fits_share_one_coreset_and_one_check(tmp_path: Any) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=X, chunks=(500, 3))
    passes = []

    def hear(event: events.Event) -> None:
        if isinstance(event, events.PassEnded):
            passes.append(event.name)

    found = dc.select_k(str(tmp_path / "rows.zarr"), 2, 9, check=4, callbacks=[hear], **FAST)
    assert len(passes) == found.passes == 3
    measured = [each.k for each in found.candidates if each.true_inertia is not None]
    assert measured == [5, 6, 7, 8]
    for each in found.candidates:
        if each.true_inertia is not None:
            true = dc.quantization_error(X, found.centres[each.k])
            assert each.true_inertia == pytest.approx(true, rel=1e-9)
            assert each.error == pytest.approx(each.inertia / true - 1)


def test_fits_tell_when_they_are_made_and_may_be_stopped() -> None:
    heard: list[events.Event] = []
    dc.select_k(X, 2, 5, callbacks=[heard.append], **FAST)
    made = [(each.done, each.total) for each in heard if isinstance(each, events.FitsMade)]
    assert made == [(done, 8) for done in range(1, 9)]
    assert sum(isinstance(each, events.PassEnded) for each in heard) == 3

    def stop(event: events.Event) -> None:
        heard.append(event)
        if isinstance(event, events.FitsMade):
            raise KeyboardInterrupt

    heard.clear()
    with pytest.raises(KeyboardInterrupt):
        dc.select_k(X, 2, 5, callbacks=[stop], **FAST)
    assert heard[-1] == events.FitsMade(1, 8)


def test_same_table_anywhere(tmp_path: Any, client: Any) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=X, chunks=(700, 2))
    one = dc.select_k(X, ks=[3, 7, 9], engine=dc.LocalEngine(1), **FAST)
    for source, engine in ((X, client), (str(tmp_path / "rows.zarr"), client), (X, "local")):
        other = dc.select_k(source, ks=[3, 7, 9], engine=engine, **FAST)
        assert other.table() == one.table()
        assert other.centres[7].tobytes() == one.centres[7].tobytes()
    alone = dc.select_k(X, ks=[7], engine="local", check=0, **FAST)
    assert alone.centres[7].tobytes() == one.centres[7].tobytes()


def test_weights_metric_and_sparse_rows() -> None:
    from scipy import sparse

    weights = np.random.default_rng(0).random(6000)
    found = dc.select_k(X, 2, 10, metric="cosine", sample_weight=weights, check=1, **FAST)
    assert found.best.inertia == pytest.approx(found.best.true_inertia, rel=0.2)
    assert found.best.inertia < weights.sum()
    rows = sparse.csr_array(np.abs(X).round(-1))
    assert dc.select_k(rows, ks=[2, 5], check=1, **FAST).candidates[1].silhouette > 0


def test_the_silhouette_is_that_of_its_definition() -> None:
    model = TheirKMeans(5, n_init=1, random_state=0).fit(X)
    ordered = np.sort(model.transform(X), axis=1)
    a, b = ordered[:, 0], ordered[:, 1]
    found = simplified_silhouette(ordered[:, :2], None)
    assert found == pytest.approx(((b - a) / np.maximum(a, b)).mean())
    assert simplified_silhouette(np.zeros((3, 2)), None) == 0.0


def test_a_coreset_that_is_too_small_is_noted() -> None:
    found = dc.select_k(X, ks=[2, 30, 60], random_state=0, n_seeds=1, coreset_size=70)
    assert any("the coreset is too small: at k=60" in note for note in found.notes)


def test_result_as_table_text_and_json() -> None:
    found = dc.select_k(X, ks=[1, 5, 7, 8, 12], **FAST)
    rows = found.table()
    assert list(rows[0])[:4] == ["k", "inertia", "spread", "silhouette"]
    assert rows[0]["silhouette"] is None
    lines = str(found).splitlines()
    assert next(line for line in lines if line.startswith("*")).split()[1] == "7"
    assert lines[6] == "best k=7 by knee"
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain["best_k"] == 7
    assert plain["candidates"][2]["k"] == 7
    assert "centres" not in plain
    warm = dc.KMeans(7, init=found.centres[7]).fit(X)
    assert warm.n_iter_ <= 5


def test_short_ranges_are_tried_as_a_whole() -> None:
    found = dc.select_k(X, 2, 30, check=0, random_state=0, n_seeds=1, coreset_size=400, max_iter=2)
    assert [each.k for each in found.candidates] == list(range(2, 31))


def test_long_ranges_are_thinned_and_refined_around_the_best() -> None:
    found = dc.select_k(X, 2, 200, check=0, random_state=0, n_seeds=1, coreset_size=400, max_iter=2)
    ks = np.array([each.k for each in found.candidates])
    assert (ks[0], ks[-1]) == (2, 200)
    assert 24 <= len(ks) <= 32 + 5 * 8
    assert (np.diff(ks) > 0).all()
    place = ks.tolist().index(found.best_k)
    assert ks[place + 1] - ks[place - 1] <= max(2, 0.05 * found.best_k)
    named = dc.select_k(X, ks=[2, 7, 200], **FAST)
    assert [each.k for each in named.candidates] == [2, 7, 200]


def test_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the plots extra is not installed")
    found = dc.select_k(X, ks=[3, 5, 7, 9], **FAST)
    axes = found.plot()
    assert axes.get_xlabel() == "clusters"
    assert len(axes.figure.axes) == 2
    same = found.plot(axes)
    assert same is axes
    mixed = dc.select_k(X, ks=[3, 5, 7], criterion="bic", **FAST).plot()
    assert (mixed.get_ylabel(), len(mixed.figure.axes)) == ("bic", 1)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[plots\]"):
        found.plot()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"k_min": 5, "k_max": 4}, "k_min=5 and k_max=4 should be"),
        ({"k_min": 0}, "should be 1 <= k_min"),
        ({"ks": []}, "should be whole numbers >= 1"),
        ({"k_max": 7000}, "n_samples=6000 should be >= k_max=7000"),
        ({"criterion": "elbow"}, "criterion='elbow' should be one of knee, silhouette, bic"),
        ({"n_seeds": 0}, "n_seeds=0 should be >= 1"),
        ({"coreset_size": 0}, "coreset_size=0 should be 'auto' or"),
        ({"coreset_size": 10}, "coreset_size=10 should be >= k_max=32"),
        ({"init": "kmeans"}, "kmeans"),
    ],
)
def test_bad_parameters(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dc.select_k(X, **options)


@pytest.mark.parametrize("lazy", [False, True])
def test_cells_of_xarray_are_opened_as_a_fit_opens_them(lazy: bool) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    values = np.random.default_rng(0).normal(size=(3, 30, 40))
    values[:, 4, 5] = np.nan
    cells = xr.DataArray(values, {"band": ["r", "g", "n"]}, ("band", "y", "x"))
    cells = cells.chunk({"y": 10}) if lazy else cells
    rows: Any = dc.open_grid(cells).dataset
    opened: Any = dc.open_dataset(cells)
    assert np.array_equal(opened.to_numpy(), rows.to_numpy())
    assert opened.feature_names == dc.open_dataset(cells.to_dataset("band")).feature_names  # type: ignore[attr-defined]
    options: dict[str, Any] = {"ks": [2, 3], "n_seeds": 1, "random_state": 0}
    assert dc.select_k(cells, **options).table() == dc.select_k(rows, **options).table()
    centres = np.zeros((2, 3))
    assert dc.quantization_error(cells, centres) == dc.quantization_error(rows, centres)
    chosen = dc.kmeans_parallel(cells, 2, random_state=0)
    assert np.array_equal(chosen, dc.kmeans_parallel(rows, 2, random_state=0))
    with pytest.raises(WrongTypeError, match=r"a DataArray of xarray.*open_grid\(source"):
        dc.metrics.simplified_silhouette(cells, np.zeros(1200))
    with pytest.raises(
        InvalidParameterError, match=r"time, y, x holds.*open_grid\(source, features="
    ):
        dc.select_k(cells.rename(band="time"), **options)
