"""Workers, schedulers and clients are killed at random moments; results stay the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fits import Fit
from tests.faults.summary import summary, tables
from tests.faults.trials import KINDS, Arena, Outcome, Plan, plans, unclean
from tests.faults.works import WORKS

IN_CI = ("auto", "nested")
MANY = {"worker": 8, "client": 8, "scheduler": 4}
FEW = slice(2, 6)
"""The trials that run by default: early and late kills of one worker and of two, supervised or not."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(tmp_path_factory.mktemp("trials")) as place:
        yield place


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "chosen", [FEW, pytest.param(slice(None), marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_killed_at_random_moments(place: Arena, kind: str, chosen: slice) -> None:
    drawn = list(plans(MANY[kind], 3, IN_CI, [kind], place.n_workers))[chosen]
    outcomes = [place.run(plan) for plan in drawn]
    found = summary(outcomes)["all"]
    assert [outcome.trouble for outcome in outcomes if outcome.trouble] == []
    assert found["trials"] >= len(drawn) // 2  # a fit may end before its kill
    assert found["recovered"] == found["trials"]
    assert found["wrong"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_algorithm_is_killed_in_every_way(place: Arena) -> None:
    outcomes = [place.run(plan) for plan in plans(3 * len(WORKS), 4, WORKS, KINDS, 3)]
    assert [outcome.trouble for outcome in outcomes if outcome.trouble] == []
    found = summary(outcomes)["all"]
    assert found["recovered"] == found["trials"] > 2 * len(WORKS)
    assert found["wrong"] == 0


def test_a_seed_decides_every_trial() -> None:
    first = list(plans(60, 1, WORKS, KINDS, 3))
    assert first == list(plans(60, 1, WORKS, KINDS, 3))
    assert first[:20] == list(plans(20, 1, WORKS, KINDS, 3))
    assert first != list(plans(60, 2, WORKS, KINDS, 3))
    assert {(p.kind, p.algorithm) for p in first} >= {(k, a) for k in KINDS for a in WORKS}
    assert {len(p.victims) for p in first if p.kind == "worker"} == {1, 2}
    assert all(0 < p.moment < 1 for p in first)


def test_trials_are_counted_by_their_outcome() -> None:
    plan = Plan(0, "worker", "auto", 0.5, (1,))
    good = Outcome(plan, recovered=True, right=True, undisturbed=2.0, recovery=1.0)
    wrong = Outcome(
        plan, recovered=True, right=False, undisturbed=2.0, recovery=3.0, trouble="other bits"
    )
    lost = Outcome(plan, undisturbed=2.0, trouble="it hangs")
    found = summary([good, wrong, lost, Outcome(plan, landed=False)])
    assert (found["all"]["trials"], found["all"]["recovered"], found["all"]["wrong"]) == (3, 2, 1)
    assert (found["missed"], len(found["troubles"])) == (1, 2)
    assert (found["all"]["recovery_median"], found["all"]["recovery_worst"]) == (2.0, 3.0)
    assert "| **all** | 3 | 2 | 1 | 0 | 2.0 | 2.0 | 3.0 |" in tables(found)[0].markdown()


def test_how_a_fit_without_its_scheduler_should_end(tmp_path: Path) -> None:
    fit = Fit("auto", tmp_path, tmp_path)
    assert unclean(1, "Error: the scheduler no longer answers", fit) == ""
    assert "exit code 0" in unclean(0, "", fit)
    assert "exit code 1" in unclean(1, "Traceback (most recent call last):", fit)
    commit = fit.checkpoint / "0" / "1"
    commit.mkdir(parents=True)
    (commit / "zarr.json").touch()
    assert "does not name the checkpoint" in unclean(1, "Error: it is gone", fit)
    assert unclean(1, f"Error: it is gone; resume from {fit.checkpoint}", fit) == ""
