"""The experiments on variance reduced k-means: what is measured and compared, and that it runs small."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.vrkm import sweeps
from tests.benchmarks.vrkm.plots import mean_curve
from tests.benchmarks.vrkm.problems import (
    Problem,
    agreement,
)
from tests.benchmarks.vrkm.programs import PROGRAMS, Outcome, program
from tests.benchmarks.vrkm.published import AGREEMENT, LOSSES, SPEEDUPS
from tests.benchmarks.vrkm.tables import table3, table4


@pytest.fixture(scope="module")
def problem() -> Problem:
    rows = mixture(1500, 4, 6, spread=3.0)
    return Problem("few", "generated", rows, np.arange(1500) % 3, 6)


def test_programs_and_published_figures_have_the_same_names() -> None:
    for table in (SPEEDUPS, LOSSES, AGREEMENT):
        assert tuple(table) == PROGRAMS


def test_every_program_is_followed_to_its_end(problem: Problem) -> None:
    found = {}
    for name in PROGRAMS:
        outcome = program(name)(problem, 0, 1, 0.2)
        found[name] = [outcome]
        # How far a program comes in its time depends on the machine.
        assert len(outcome.seconds) == len(outcome.losses) >= 1
        assert all(b >= a for a, b in pairwise(outcome.seconds))
        assert outcome.losses[-1] == pytest.approx(outcome.loss, rel=1e-5)
        assert outcome.time_to(outcome.losses[0]) == outcome.seconds[0]
        assert len(outcome.agreement) == 3
    table = table3([problem], {"few": found})
    assert [row[2] for row in table.rows] == list(PROGRAMS)
    assert all(len(row) == len(table.header) for row in table.rows)
    (other,) = table4([problem], {"few": found})
    assert all(len(row) == len(other.header) for row in other.rows)


def test_agreement_is_that_of_the_best_matching() -> None:
    classes = np.array([0, 0, 0, 1, 1, 1])
    assert agreement(classes, 1 - classes) == (1.0, pytest.approx(1.0), 1.0)
    accuracy, information, purity = agreement(classes, np.arange(6))
    assert accuracy == pytest.approx(2 / 6)
    assert 0 < information < 1
    assert purity == 1.0


def test_sweeps_are_kept_and_read_again(problem: Problem, tmp_path, monkeypatch) -> None:
    files = RunFiles(tmp_path, {}, Outcome)
    settings = Settings(quick=True, threads=1)
    first = sweeps.partitions(problem, files, settings)
    monkeypatch.setattr(sweeps, "variance_reduced", None)
    assert sweeps.partitions(problem, files, settings).rows == first.rows
    assert all(len(row) == len(first.header) for row in first.rows)


def test_a_mean_curve_starts_where_the_last_one_starts() -> None:
    x, y = mean_curve([([0.0, 1.0, 4.0], np.array([3.0, 2.0, 0.0])), ([2.0, 8.0], np.ones(2))])
    assert (x[0], x[-1]) == (pytest.approx(2.0), pytest.approx(8.0))
    assert y[0] == pytest.approx((4 / 3 + 1) / 2)
    assert y[-1] == pytest.approx(0.5)
