"""The experiments on variance reduced k-means: what is measured and compared, and that it runs small."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import pytest

from tests.benchmarks import vrkm
from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.vrkm import sweeps
from tests.benchmarks.vrkm.plots import draw_losses, mean_curve
from tests.benchmarks.vrkm.problems import (
    Problem,
    agreement,
    mnist_pairs,
    pairs,
    problems,
    sift_like,
)
from tests.benchmarks.vrkm.programs import AGAIN, PROGRAMS, Outcome, program, variance_reduced
from tests.benchmarks.vrkm.published import AGREEMENT, LOSSES, SPEEDUPS
from tests.benchmarks.vrkm.tables import table3, table4
from tests.benchmarks.vrkm.uncorrected import losses
from tests.benchmarks.vrkm.unguarded import unguarded_losses


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


def test_large_sets_measure_on_a_sample_and_take_no_more_time_than_batch(
    monkeypatch, tmp_path
) -> None:
    rows = mixture(1500, 4, 6, spread=3.0)
    large = Problem("few", "generated", rows, None, 6)
    assert (large.is_large, large.budget, len(large.validation)) == (False, 1.5, 1500)
    monkeypatch.setattr(sys.modules[Problem.__module__], "LARGE", 1500)
    assert (large.is_large, large.budget, len(large.validation)) == (True, 1.0, 150)
    found = program("mini-batch")(large, 0, 1, 0.05)
    assert found.losses[-1] == found.loss
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    settings = Settings(seeds=2, threads=1, scratch=tmp_path)
    runs = vrkm._compete(large, vrkm.files_of(large, settings), settings)
    assert {name: len(made) for name, made in runs.items()} == {
        name: 1 + (name in AGAIN) for name in PROGRAMS
    }
    assert all(len(row) == 15 for row in table3([large], {"few": runs}).rows)


def test_agreement_is_that_of_the_best_matching() -> None:
    classes = np.array([0, 0, 0, 1, 1, 1])
    assert agreement(classes, 1 - classes) == (1.0, pytest.approx(1.0), 1.0)
    accuracy, information, purity = agreement(classes, np.arange(6))
    assert accuracy == pytest.approx(2 / 6)
    assert 0 < information < 1
    assert purity == 1.0


def test_without_correction_the_loss_does_not_fall_as_far(problem: Problem) -> None:
    rate = problem.k / len(problem.rows)
    plain = losses(problem, 0, 4, rate=rate)
    corrected = program("vrkm++")(problem, 0, 1, 0.2).losses
    assert plain[0] == pytest.approx(corrected[0], rel=1e-6)
    assert min(plain[1:]) > corrected[1]


def test_sweeps_are_kept_and_read_again(problem: Problem, tmp_path, monkeypatch) -> None:
    files = RunFiles(tmp_path, {}, Outcome)
    settings = Settings(quick=True, threads=1)
    first = sweeps.partitions(problem, files, settings)
    monkeypatch.setattr(sweeps, "variance_reduced", None)
    assert sweeps.partitions(problem, files, settings).rows == first.rows
    assert all(len(row) == len(first.header) for row in first.rows)


def test_descriptors_are_integers_of_a_byte() -> None:
    rows = sift_like(Settings(quick=True)).rows
    assert rows.dtype == np.float32
    assert rows.min() == 0
    assert rows.max() <= 255
    assert np.array_equal(rows, np.rint(rows))
    with pytest.raises(ValueError, match="some of mnist"):
        next(problems(Settings(sets=("other",))))


def test_pairs_use_each_digit_once_and_have_two_digits(tmp_path) -> None:
    pictures = np.arange(12 * 4, dtype=np.uint8).reshape(12, 4)
    digits = np.arange(12) % 10
    rows, classes = pairs(pictures, digits)
    assert rows.shape == (6, 8)
    assert sorted(rows[:, ::4].ravel()) == list(range(0, 48, 4))
    assert np.array_equal(classes, 10 * digits[rows[:, 0] // 4] + digits[rows[:, 4] // 4])
    np.savez(tmp_path / "mnist.npz", X=np.full((4000, 784), 255, np.uint8), y=np.arange(4000) % 10)
    kept, made = (mnist_pairs(Settings(quick=True, data=data)) for data in (tmp_path, None))
    assert kept.shape == made.shape == "2,000 x 1,568, 20"
    assert (kept.source, kept.rows.dtype, kept.rows.max()) == ("real", np.float32, 1.0)
    assert set(kept.classes) <= set(range(100))
    assert made.classes is None


def test_figures_are_tables_and_a_plot(problem: Problem, tmp_path) -> None:
    files = RunFiles(tmp_path, {}, Outcome)
    settings = Settings(quick=True, threads=1, images=tmp_path / "images")
    *tables, plot = sweeps.figures(problem, files, settings)
    for table in tables:
        assert isinstance(table, Table)
        assert all(len(row) == len(table.header) for row in table.rows)
    assert isinstance(plot, Figure)
    assert (tmp_path / plot.path).exists()


def test_losses_are_drawn_by_seconds_and_by_counted_distances(tmp_path) -> None:
    runs = {
        name: [Outcome([0.0, 1.0, 2.0 + i], [3.0, 2.0, 1.0], 1.0, 2.0, 2, [], {}, counted)]
        for i, name in enumerate(PROGRAMS)
        for counted in [[] if name == "sgd" else [0.0, 1.0, 2.0]]
    }
    plot = draw_losses({"few": runs, "others": runs}, tmp_path / "images")
    assert isinstance(plot, Figure)
    drawn = (tmp_path / plot.path).read_text()
    assert all(f">{name}<" in drawn or f"<!-- {name} -->" in drawn for name in PROGRAMS)
    assert isinstance(draw_losses({"few": runs}, None), Note)


def test_a_mean_curve_starts_where_the_last_one_starts() -> None:
    x, y = mean_curve([([0.0, 1.0, 4.0], np.array([3.0, 2.0, 0.0])), ([2.0, 8.0], np.ones(2))])
    assert (x[0], x[-1]) == (pytest.approx(2.0), pytest.approx(8.0))
    assert y[0] == pytest.approx((4 / 3 + 1) / 2)
    assert y[-1] == pytest.approx(0.5)


def test_without_the_guard_nothing_else_changes(problem: Problem) -> None:
    rate = problem.k / len(problem.rows)
    free = unguarded_losses(problem, 0, 1, 4, rate=rate)
    guarded = variance_reduced(problem, 0, 1, None, max_iter=4, learning_rate=rate)
    assert guarded.facts["went_back"] == 0
    assert free == pytest.approx(guarded.losses, rel=1e-6)
