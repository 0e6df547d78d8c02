"""Fits by batches, epochs and starts that die after any commit go on to the bits of one that did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import CheckpointError
from daskcluster.estimators import checkpoints
from daskcluster.events import FitEnded, Notice, SeedingEnded
from daskcluster.methods.minibatch import estimator as minibatch_fit
from daskcluster.storage.checkpoint import CheckpointFolder
from tests.estimators.interruption import Killed, die_after, killed, same
from tests.laws.data import case

N = 1000
BATCHES = {"batch_size": 170, "max_iter": 4, "max_no_improvement": None}
EULER = {"batch_size": 60, "max_iter": 6, "inner_iter": 3}
NESTED = {"batch_size": 100, "max_iter": 40}
EPOCHS = {"max_iter": 7, "tol": 0.0}

FITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mini-batch": (dc.MiniBatchKMeans, BATCHES),
    "mini-batch, sqrt": (dc.MiniBatchKMeans, {**BATCHES, "learning_rate": "sqrt"}),
    "mini-batch, cosine": (dc.MiniBatchKMeans, {**BATCHES, "metric": "cosine"}),
    "mini-batch, patience": (dc.MiniBatchKMeans, {**BATCHES, "max_no_improvement": 3, "tol": 1e-9}),
    "mini-batch, reassigning": (
        dc.MiniBatchKMeans,
        {**BATCHES, "batch_size": 19, "reassignment_ratio": 0.9},  # looks at every third step
    ),
    "sgd": (dc.MiniBatchKMeans, {"batch_size": 1, "max_iter": 5, "max_no_improvement": None}),
    "nested": (dc.NestedMiniBatchKMeans, NESTED),
    "nested, seeds vote": (dc.NestedMiniBatchKMeans, {**NESTED, "seeds_vote": True}),
    "nested, early": (dc.NestedMiniBatchKMeans, {**NESTED, "rho": 1.0, "shuffle": False}),
    "nested, whole": (dc.NestedMiniBatchKMeans, {**NESTED, "batch_size": N, "metric": "cosine"}),
    "nested, no bounds": (dc.NestedMiniBatchKMeans, {**NESTED, "bounds": False, "tol": 0.0}),
    "vrkm++": (dc.VarianceReducedKMeans, EPOCHS),
    "vrkm": (dc.VarianceReducedKMeans, {**EPOCHS, "variant": "vrkm", "epoch_size": "doubling"}),
    "vrkm++, too fast": (dc.VarianceReducedKMeans, {**EPOCHS, "learning_rate": 0.7}),
    "vrkm++, adaptive": (dc.VarianceReducedKMeans, {**EPOCHS, "adaptive_rate": True}),
    "vrkm++, partitions": (dc.VarianceReducedKMeans, {**EPOCHS, "n_partitions": 3}),
    "backward Euler": (dc.BackwardEulerKMeans, EULER),
    "backward Euler, halved": (dc.BackwardEulerKMeans, {**EULER, "step_size": 1e4}),
    "backward Euler, starts": (dc.BackwardEulerKMeans, {**EULER, "n_init": 3}),
}


def made(name: str, **more: Any) -> Any:
    kind, parameters = FITS[name]
    return kind(5, **{"random_state": 3, **parameters, **more})


@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_died_after_any_commit_continues(tmp_path: Path, name: str) -> None:
    X, weights = case("weighted float64" if len(name) % 2 else "float32", N)
    whole = made(name).fit(X, None, weights)
    for n_commits in (1, 2, 4, 8):
        kept = {"checkpoint": f"memory://{tmp_path}/{n_commits}", "checkpoint_every": 1}
        if not killed(lambda k=kept: made(name, **k).fit(X, None, weights), n_commits):
            break
        same(made(name, **kept).fit(X, None, weights, resume=True), whole)
    assert n_commits > 2


@pytest.mark.parametrize("name", ["mini-batch", "sgd"])
def test_commits_may_come_between_any_two_steps(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, weights = case("weighted float32", N)
    whole = made(name).fit(X, None, weights)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    for n_commits in (2, 3, 5):
        kept = {"checkpoint": str(tmp_path / str(n_commits)), "checkpoint_every": 1000}
        assert killed(lambda k=kept: made(name, **k).fit(X, None, weights), n_commits)
        same(made(name, **kept).fit(X, None, weights, resume=True), whole)


def test_a_fit_may_die_again_and_again(tmp_path: Path) -> None:
    X, _ = case("float32", N)
    for name in ("mini-batch", "nested", "vrkm++", "backward Euler, starts"):
        kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
        assert killed(lambda k=kept, n=name: made(n, **k).fit(X), 1)
        for _ in range(3):
            killed(lambda k=kept, n=name: made(n, **k).fit(X, resume=True), 2)
        same(made(name, **kept).fit(X, resume=True), made(name).fit(X))


@pytest.mark.parametrize("name", ["mini-batch", "nested", "vrkm++", "backward Euler, starts"])
def test_a_fit_that_has_ended_continues_with_higher_limits(tmp_path: Path, name: str) -> None:
    X, _ = case("float32", N)
    kept = {"checkpoint": str(tmp_path)}
    ended = made(name, max_iter=5, **kept).fit(X)
    again = made(name, max_iter=5, **kept).fit(X, resume=True)
    same(ended, again)
    assert ended.stop_reason_ == "max_iter"
    same(made(name, max_iter=7, **kept).fit(X, resume=True), made(name, max_iter=7).fit(X))


@pytest.mark.parametrize("name", ["mini-batch", "nested", "vrkm++", "backward Euler"])
def test_a_fresh_seed_is_kept(tmp_path: Path, name: str) -> None:
    X, _ = case("float32", N)
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1, "random_state": None}
    assert killed(lambda: made(name, **kept).fit(X), 2)
    once = made(name, **kept).fit(X, resume=True)
    same(once, made(name, **kept).fit(X, resume=True))  # the last commit is the end


def test_starts_of_an_earlier_fit_are_not_resumed_from(tmp_path: Path) -> None:
    X, _ = case("float32", N)
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1, "random_state": None}
    first = made("backward Euler, starts", **kept).fit(X)
    second = made("backward Euler, starts", **kept).fit(X)
    assert first.inertia_ != second.inertia_
    assert killed(lambda: made("backward Euler, starts", **kept).fit(X), 3)
    third = made("backward Euler, starts", **kept).fit(X, resume=True)
    assert not set(third.start_inertias_) & {*first.start_inertias_, *second.start_inertias_}


def stored(tmp_path: Path, X: np.ndarray) -> str:
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(20, X.shape[1]))
    return url


OUT_OF_CORE = ["mini-batch", "sgd", "nested", "vrkm++, partitions", "backward Euler, starts"]


@pytest.mark.parametrize("name", OUT_OF_CORE)
def test_out_of_core(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, weights = case("weighted float32", N)
    url = stored(tmp_path, X)
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", X.nbytes // 2)  # batches come from pools
    whole = made(name).fit(url, None, weights)
    for n_commits in (1, 3):
        kept = {"checkpoint": f"memory://{tmp_path}/{n_commits}", "checkpoint_every": 1}
        assert killed(lambda k=kept: made(name, **k).fit(url, None, weights), n_commits)
        resumed = made(name, **kept, engine=dc.LocalEngine(1)).fit(url, None, weights, resume=True)
        same(resumed, whole)


def test_other_room_for_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = case("float32", N)
    url, kept = stored(tmp_path, X), {"checkpoint": str(tmp_path / "kept")}
    assert killed(lambda: made("mini-batch", **kept).fit(url), 1)
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", X.nbytes // 2)
    with pytest.raises(CheckpointError, match=r"circumstances\.bytes_read_ahead was 268435456 and"):
        made("mini-batch", **kept).fit(url, resume=True)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    X, weights = case("weighted float32", N)
    kept = {"checkpoint": str(tmp_path)}
    assert killed(lambda: made("vrkm++", **kept).fit(X, None, weights), 1)
    with pytest.raises(CheckpointError, match=r"first_and_last_weights was"):
        made("vrkm++", **kept).fit(X, None, weights + 1.0, resume=True)


@pytest.mark.parametrize("name", ["mini-batch", "sgd", "nested", "vrkm++", "backward Euler"])
def test_sparse_rows(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    X = sparse.csr_matrix(rng.random((600, 30)) * (rng.random((600, 30)) < 0.2), dtype=np.float32)
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
    assert killed(lambda: made(name, **kept).fit(X), 2)
    same(made(name, **kept).fit(X, resume=True), made(name).fit(X))


@pytest.mark.parametrize("name", ["nested", "vrkm++, partitions", "mini-batch"])
def test_a_fit_of_a_cluster_continues_in_this_process(
    tmp_path: Path, name: str, client: Any
) -> None:
    X, weights = case("weighted float32", N)
    url, kept = stored(tmp_path, X), {"checkpoint": str(tmp_path / "kept"), "checkpoint_every": 1}
    assert killed(lambda: made(name, engine=client, **kept).fit(url, None, weights), 3)
    same(
        made(name, **kept).fit(url, None, weights, resume=True), made(name).fit(url, None, weights)
    )


def test_starts_commit_from_workers(tmp_path: Path, client: Any) -> None:
    X, _ = case("float32", N)
    url, kept = stored(tmp_path, X), {"checkpoint": str(tmp_path / "kept")}
    name = "backward Euler, starts"
    made(name, engine=client, max_iter=3, **kept).fit(url)
    assert len(list((tmp_path / "kept").glob("*/start-0000?"))) == 3
    resumed = made(name, engine=client, **kept).fit(url, resume=True)
    same(resumed, made(name).fit(url))
    heard: list[Any] = []
    only_here = {"checkpoint": f"memory://{tmp_path}/kept", "callbacks": (heard.append,)}
    same(made(name, engine=client, **only_here).fit(url), resumed)
    assert any("starts run in this process" in e.text for e in heard if isinstance(e, Notice))


@pytest.mark.parametrize("name", ["mini-batch", "nested", "vrkm++", "backward Euler"])
def test_time_and_work_before_the_interruption_count(tmp_path: Path, name: str) -> None:
    X, _ = case("float32", N)
    heard: list[Any] = []
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1, "callbacks": (heard.append,)}
    later = later_by(100.0)
    with pytest.MonkeyPatch.context() as patched:
        die_after(patched, 3)
        patched.setattr(time, "perf_counter", later)
        with pytest.raises(Killed):
            made(name, **kept).fit(X)
    heard.clear()
    resumed = made(name, max_time=50.0, **kept).fit(X, resume=True)
    assert resumed.stop_reason_ == "max_time"
    assert resumed.n_iter_ < made(name).fit(X).n_iter_
    assert not any(isinstance(event, SeedingEnded) for event in heard)
    ended = next(event for event in heard if isinstance(event, FitEnded))
    assert ended.seconds > 100.0
    assert resumed.passes_ >= 1
    again = made(name, max_time=50.0, **kept).fit(X, resume=True)
    same(resumed, again)  # there is no time left for more


def later_by(seconds: float) -> Callable[[], float]:
    """Return a clock on which so much time passes with each look at it."""
    looks = [0.0]

    def clock() -> float:
        looks[0] += seconds
        return looks[0]

    return clock


LATER = ("kernel", "hierarchical")


def test_a_commit_takes_what_a_plan_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pkgutil import resolve_name

    from daskcluster.methods.catalogue import ALGORITHMS

    X = np.random.default_rng(0).normal(size=(N, 40)).astype(np.float32)
    sizes: list[int] = []
    commit = CheckpointFolder.commit

    def measured(self: CheckpointFolder, state: Any) -> None:
        sizes.append(sum(values.nbytes for values in state.arrays.values()))
        commit(self, state)

    monkeypatch.setattr(CheckpointFolder, "commit", measured)
    for name in ("lloyd", "mini-batch", "sgd", "nested", "vrkm++", "backward-euler", *LATER):
        entry, url = ALGORITHMS[name], str(tmp_path / name)
        given = entry.arguments({"n_clusters": 50, "max_iter": 3, "init": "random"})
        defaults = {each.name: each.default for each in entry.parameters.values()}
        plan = resolve_name(entry.plan)(dc.open_dataset(X), entry.arguments({**defaults, **given}))
        sizes.clear()
        resolve_name(entry.estimator)(**given, random_state=0, checkpoint=url).fit(X)
        data_statistics = 3 * 8 * X.shape[1]
        assert (
            plan.commit_bytes - data_statistics <= max(sizes) <= plan.commit_bytes + data_statistics
        ), name


def test_a_state_of_another_shape_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = case("float32", N)
    kept = {"checkpoint": str(tmp_path)}
    commit = CheckpointFolder.commit

    def shortened(self: CheckpointFolder, state: Any) -> None:
        state.arrays["state_seen"] = state.arrays["state_seen"][:-1]
        commit(self, state)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CheckpointFolder, "commit", shortened)
        made("mini-batch", **kept).fit(X)
    with pytest.raises(CheckpointError, match=r"'seen' is of shape \(4,\), not \(5,\)"):
        made("mini-batch", **kept).fit(X, resume=True)
