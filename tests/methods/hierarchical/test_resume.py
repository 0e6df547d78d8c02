"""Hierarchical fits that die between groups of cells, or later, go on to the bits of those that did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.errors import CheckpointError
from daskcluster.estimators import checkpoints
from daskcluster.methods.hierarchical import estimator as hierarchical_fit
from daskcluster.storage.checkpoint import CheckpointFolder
from tests.estimators.interruption import killed, same
from tests.laws.data import case

pytestmark = pytest.mark.usefixtures("divided")

N, K = 900, 60
X, WEIGHTS = case("weighted float32", N)


def made(**more: Any) -> Any:
    return dc.HierarchicalKMeans(K, **{"random_state": 3, **more})


@pytest.fixture(params=["memory", "disk"])
def source(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rows in memory, or stored ones whose cells are gathered in groups, with a commit after each."""
    if request.param == "memory":
        return X
    monkeypatch.setattr(hierarchical_fit, "n_groups", lambda n_bytes: 5)
    monkeypatch.setattr(hierarchical_fit, "_SEGMENT_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(20, X.shape[1]))
    return url


@pytest.mark.parametrize("more", [{}, {"refine_iter": 4, "metric": "cosine"}, {"refine": False}])
def test_a_fit_that_died_after_any_commit_continues(
    tmp_path: Path, source: Any, more: dict[str, Any]
) -> None:
    whole = made(**more).fit(source, None, WEIGHTS)
    n_commits, engine = 0, dc.LocalEngine(1)
    while True:
        n_commits += 1 if isinstance(source, np.ndarray) else 2
        kept = {"checkpoint": f"memory://{tmp_path}/{n_commits}", "checkpoint_every": 1, **more}
        begin = made(**kept, engine=engine)
        if not killed(lambda m=begin: m.fit(source, None, WEIGHTS), n_commits):
            break
        same(made(**kept).fit(source, None, WEIGHTS, resume=True), whole)
    assert n_commits > (2 if isinstance(source, np.ndarray) else 4)


def test_cells_that_are_done_are_not_done_again(
    tmp_path: Path, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, fitted = {"checkpoint": str(tmp_path / "kept"), "engine": dc.LocalEngine(1)}, []
    fit_cells = hierarchical_fit.fit_cells

    def noted(dataset: Any, cells: Any, parameters: Any, span: Any, labels: Any = None) -> Any:
        fitted.extend(range(*span))
        return fit_cells(dataset, cells, parameters, span, labels)

    monkeypatch.setattr(hierarchical_fit, "fit_cells", noted)
    n_commits = 2 if isinstance(source, np.ndarray) else 4
    assert killed(lambda: made(**kept).fit(source), n_commits)
    before = len(fitted)
    model = made(**kept).fit(source, resume=True)
    assert before > 0
    assert fitted == list(range(len(model.quotas_)))


def test_limits_of_the_refinement_and_of_cells(tmp_path: Path) -> None:
    kept = {"checkpoint": str(tmp_path), "refine_iter": 6, "tol": 0.0}
    assert killed(lambda: made(**kept, checkpoint_every=2).fit(X), 3)
    with pytest.raises(CheckpointError, match=r"iterations_in_cells was 100 and is 90"):
        made(**kept, max_iter=90).fit(X, resume=True)
    same(made(**kept).fit(X, resume=True), made(refine_iter=6, tol=0.0).fit(X))


def test_fewer_distinct_rows_than_clusters(tmp_path: Path) -> None:
    few = np.repeat(X[:20], 10, axis=0)
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
    assert killed(lambda: made(**kept).fit(few), 2)
    with pytest.warns(UserWarning, match="distinct clusters"):
        same(made(**kept).fit(few, resume=True), made().fit(few))


def test_a_fit_of_a_cluster_continues_in_this_process(
    tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hierarchical_fit, "n_groups", lambda n_bytes: 5)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    url, kept = str(tmp_path / "rows.zarr"), {"checkpoint": str(tmp_path / "kept")}
    zarr.create_array(url, data=X, chunks=(20, X.shape[1]))
    assert killed(lambda: made(engine=client, **kept).fit(url), 3)
    same(made(**kept).fit(url, resume=True), made().fit(url))


def test_states_with_cells_of_other_rows_are_refused(tmp_path: Path) -> None:
    kept, commit = {"checkpoint": str(tmp_path)}, CheckpointFolder.commit

    def spoilt(self: CheckpointFolder, state: Any) -> None:
        # A copy: the fit that continues has the other one.
        sizes = state.arrays["state_sizes"].copy()
        sizes[0] += 1
        state.arrays["state_sizes"] = sizes
        commit(self, state)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CheckpointFolder, "commit", spoilt)
        made(**kept).fit(X)
    with pytest.raises(CheckpointError, match="its cells are not those of these rows"):
        made(**kept).fit(X, resume=True)
