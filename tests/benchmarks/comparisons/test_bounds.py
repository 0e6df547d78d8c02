"""The comparison of bounds on small data, and its plots: what it checks, writes and refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.benchmarks.comparisons import bounds
from tests.benchmarks.comparisons.bounds_problems import Problem
from tests.benchmarks.harness.race import Outcome
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.tiles import BOUNDS_SPARE


@pytest.fixture(scope="module")
def problem() -> Problem:
    rows = mixture(3000, 4, 3, spread=8.0)
    return Problem("small", rows, rows[:6].copy(), max_iter=100, plotted=True)


@pytest.fixture(scope="module")
def outcomes(problem: Problem) -> dict[str, Outcome]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.benchmarks.harness.race.REST", 0.0)
        return bounds.compete(problem, Settings(threads=1, repeats=1))


def test_ours_agree_and_others_reach_the_same(problem: Problem, outcomes: dict[str, Outcome]):
    bounds.check_bits("small", outcomes)
    same, _ = bounds.compare_quality(problem, outcomes)
    assert set(same) == {"scikit-learn lloyd", "scikit-learn elkan"}
    assert outcomes["lloyd"].value.touched.tolist() == [1.0] * outcomes["lloyd"].value.n_iter
    last = outcomes["hamerly"].value.touched[-1]
    assert last < 0.5 if BOUNDS_SPARE else last == 1.0
    for name in ("hamerly", "yinyang", "elkan", "auto"):
        other = replace(outcomes[name].value, digest="another")
        changed = {**outcomes, name: replace(outcomes[name], value=other)}
        with pytest.raises(RuntimeError, match=f"small: {name} ended after"):
            bounds.check_bits("small", changed)


def test_times_of_other_optima_are_not_compared(problem: Problem, outcomes: dict[str, Outcome]):
    name = "scikit-learn lloyd"
    centres, n_iter = outcomes[name].value
    worse = replace(outcomes[name], value=(centres + np.float32(0.5), n_iter))
    outcomes = {**outcomes, name: worse}
    same, remarks = bounds.compare_quality(problem, outcomes)
    assert not same[name]
    assert any("not compared" in remark and name in remark for remark in remarks)
    seconds = {key: outcome.median for key, outcome in outcomes.items()}
    one = {"name": "MNIST", "shape": "3", "seconds": seconds, "same": same, "noise": False}
    assert bounds._ratios(one)[5] is None
    assert bounds._read_mnist({"MNIST": one}) is None
    assert bounds._read_mnist({"MNIST": {**one, "same": {name: True}}}) is not None
