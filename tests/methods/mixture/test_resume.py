"""Mixtures and coresets that are killed after any commit resume to bit-identical results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.engine.local import LocalPlacement
from daskcluster.engine.operations import CacheSlot
from daskcluster.errors import CheckpointError
from daskcluster.events import PassStarted
from tests.estimators import interruption
from tests.estimators.interruption import killed, summary
from tests.laws.data import CASES, case

K = 8
EM = {"truncation": 3, "n_neighbors": 3, "random_state": 2, "tol": 0.0, "max_iter": 7}

FITS: dict[str, dict[str, Any]] = {
    "isotropic": {"warmup_steps": 1},
    "spherical": {"covariance_type": "spherical", "n_random": 1},
    "diag": {"covariance_type": "diag", "search": "row"},
    "tied": {"covariance_type": "tied"},
    "full": {"covariance_type": "full", "n_random": 1},
    "full coreset": {"covariance_type": "full", "coreset_size": 300},
    "full starts": {"covariance_type": "full", "n_init": 2, "max_iter": 4, "init": "random"},
    "alternate": {"search": "alternate"},
    "exact": {"truncation": K},
    "given means": {"init": case("float32")[0][:K]},
    "ends by itself": {"tol": 1e-2, "max_iter": 40},
    "coreset": {"coreset_size": 300, "n_random": 1},
}


def mixture(name: str, **more: Any) -> Any:
    return dc.VariationalGaussianMixture(K, **{**EM, **FITS[name], **more})


def same(one: Any, other: Any) -> None:
    for name in ("means_", "weights_", "covariances_", "component_weights_", "labels_"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name in ("lower_bound_", "n_iter_", "stop_reason_", "seeding_", "converged_"):
        assert getattr(one, name) == getattr(other, name), name
    assert [summary(record) for record in one.history_] == [
        summary(record) for record in other.history_
    ]


@pytest.mark.kills
@pytest.mark.parametrize("name", FITS)
def test_a_mixture_killed_after_any_commit_resumes(tmp_path: Path, name: str) -> None:
    X, weights = case("weighted float32" if name == "spherical" else "float64")
    whole = mixture(name).fit(X, None, weights)
    for n_commits in (1, 2, 3, 5):
        kept = {"checkpoint": f"memory://{tmp_path}/{n_commits}", "checkpoint_every": 1}
        if not killed(lambda k=kept: mixture(name, **k).fit(X, None, weights), n_commits):
            break
        same(mixture(name, **kept).fit(X, None, weights, resume=True), whole)
    assert n_commits > 2


def test_a_resumed_fit_does_not_recompute_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed fit makes only the remaining passes, and none of them repeats a step."""
    from daskcluster.methods.mixture.chunkwise import e_step as passes

    X, _ = case("float32")
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 2}
    assert killed(lambda: mixture("isotropic", **kept).fit(X), 3)  # seeds, and iterations 2 and 4
    journals: list[int] = []
    prepare = passes._PreparedEStep.__init__

    def spied(self: Any, params: Any) -> None:
        journals.append(len(params.journal))
        prepare(self, params)

    monkeypatch.setattr(passes._PreparedEStep, "__init__", spied)
    monkeypatch.setattr(LocalPlacement, "loses_state", True)
    heard: list[Any] = []
    resumed = mixture("isotropic", **kept, callbacks=(heard.append,)).fit(X, resume=True)
    # Iteration 6 saves, 7 is the last one and saves, and a pass evaluates what it has learnt.
    assert journals == [0, 1, 0, 0]
    assert sum(isinstance(event, PassStarted) for event in heard) == 4
    same(resumed, mixture("isotropic").fit(X))


def test_commits_keep_two_saves_of_the_sets(tmp_path: Path) -> None:
    X, _ = case("float32")
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
    mixture("isotropic", **kept).fit(X)
    (folder,) = tmp_path.iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert [name.partition("-")[0] for name in names] == ["00000007", "00000008", "sets", "sets"]
    assert [name.split("-")[1] for name in names[2:]] == ["00000007", "00000008"]
    bytes_of_rows = sum(path.stat().st_size for path in (folder / names[2]).iterdir())
    assert 0 <= bytes_of_rows - 4 * EM["truncation"] * len(X) <= 32 * 100


def test_a_damaged_save_falls_back_to_the_previous_one(tmp_path: Path) -> None:
    X, _ = case("float32")
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
    assert killed(lambda: mixture("isotropic", **kept).fit(X), 5)
    newest = sorted(tmp_path.glob("*/sets-*"))[-1]
    file = sorted(newest.iterdir())[0]
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    with pytest.warns(RuntimeWarning, match="Skipping a checkpoint"):
        resumed = mixture("isotropic", **kept).fit(X, resume=True)
    same(resumed, mixture("isotropic").fit(X))


def test_an_ended_fit_resumes_with_higher_limits(tmp_path: Path) -> None:
    X, _ = case("float32")
    for name in ("diag", "coreset"):
        kept = {"checkpoint": str(tmp_path)}
        ended = mixture(name, max_iter=3, **kept).fit(X)
        same(mixture(name, max_iter=3, **kept).fit(X, resume=True), ended)
        same(mixture(name, **kept).fit(X, resume=True), mixture(name).fit(X))


@pytest.mark.parametrize("at", [0, 1], ids=["threads first", "cluster first"])
@pytest.mark.parametrize("name", ["diag", "coreset", "full"])
def test_clusters_and_threads_resume_from_each_other(
    tmp_path: Path, client: Any, name: str, at: int
) -> None:
    X, weights = case("weighted float32", 5000)
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(700, X.shape[1]))
    engines = dc.LocalEngine(1), client
    kept = {"checkpoint": str(tmp_path / "kept"), "checkpoint_every": 2}
    first, then = (
        mixture(name, engine=engine, **kept) for engine in (engines[at], engines[1 - at])
    )
    assert killed(lambda: first.fit(url, None, weights), 5 if name == "coreset" else 3)
    same(then.fit(url, None, weights, resume=True), mixture(name).fit(X, None, weights))


def test_a_lost_partition_restarts_from_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = case("float32")
    whole = mixture("isotropic").fit(X)
    monkeypatch.setattr(CacheSlot, "keep_state", lambda *arguments: None)
    monkeypatch.setattr(LocalPlacement, "loses_state", True)
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 3}
    assert killed(lambda: mixture("isotropic", **kept).fit(X), 2)
    same(mixture("isotropic", **kept).fit(X, resume=True), whole)


def test_workers_that_cannot_reach_the_checkpoint_are_reported(tmp_path: Path, client: Any) -> None:
    X, _ = case("float32")
    kept = {"checkpoint": f"memory://{tmp_path}", "checkpoint_every": 1}
    with pytest.raises(CheckpointError, match="as seen from the driver; give a checkpoint="):
        mixture("isotropic", engine=client, **kept).fit(X)


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ({"truncation": 4}, "parameters.truncation was 3 and is 4"),
        ({"covariance_type": "diag"}, "parameters.covariance_type was 'isotropic' and is 'diag'"),
        ({"coreset_size": 100}, "parameters.coreset_size was None and is 100"),
    ],
)
def test_other_parameters_are_refused(tmp_path: Path, changes: Any, summary: str) -> None:
    X, _ = case("float32")
    mixture("isotropic", checkpoint=str(tmp_path)).fit(X)
    with pytest.raises(CheckpointError, match=summary):
        mixture("isotropic", checkpoint=str(tmp_path), **changes).fit(X, resume=True)


# -- coresets -------------------------------------------------------------------------------------


def same_coreset(one: Any, other: Any) -> None:
    for name in ("indices_", "mean_"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    assert (one.total_weight_, one.spread_, one.passes_) == (
        other.total_weight_, other.spread_, other.passes_,
    )  # fmt: skip
    mine, theirs = one.coreset_, other.coreset_
    assert mine.dtype == theirs.dtype
    assert np.array_equal(mine.to_numpy(), theirs.to_numpy())
    assert np.array_equal(mine.weights, theirs.weights)


def coreset(**more: Any) -> dc.LightweightCoreset:
    return dc.LightweightCoreset(**{"size": 120, "random_state": 5, **more})


ROWS: dict[str, Any] = {
    **{name: lambda name=name: case(name) for name in CASES},
    "bytes": lambda: (np.random.default_rng(0).integers(0, 200, (900, 4)).astype(np.uint8), None),
    "halves": lambda: (case("float32")[0].clip(0, 1000).astype(np.float16), None),
    "sparse": lambda: (sparse.random_array((900, 30), density=0.1, format="csr", rng=0), None),
    "whole": lambda: (case("float32", 100)[0], None),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_coreset_killed_after_any_commit_resumes(tmp_path: Path, name: str) -> None:
    X, weights = ROWS[name]()
    whole = coreset().fit(X, None, weights)
    for n_commits in (1, 2, 3):
        kept = {"checkpoint": str(tmp_path / str(n_commits))}
        died = killed(lambda k=kept: coreset(**k).fit(X, None, weights), n_commits)
        assert died == (name != "whole" or n_commits < 3)
        same_coreset(coreset(**kept).fit(X, None, weights, resume=True), whole)


def test_a_coreset_of_other_rows_is_refused(tmp_path: Path) -> None:
    X, _ = case("float32")
    coreset(checkpoint=str(tmp_path)).fit(X)
    with pytest.raises(CheckpointError, match=r"data\.rows was 1500 and is 1400"):
        coreset(checkpoint=str(tmp_path)).fit(X[:1400], resume=True)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_k_means_of_a_coreset_resumes(tmp_path: Path, metric: str) -> None:
    X, weights = case("weighted float32")
    model = {"coreset_size": 200, "random_state": 1, "tol": 0.0, "metric": metric}
    whole = dc.CoresetKMeans(6, **model).fit(X, None, weights)
    n_commits = 1
    while True:
        kept = {**model, "checkpoint": str(tmp_path / str(n_commits)), "checkpoint_every": 3}
        if not killed(lambda k=kept: dc.CoresetKMeans(6, **k).fit(X, None, weights), n_commits):
            break
        resumed = dc.CoresetKMeans(6, **kept).fit(X, None, weights, resume=True)
        interruption.same(resumed, whole)
        assert resumed.passes_ == 2
        n_commits += 1
    assert n_commits > 5


def test_a_coreset_with_a_random_seed_resumes(tmp_path: Path) -> None:
    X, _ = case("float32")
    kept = {"coreset_size": 200, "checkpoint": str(tmp_path)}
    for n_commits in (1, 3):  # the second fit draws another coreset, and only that one counts
        assert killed(lambda n=n_commits: dc.CoresetKMeans(6, **kept).fit(X), n_commits)
    once = dc.CoresetKMeans(6, **kept).fit(X, resume=True)
    interruption.same(dc.CoresetKMeans(6, **kept).fit(X, resume=True), once)
