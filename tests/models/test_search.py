"""The search by bounds of a fit is saved with its model: it is not looked for again; labels are equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.chunkwise import centres as prepared_centres
from daskcluster.chunkwise import pruned
from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.errors import ModelFormatError
from daskcluster.kernels.dot_product import NO_DOT, best_dot
from daskcluster.kernels.quantized import RowRange
from daskcluster.kernels.tile import nearest, pack, working_tile
from daskcluster.models.fitted import body_of_search, load_document, save_model, search_of
from tests.security.samples import SAMPLES, D, kmeans_model

N, WIDE, K = 3200, 160, 640
RANGE = RowRange(-1.0, 1.5, 3.0, 0.0)
SEARCHES = {
    "axes": FixedSearch(0.25, np.eye(D, 2, dtype=np.float32), RANGE, RANGE),
    "features": FixedSearch(0.5, None, RANGE, None, short=True),
}

searches = pytest.mark.skipif(
    best_dot(working_tile(K, np.dtype(np.float32)).name) == NO_DOT,
    reason="without products of 8-bit integers, all centres are searched",
)


@pytest.mark.parametrize("name", sorted(SEARCHES))
@pytest.mark.parametrize("kind", ["kmeans", "hierarchical"])
def test_a_saved_search_is_the_same(kind: str, name: str, tmp_path: Path) -> None:
    search = SEARCHES[name]
    model: Any = SAMPLES[kind]
    save_model(replace(model, search=search), str(tmp_path / "m"))
    found = load_document(str(tmp_path / "m")).search
    assert found is not None
    assert replace(found, axes=None) == replace(search, axes=None)
    assert (found.axes is None) == (search.axes is None)
    if search.axes is not None:
        assert np.array_equal(found.axes, search.axes)
        assert found.axes.dtype == search.axes.dtype


def test_a_model_without_a_search_has_no_axes(tmp_path: Path) -> None:
    save_model(kmeans_model(), str(tmp_path / "m"))
    assert load_document(str(tmp_path / "m")).search is None
    assert not (tmp_path / "m" / "axes").exists()


@pytest.mark.parametrize(
    ("changes", "axes"),
    [
        ({"short": 1}, np.eye(D, 2)),
        ({"share": "x"}, np.eye(D, 2)),
        ({"features": None}, np.eye(D, 2)),
        ({"heads": {**RANGE._asdict(), "low": 2.0}}, np.eye(D, 2)),
        ({"features": {**RANGE._asdict(), "longest": -1.0}}, np.eye(D, 2)),
        ({}, None),
        ({}, np.eye(D + 1, 2)),
        ({}, np.ones((D, D + 1))),
        ({}, np.eye(D, 2, dtype=np.int64)),
        ({}, 1.01 * np.eye(D, 2)),
        ({}, np.full((D, 2), np.nan)),
        ({}, 1e300 * np.ones((D, 2))),
    ],
)
def test_invalid_searches_are_refused(changes: dict[str, Any], axes: np.ndarray | None) -> None:
    body = {"search": body_of_search(SEARCHES["axes"]) | changes}
    arrays = {} if axes is None else {"axes": axes}
    with pytest.raises(ModelFormatError, match=r"search|axes|short|share|features"):
        search_of(body, arrays, D)


def rows_and_centres() -> tuple[np.ndarray, np.ndarray]:
    """Return rows around centres whose variances fall from feature to feature, and the centres."""
    rng = np.random.default_rng(3)
    scale = 0.95 ** np.arange(WIDE)
    centres = rng.standard_normal((K, WIDE)) * scale
    rows = centres[rng.integers(0, K, N)] + 0.2 * rng.standard_normal((N, WIDE)) * scale
    return rows.astype(np.float32), centres.astype(np.float32)


def expected(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    labels = np.empty(len(rows), np.int32)
    nearest(rows, pack(centres), labels)
    return labels


def refuse(*_: Any) -> None:
    raise AssertionError("a task looked for a search")


@pytest.fixture
def no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruned, "_LEAST_PRODUCTS", 0)
    monkeypatch.setattr(prepared_centres, "sampled_search", refuse)


@searches
@pytest.mark.usefixtures("no_looking")
@pytest.mark.parametrize("algorithm", ["lloyd", "auto", "yinyang"])
def test_fits_and_saved_models_search_in_the_driver(algorithm: str, tmp_path: Path) -> None:
    rows, centres = rows_and_centres()
    model = dc.KMeans(
        K, init=centres, n_init=1, max_iter=3, tol=0, algorithm=algorithm, engine=dc.LocalEngine(2)
    )
    model.fit(rows)
    model.save(str(tmp_path / "m"))
    again = dc.load_model(str(tmp_path / "m"))
    assert again._search is not None
    assert again._search.share == model._search.share
    wanted = expected(rows, model.cluster_centers_)
    assert np.array_equal(model.labels_, wanted)
    for each in (model, again):
        assert np.array_equal(each.predict(rows), wanted)
        assert each.score(rows) == model.score(rows)


@searches
@pytest.mark.usefixtures("no_looking")
def test_rows_of_another_dtype_and_elsewhere_are_searched(tmp_path: Path) -> None:
    rows, centres = rows_and_centres()
    model = dc.MiniBatchKMeans(K, init=centres, max_iter=2, random_state=0).fit(rows)
    assert model._search is not None
    wide = centres.astype(np.float64)[::-1] + rows[:K] * 40.0 + 1e3
    many = np.concatenate([rows.astype(np.float64), wide])
    wanted = expected(many, model.cluster_centers_.astype(np.float64))
    assert np.array_equal(model.predict(many), wanted)
