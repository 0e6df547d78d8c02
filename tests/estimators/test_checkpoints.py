"""A fit that is stopped at any moment continues to the bits of one that was not."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.errors import CheckpointError, InvalidParameterError
from daskcluster.estimators import checkpoints
from daskcluster.events import IterationEnded, Notice, SeedingEnded
from daskcluster.storage.checkpoint import CheckpointFolder
from tests.estimators.interruption import Killed, same
from tests.laws.data import CASES, case


def killer(after: int) -> Any:
    count = [0]

    def hear(event: Any) -> None:
        count[0] += isinstance(event, IterationEnded)
        if count[0] == after:
            raise Killed

    return hear


def rows(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(size=(3000, 5)).astype(np.float32)


SETTINGS = {
    "k-means++": {},
    "given centres": {"init": rows(9)[:20]},
    "fresh seed": {"random_state": None, "init": "random", "n_init": 1},
    "restarts": {"init": "random", "n_init": 3, "max_iter": 12},
    "lloyd": {"algorithm": "lloyd"},
    "cosine": {"metric": "cosine"},
}


@pytest.mark.parametrize("after", [1, 11])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_killed_fit_continues_to_the_same_bits(tmp_path: Path, name: str, after: int) -> None:
    X = rows()
    parameters = {"random_state": 3, "tol": 0.0, **SETTINGS[name]}
    kept = {**parameters, "checkpoint": str(tmp_path), "checkpoint_every": 3}
    with pytest.raises(Killed):
        dc.KMeans(20, **kept, callbacks=(killer(after),)).fit(X)
    resumed = dc.KMeans(20, **kept).fit(X, resume=True)
    if parameters["random_state"] is None:
        again = dc.KMeans(20, **kept).fit(X, resume=True)  # its last commit is the end
        same(resumed, again)
        return
    same(resumed, dc.KMeans(20, **parameters).fit(X))


def moments_of_commits(monkeypatch: pytest.MonkeyPatch, folder: Path, **given: Any) -> list[str]:
    """Return when a fit of 25 iterations commits: after the seeding, or after which iteration."""
    done, moments, commit = [0, False], [], CheckpointFolder.commit

    def hear(event: Any) -> None:
        done[0] += isinstance(event, IterationEnded)
        done[1] |= isinstance(event, SeedingEnded)

    def keep(*arguments: Any) -> None:
        assert done[1]
        moments.append(done[0])
        commit(*arguments)

    monkeypatch.setattr(CheckpointFolder, "commit", keep)
    dc.KMeans(
        30, random_state=0, tol=0.0, max_iter=25, checkpoint=str(folder), callbacks=(hear,), **given
    ).fit(np.random.default_rng(2).random((6000, 3), np.float32))
    assert done[0] == 25
    return moments


def test_commits_follow_the_seeding_and_every_ten_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 1e9)
    assert moments_of_commits(monkeypatch, tmp_path) == [0, 10, 20, 25]


def test_long_iterations_are_committed_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 0.0

        @classmethod
        def monotonic(cls) -> float:
            cls.now += 10.0  # an iteration asks once
            return cls.now

    monkeypatch.setattr(checkpoints, "time", Clock)
    moments = moments_of_commits(monkeypatch, tmp_path)
    steps = {after - before for before, after in pairwise(moments)}
    assert moments[0] == 0
    assert moments[-1] == 25
    assert max(steps) <= 3


def test_a_fit_that_has_ended_is_there_at_once(tmp_path: Path) -> None:
    X = rows()
    kept = {"random_state": 0, "checkpoint": str(tmp_path), "checkpoint_every": 1}
    first = dc.KMeans(6, **kept).fit(X)
    again = dc.KMeans(6, **kept).fit(X, resume=True)
    same(first, again)
    assert again.passes_ <= first.passes_ + 1


def test_a_fit_continues_with_a_higher_limit_of_iterations(tmp_path: Path) -> None:
    X = rows()
    kept = {"random_state": 0, "tol": 0.0, "checkpoint": str(tmp_path), "checkpoint_every": 1}
    dc.KMeans(6, max_iter=4, **kept).fit(X)
    same(
        dc.KMeans(6, max_iter=9, **kept).fit(X, resume=True),
        dc.KMeans(6, max_iter=9, random_state=0, tol=0.0).fit(X),
    )


def test_without_commits_the_fit_starts_anew_with_a_notice(tmp_path: Path) -> None:
    heard: list[Any] = []
    model = dc.KMeans(6, random_state=0, checkpoint=str(tmp_path), callbacks=(heard.append,))
    same(model.fit(rows(), resume=True), dc.KMeans(6, random_state=0).fit(rows()))
    assert any("There is no checkpoint" in e.text for e in heard if isinstance(e, Notice))


@pytest.mark.parametrize(
    ("X", "changes", "message"),
    [
        (rows(), {"n_clusters": 7}, "parameters.n_clusters was 6 and is 7"),
        (rows(1), {}, "data.first_and_last_rows was"),
        (rows()[:2000], {}, "data.rows was 3000 and is 2000"),
        (rows(), {"init": rows()[:6]}, "parameters.init was 'auto' and is"),
    ],
)
def test_other_data_or_parameters_are_refused(
    tmp_path: Path, X: np.ndarray, changes: dict[str, Any], message: str
) -> None:
    kept = {"n_clusters": 6, "random_state": 0, "checkpoint": str(tmp_path)}
    dc.KMeans(**kept).fit(rows())
    with pytest.raises(CheckpointError, match=message):
        dc.KMeans(**{**kept, **changes}).fit(X, resume=True)


def test_a_damaged_commit_falls_back_to_the_one_before(tmp_path: Path) -> None:
    X = rows()
    kept = {"random_state": 0, "tol": 0.0, "checkpoint": str(tmp_path), "checkpoint_every": 2}
    with pytest.raises(Killed):
        dc.KMeans(6, **kept, callbacks=(killer(9),)).fit(X)
    heads = sorted(tmp_path.glob("*/*/zarr.json"))
    assert len(heads) == 2
    damaged = heads[-1].parent / "state_centres" / "c" / "0" / "0"
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    with pytest.warns(RuntimeWarning, match="Skipping a checkpoint"):
        resumed = dc.KMeans(6, **kept).fit(X, resume=True)
    same(resumed, dc.KMeans(6, random_state=0, tol=0.0).fit(X))


def test_damaged_commits_alone_are_an_error(tmp_path: Path) -> None:
    kept = {"random_state": 0, "checkpoint": str(tmp_path)}
    dc.KMeans(6, **kept).fit(rows())
    for head in tmp_path.glob("*/*/zarr.json"):
        head.write_text("{")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckpointError, match="are damaged"):
            dc.KMeans(6, **kept).fit(rows(), resume=True)


def test_resume_needs_a_place() -> None:
    with pytest.raises(InvalidParameterError, match="resume=True needs checkpoint="):
        dc.KMeans(2).fit(rows(), resume=True)


@pytest.mark.parametrize("name", CASES)
def test_one_engine_continues_where_another_was_killed(name: str, tmp_path: Path) -> None:
    X, weights = case(name, 4000)
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(500, X.shape[1]))
    kept = {"random_state": 1, "tol": 0.0, "checkpoint": f"memory://checkpoints/{name}"}
    with pytest.raises(Killed):
        dc.KMeans(5, **kept, checkpoint_every=2, callbacks=(killer(5),)).fit(url, None, weights)
    resumed = dc.KMeans(5, **kept, engine=dc.LocalEngine(1)).fit(url, None, weights, resume=True)
    same(resumed, dc.KMeans(5, random_state=1, tol=0.0).fit(url, None, weights))
