"""Kernel k-means that dies after any commit continues to the bits of a fit that did not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import CheckpointError
from daskcluster.events import Notice, SeedingEnded
from daskcluster.methods.minibatch import estimator as minibatch_fit
from daskcluster.storage.checkpoint import CheckpointFolder
from tests.estimators.interruption import killed, same
from tests.laws.data import case

N, K = 500, 5
X, WEIGHTS = case("weighted float32", N)
STEPS = {"batch_size": 64, "max_iter": 12}

FITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "full": (dc.KernelKMeans, {}),
    "full, starts": (dc.KernelKMeans, {"n_init": 3, "init": "random", "kernel": "laplacian"}),
    "full, one has gone": (dc.KernelKMeans, {"init": [7, 7, 90, 4, 300], "kernel": "linear"}),
    "full, tolerance": (dc.KernelKMeans, {"kernel": "polynomial", "tol": 1e-3}),
    "knn": (dc.KernelKMeans, {"kernel": "knn"}),
    "heat": (dc.KernelKMeans, {"kernel": "heat", "init": "random", "n_init": 2}),
    "batches": (dc.MiniBatchKernelKMeans, STEPS),
    "batches, short": (dc.MiniBatchKernelKMeans, {**STEPS, "truncation": 20}),
    "batches, shrinking": (
        dc.MiniBatchKernelKMeans,
        {**STEPS, "truncation": 20, "normalize_truncated": False, "kernel": "cosine"},
    ),
    "batches, starts": (
        dc.MiniBatchKernelKMeans,
        {**STEPS, "n_init": 3, "init": "random", "learning_rate": "count", "max_iter": 5},
    ),
    "batches, drawn again": (
        dc.MiniBatchKernelKMeans,
        {**STEPS, "replacement": True, "n_local_trials": 1, "truncation": 60},
    ),
    "batches, given": (dc.MiniBatchKernelKMeans, {**STEPS, "init": X[:K], "truncation": 60}),
    "batches, knn": (
        dc.MiniBatchKernelKMeans,
        {**STEPS, "kernel": "knn", "truncation": 20, "replacement": True},
    ),
    "batches, heat": (
        dc.MiniBatchKernelKMeans,
        {**STEPS, "kernel": "heat", "truncation": None, "n_init": 2, "max_iter": 5},
    ),
    "batches, all": (
        dc.MiniBatchKernelKMeans,
        {**STEPS, "truncation": None, "n_init": 2, "max_iter": 6},
    ),
}


def made(name: str, **more: Any) -> Any:
    kind, parameters = FITS[name]
    return kind(K, **{"random_state": 3, "max_iter": 12, **parameters, **more})


def every(url: str) -> dict[str, Any]:
    return {"checkpoint": url, "checkpoint_every": 1}


@pytest.mark.kills
@pytest.mark.parametrize("name", FITS)
def test_a_fit_that_died_after_any_commit_continues(tmp_path: Path, name: str) -> None:
    whole = made(name).fit(X, None, WEIGHTS)
    heard: list[Any] = []
    for n_commits in (1, 2, 4, 7):
        kept = every(f"memory://{tmp_path}/{n_commits}")
        if not killed(lambda k=kept: made(name, **k).fit(X, None, WEIGHTS), n_commits):
            break
        heard.clear()
        again = made(name, **kept, callbacks=(heard.append,))
        same(again.fit(X, None, WEIGHTS, resume=True), whole)
        assert any("resumes from" in e.text for e in heard if isinstance(e, Notice))
        assert sum(isinstance(event, SeedingEnded) for event in heard) < again_starts(again)
    assert n_commits > 2


def again_starts(model: Any) -> int:
    return 1 if model.n_init == "auto" else int(model.n_init)


def test_an_empty_cluster_keeps_its_centre(tmp_path: Path) -> None:
    rows, name = X.copy(), "full, one has gone"
    rows[7] += 1e3  # far from all others: the second of two centres there never gets it
    whole = made(name).fit(rows)
    assert whole.cluster_sizes_[:2].tolist() == [1, 0]
    assert whole.support_[whole.support_clusters_ == 1].tolist() == [7]
    for n_commits in (2, 4):
        kept = every(f"memory://{tmp_path}/{n_commits}")
        assert killed(lambda k=kept: made(name, **k).fit(rows), n_commits)
        same(made(name, **kept).fit(rows, resume=True), whole)


@pytest.mark.parametrize("name", ["full, starts", "heat", "batches, starts", "batches, all"])
def test_a_fit_may_die_again_and_again(tmp_path: Path, name: str) -> None:
    kept = every(str(tmp_path))
    assert killed(lambda: made(name, **kept).fit(X), 1)
    for _ in range(3):
        killed(lambda: made(name, **kept).fit(X, resume=True), 2)
    same(made(name, **kept).fit(X, resume=True), made(name).fit(X))


@pytest.mark.parametrize("name", ["full", "batches", "batches, all"])
def test_a_fit_that_has_ended_continues_with_higher_limits(tmp_path: Path, name: str) -> None:
    kept = {"checkpoint": str(tmp_path)}
    ended = made(name, max_iter=1, n_init=2, **kept).fit(X)
    same(made(name, max_iter=1, n_init=2, **kept).fit(X, resume=True), ended)
    assert ended.stop_reason_ == "max_iter"
    kept = {"checkpoint": str(tmp_path / "one"), "n_init": 1}
    made(name, max_iter=1, **kept).fit(X)
    same(
        made(name, max_iter=4, **kept).fit(X, resume=True), made(name, max_iter=4, n_init=1).fit(X)
    )


def stored(tmp_path: Path) -> str:
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(20, X.shape[1]))
    return url


@pytest.mark.parametrize("name", ["full", "batches, short", "batches, starts"])
def test_out_of_core(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = stored(tmp_path)
    monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", X.nbytes // 2)  # batches come from pools
    whole = made(name).fit(url, None, WEIGHTS)
    for n_commits in (1, 4):
        kept = every(f"memory://{tmp_path}/{n_commits}")
        assert killed(lambda k=kept: made(name, **k).fit(url, None, WEIGHTS), n_commits)
        again = made(name, **kept, engine=dc.LocalEngine(1)).fit(url, None, WEIGHTS, resume=True)
        same(again, whole)
    if name != "full":
        monkeypatch.setattr(minibatch_fit, "ROOM_BYTES", X.nbytes // 3)
        with pytest.raises(CheckpointError, match=r"circumstances\.bytes_read_ahead was"):
            made(name, **kept).fit(url, None, WEIGHTS, resume=True)


@pytest.mark.parametrize("name", ["full", "batches, short", "batches, all"])
def test_sparse_rows_and_those_of_a_matrix(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((300, 30)) * (rng.random((300, 30)) < 0.2)
    kernel = rows @ rows.T
    csr = sparse.csr_matrix(rows, dtype=np.float32)
    csr.data[::7] = 0.0  # stored zeros are stored values
    for which, source, more in (("csr", csr, {}), ("k", kernel, {"kernel": "precomputed"})):
        kept = every(str(tmp_path / which)) | more
        assert killed(lambda k=kept, s=source: made(name, **k).fit(s), 3)
        same(made(name, **kept).fit(source, resume=True), made(name, **more).fit(source))


def test_functions_of_the_caller(tmp_path: Path) -> None:
    more = {"kernel": decay, "kernel_params": {"rate": 0.1}, "truncation": 30}
    kept = every(str(tmp_path)) | more
    assert killed(lambda: made("batches", **kept).fit(X), 4)
    same(made("batches", **kept).fit(X, resume=True), made("batches", **more).fit(X))
    with pytest.raises(CheckpointError, match=r"kernel_params\.rate was 0\.1 and is 0\.2"):
        made("batches", **{**kept, "kernel_params": {"rate": 0.2}}).fit(X, resume=True)


def decay(rows: np.ndarray, others: np.ndarray, rate: float) -> np.ndarray:
    # No matrix product: its last bits may depend on how many rows there are.
    found = np.zeros((len(rows), len(others)))
    for feature in range(rows.shape[1]):
        found += np.abs(rows[:, feature][:, None].astype(float) - others[:, feature])
    return np.exp(-rate * found)


@pytest.mark.parametrize("name", ["full", "batches, short"])
def test_a_fit_of_a_cluster_continues_in_this_process(
    tmp_path: Path, name: str, client: Any
) -> None:
    url, kept = stored(tmp_path), every(str(tmp_path / "kept"))
    assert killed(lambda: made(name, engine=client, **kept).fit(url, None, WEIGHTS), 3)
    resumed = made(name, **kept).fit(url, None, WEIGHTS, resume=True)
    same(resumed, made(name).fit(url, None, WEIGHTS))


def spoil_assigned(arrays: dict[str, np.ndarray]) -> None:
    arrays["state_loop_assigned"][3] = K


def spoil_points(arrays: dict[str, np.ndarray]) -> None:
    arrays["state_made_windows_points"][0] = N


def spoil_sizes(arrays: dict[str, np.ndarray]) -> None:
    arrays["state_made_windows_sizes"][0] += 1


@pytest.mark.parametrize(
    ("name", "spoil", "summary"),
    [
        ("full", spoil_assigned, "'assigned' should be whole numbers from 0 to 4"),
        ("batches", spoil_points, "'points' should be whole numbers from -5 to 499"),
        ("batches", spoil_sizes, "the lengths of its arrays of windows do not match"),
    ],
)
def test_damaged_states_are_refused(
    tmp_path: Path,
    name: str,
    spoil: Callable[[dict[str, np.ndarray]], None],
    summary: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, commit = every(str(tmp_path)), CheckpointFolder.commit

    def spoilt(self: CheckpointFolder, state: Any) -> None:
        state.arrays.update({name: values.copy() for name, values in state.arrays.items()})
        if any(name.endswith(("assigned", "sizes", "factors")) for name in state.arrays):
            spoil(state.arrays)
        commit(self, state)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CheckpointFolder, "commit", spoilt)
        made(name, max_iter=1, n_init=1, **kept).fit(X)
    with pytest.raises(CheckpointError, match=summary):
        made(name, max_iter=1, n_init=1, **kept).fit(X, resume=True)


def test_a_commit_of_windows_takes_at_most_what_the_plan_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from daskcluster.methods.catalogue import ALGORITHMS
    from daskcluster.methods.kernel_kmeans.minibatch.estimator import plan_minibatch_fit

    sizes: list[int] = []
    commit = CheckpointFolder.commit

    def measured(self: CheckpointFolder, state: Any) -> None:
        sizes.append(sum(values.nbytes for values in state.arrays.values()))
        commit(self, state)

    monkeypatch.setattr(CheckpointFolder, "commit", measured)
    entry = ALGORITHMS["mini-batch-kernel"]
    defaults = {each.name: each.default for each in entry.parameters.values()}
    for truncation in (30, None):
        given = {"batch_size": 100, "max_iter": 20, "truncation": truncation}
        plan = plan_minibatch_fit(dc.open_dataset(X), {**defaults, **given, "n_clusters": K})
        sizes.clear()
        made("batches", **given, checkpoint=str(tmp_path)).fit(X)
        assert 0 < max(sizes) <= plan.commit_bytes + 8 * 300 + 4096
