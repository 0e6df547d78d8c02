"""Levels of clusters: parents, resampling, the same bits anywhere, saving, labels, resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import events
from daskcluster.errors import InvalidParameterError, ModelFormatError, WrongTypeError
from daskcluster.methods.hierarchical.cells import HierarchicalModel
from tests.estimators.interruption import killed, same
from tests.laws.data import case


def uneven(n: int = 4000, k: int = 30, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of clusters whose sizes follow a power law, and their clusters."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, k + 1) ** 1.5
    labels = rng.choice(k, size=n, p=shares / shares.sum())
    centres = 10.0 * rng.normal(size=(k, d))
    return (centres[labels] + rng.normal(size=(n, d))).astype(np.float32), labels


pytestmark = pytest.mark.usefixtures("divided")

X, TRUE = uneven()
LEVELS = {"level_sizes": [12, 3], "resample_rounds": 2, "random_state": 3}


def check_levels(model: Any, sizes: list[int]) -> None:
    assert model.level_sizes_ == sizes
    assert [(len(p), p.dtype) for p in model.parents_] == [(size, np.int32) for size in sizes[:-1]]
    for parents, above in zip(model.parents_, sizes[1:], strict=True):
        assert parents.min() >= 0
        assert parents.max() < above


def same_levels(one: Any, other: Any) -> None:
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert len(one.parents_) == len(other.parents_) > 0
    for mine, theirs in zip(one.parents_, other.parents_, strict=True):
        assert np.array_equal(mine, theirs)
    assert one.inertia_ == other.inertia_


def test_one_level_is_the_fit_without_levels() -> None:
    plain = dc.HierarchicalKMeans(60, random_state=0).fit(X)
    assert (plain.parents_, plain.level_sizes_) == ([], [60])
    assert plain.to_model().kind == "kmeans"
    assert np.array_equal(plain.predict(X, level=1), plain.labels_)
    levels = dc.HierarchicalKMeans(60, random_state=0, n_levels=2, resample_rounds=0).fit(X)
    assert levels.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
    assert (levels.passes_, levels.inertia_) == (plain.passes_, plain.inertia_)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"n_levels": 3}, [64, 16, 4]),
        ({"level_sizes": "20, 5"}, [64, 20, 5]),
        (LEVELS, [64, 12, 3]),
    ],
)
def test_parents_of_every_level(given: dict[str, Any], sizes: list[int]) -> None:
    model = dc.HierarchicalKMeans(64, **{"random_state": 0, **given}).fit(X)
    check_levels(model, sizes)
    labels = model.labels_
    for level, parents in enumerate(model.parents_, start=2):
        labels = parents[labels]
        assert np.array_equal(model.predict(X, level=level), labels)


def test_a_parent_is_the_nearest_centre_of_the_next_level() -> None:
    model = dc.HierarchicalKMeans(64, level_sizes=[8], random_state=0, resample_rounds=0).fit(X)
    means = np.array(
        [model.cluster_centers_[model.parents_[0] == j].mean(axis=0) for j in range(8)]
    )
    nearest = ((model.cluster_centers_[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == model.parents_[0]).mean() > 0.9  # few iterations are left to convergence


@pytest.mark.parametrize(
    ("name", "metric"), [("weighted float32", "euclidean"), ("float64", "cosine")]
)
def test_same_bits_anywhere(tmp_path: Path, client: Any, name: str, metric: str) -> None:
    rows, w = case(name)
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=rows, chunks=(97, rows.shape[1]))

    def fit(source: Any, engine: Any) -> Any:
        model = dc.HierarchicalKMeans(40, **LEVELS, metric=metric, engine=engine)
        return model.fit(source, sample_weight=w)

    one = fit(rows, dc.LocalEngine(1))
    for source, engine in ((rows, dc.LocalEngine(3)), (url, "local"), (url, client)):
        same_levels(one, fit(source, engine))


def test_sparse_rows() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 5, (800, 12)) * (rng.random((800, 12)) < 0.3)
    model = dc.HierarchicalKMeans(30, **LEVELS).fit(sparse.csr_array(rows.astype(np.float32)))
    check_levels(model, [30, 12, 3])


def test_resampling_spreads_centres() -> None:
    """Centres in the largest true cluster become fewer with every round."""
    model = dc.HierarchicalKMeans(100, random_state=0, resample_rounds=0).fit(X)
    rounds = dc.HierarchicalKMeans(100, random_state=0, resample_rounds=5).fit(X)
    largest = np.argmax(np.bincount(TRUE))

    def share(fitted: Any) -> float:
        owners = [np.bincount(TRUE[fitted.labels_ == j], minlength=30).argmax() for j in range(100)]
        return float(np.mean(np.array(owners) == largest))

    assert share(rounds) < 0.6 * share(model)
    assert rounds.passes_ == model.passes_ + 2 * 5
    assert np.array_equal(rounds.labels_, rounds.predict(X))


def test_rows_without_weight_are_not_drawn_anew() -> None:
    w = (X[:, 0] > 0).astype(float)
    model = dc.HierarchicalKMeans(30, **LEVELS).fit(X, sample_weight=w)
    assert (model.cluster_centers_[:, 0] > 0).all()


def test_few_distinct_rows() -> None:
    rows = np.repeat(np.arange(12.0)[:, None], 20, axis=0)
    with pytest.warns(UserWarning, match="distinct clusters"):
        model = dc.HierarchicalKMeans(20, level_sizes=[15, 2], random_state=0).fit(rows)
    check_levels(model, [20, 15, 2])


def test_levels_survive_saving(tmp_path: Path) -> None:
    model = dc.HierarchicalKMeans(64, **LEVELS).fit(X)
    model.save(str(tmp_path / "m"))
    again = dc.load_model(str(tmp_path / "m"))
    same_levels(model, again)
    assert (again.level_sizes_, again.level_sizes, again.n_levels) == ([64, 12, 3], [12, 3], 1)
    assert np.array_equal(again.predict(X, level=3), model.predict(X, level=3))
    again.save(str(tmp_path / "again"))
    same_levels(model, dc.load_model(str(tmp_path / "again")))
    assert again.to_model().facts()["levels"] == "64 clusters in 12 in 3"
    # Whatever takes a model of k-means takes this one.
    assert dc.KMeans(64, init=str(tmp_path / "m"), max_iter=0).fit(X).inertia_ == model.inertia_
    again.report(X[:200]).save(str(tmp_path / "r.json"))


def test_labels_of_a_level_in_every_form(tmp_path: Path) -> None:
    model = dc.HierarchicalKMeans(64, **LEVELS).fit(X)
    expected = model.predict(X, level=2)
    lazy = model.predict(da.from_array(X, chunks=(900, 4)), level=2)
    assert np.array_equal(lazy.compute(), expected)
    assert model.predict(X, level=2, output=str(tmp_path / "l.zarr")) == str(tmp_path / "l.zarr")
    assert np.array_equal(zarr.open_array(str(tmp_path / "l.zarr"), mode="r")[:], expected)
    assert np.array_equal(model.predict(X), model.labels_)
    with pytest.raises(InvalidParameterError, match=r"level=4 should be in \[1, 3\]"):
        model.predict(X, level=4)
    with pytest.raises(InvalidParameterError, match="leave out n_nearest"):
        model.predict(X, level=2, n_nearest=2)


@pytest.mark.parametrize("stored", [False, True])
def test_a_fit_that_died_after_any_commit_continues(tmp_path: Path, stored: bool) -> None:
    rows, w = case("weighted float32", 900)
    source: Any = rows
    if stored:
        source = str(tmp_path / "rows.zarr")
        zarr.create_array(source, data=rows, chunks=(100, rows.shape[1]))
    given = {**LEVELS, "resample_rounds": 3}
    whole, n_commits = dc.HierarchicalKMeans(40, **given).fit(source, None, w), 0
    while True:
        n_commits += 1
        kept = {**given, "checkpoint": str(tmp_path / str(n_commits)), "checkpoint_every": 1}
        begin = dc.HierarchicalKMeans(40, **kept)
        if not killed(lambda m=begin: m.fit(source, None, w), n_commits):
            break
        again = dc.HierarchicalKMeans(40, **kept).fit(source, None, w, resume=True)
        same(again, whole)
        same_levels(again, whole)
    assert n_commits >= 6  # cells, centres of cells, two iterations, three rounds


def test_rounds_that_are_done_are_not_done_again(tmp_path: Path) -> None:
    given = {**LEVELS, "resample_rounds": 3, "checkpoint": str(tmp_path), "checkpoint_every": 100}
    heard: list[events.Event] = []
    assert killed(lambda: dc.HierarchicalKMeans(40, **given).fit(X), 4)
    dc.HierarchicalKMeans(40, **given, callbacks=[heard.append]).fit(X, resume=True)
    rounds = [e for e in heard if isinstance(e, events.Notice) and "Resampled" in e.text]
    assert [note.text.split(", ")[-1] for note in rounds] == ["2 of 3", "3 of 3"]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (
            {"level_sizes": [64, 8]},
            InvalidParameterError,
            "leave out the number of the first level",
        ),
        ({"level_sizes": [8, 0]}, InvalidParameterError, "should decrease and be >= 1"),
        ({"level_sizes": [8, 8]}, InvalidParameterError, "should decrease"),
        ({"level_sizes": [8], "n_levels": 3}, InvalidParameterError, "give one of them"),
        ({"level_sizes": [8.5]}, WrongTypeError, "should be whole numbers"),
        ({"n_levels": 40}, InvalidParameterError, "ask for fewer levels"),
    ],
)
def test_levels_that_make_no_sense(given: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        dc.HierarchicalKMeans(64, **given).fit(X)


def test_models_whose_levels_do_not_fit_are_refused() -> None:
    good = {"weights": np.ones(3), "n_rows": 3, "level_sizes": (2,)}
    for parents in ((), (np.array([0, 1]),), (np.array([0, 1, 2]),), (np.array([0, -1, 0]),)):
        with pytest.raises(ModelFormatError, match="parent"):
            HierarchicalModel(np.eye(3), parents=parents, **good)
    model = HierarchicalModel(np.eye(3), parents=(np.array([0, 1, 1]),), **good)
    for name, values in (("level_sizes", [2, 2]), ("level_sizes", [0]), ("parents", [0, 1])):
        arrays = {**model.arrays(), name: np.array(values)}
        with pytest.raises(ModelFormatError):
            HierarchicalModel.from_parts(model.body(), arrays)
