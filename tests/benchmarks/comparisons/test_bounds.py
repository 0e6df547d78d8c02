"""The comparison of bounds on small data, and its plots: what it checks, writes and refuses."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.comparisons import bounds
from tests.benchmarks.comparisons.bounds_problems import Problem, missing, problems
from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import Curve, Panel, draw
from tests.benchmarks.harness.race import Outcome
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.tiles import BOUNDS_SPARE


@pytest.fixture
def problem() -> Problem:
    rows = mixture(3000, 4, 3, spread=8.0)
    return Problem("small", rows, rows[:6].copy(), max_iter=100, plotted=True)


@pytest.fixture
def outcomes(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> dict[str, Outcome]:
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    return bounds.compete(problem, Settings(threads=1, repeats=1))


@pytest.fixture
def panels() -> list[Panel]:
    return [Panel("data", "share", [Curve("lloyd", np.ones(5)), Curve("auto", np.ones(300))])]


# -- in memory --------------------------------------------------------------------------------------


def test_quick_problems_are_small_and_start_from_rows_of_theirs():
    found = [make() for _, make in problems(Settings(quick=True))]
    assert sum(problem.without_structure for problem in found) == 2
    for problem in found:
        assert problem.rows.nbytes < 30e6
        assert problem.rows.dtype == problem.centres.dtype == np.float32
        assert len(np.unique(problem.centres, axis=0)) == problem.k
        same = (problem.rows[:, None, :2] == problem.centres[None, :3, :2]).all(axis=2)
        assert same.any(axis=0).all()


def test_sets_that_are_not_there_are_named(tmp_path: Path):
    assert [text.split()[0] for text in missing(["MNIST"])] == ["birch2", "worms_2"]
    rows = np.random.default_rng(0).normal(size=(2000, 2)) * [4.0, 2.0]
    np.savez(tmp_path / "birch2.npz", X=rows.astype(np.float32))
    there = dict(problems(Settings(quick=True, data=tmp_path)))
    assert [text.split()[0] for text in missing(there)] == ["worms_2"]
    found = there["birch2"]()
    spread = found.rows.std(axis=0)
    assert (spread**2).mean() == pytest.approx(1.0, rel=1e-3)
    assert spread[0] / spread[1] == pytest.approx(2.0, rel=0.2)


def test_ours_agree_and_others_reach_the_same(problem: Problem, outcomes: dict[str, Outcome]):
    bounds.check_bits("small", outcomes)
    same, _ = bounds.compare_quality(problem, outcomes)
    assert set(same) == {"scikit-learn lloyd", "scikit-learn elkan"}
    assert outcomes["lloyd"].value.touched.tolist() == [1.0] * outcomes["lloyd"].value.n_iter
    last = outcomes["hamerly"].value.touched[-1]
    assert last < 0.5 if BOUNDS_SPARE else last == 1.0


@pytest.mark.parametrize("name", ["hamerly", "yinyang", "elkan", "auto"])
def test_a_bit_that_differs_is_refused(name: str, outcomes: dict[str, Outcome]):
    other = replace(outcomes[name].value, digest="another")
    outcomes[name] = replace(outcomes[name], value=other)
    with pytest.raises(RuntimeError, match=f"small: {name} ended after"):
        bounds.check_bits("small", outcomes)


def test_times_of_other_optima_are_not_compared(problem: Problem, outcomes: dict[str, Outcome]):
    name = "scikit-learn lloyd"
    centres, n_iter = outcomes[name].value
    outcomes[name] = replace(outcomes[name], value=(centres + np.float32(0.5), n_iter))
    same, remarks = bounds.compare_quality(problem, outcomes)
    assert not same[name]
    assert any("not compared" in remark and name in remark for remark in remarks)
    seconds = {key: outcome.median for key, outcome in outcomes.items()}
    one = {"name": "MNIST", "shape": "3", "seconds": seconds, "same": same, "noise": False}
    assert bounds._ratios(one)[5] is None
    assert bounds._read_mnist({"MNIST": one}) is None
    assert bounds._read_mnist({"MNIST": {**one, "same": {name: True}}}) is not None


def test_section_and_plot_are_made_of_records(problem: Problem, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    settings = Settings(repeats=1, threads=1, images=tmp_path / "images")
    record = json.loads(json.dumps(bounds.measure(lambda: problem, settings)))
    *tables, figure = bounds.show({"small": record}, settings)
    assert "| small | 3,000, 4, 6 |" in tables[0].markdown()
    assert figure.path == "images/bounds_touched.svg"
    plot = (tmp_path / "images" / "bounds_touched.svg").read_text()
    assert all(name in plot for name in ("hamerly", "yinyang", "elkan", "auto", "small, k = 6"))


# -- plots ------------------------------------------------------------------------------------------


def test_plots_are_small_and_the_same_each_time(panels: list[Panel], tmp_path: Path):
    for folder in ("one", "two"):
        found = draw("plot.svg", "what", panels, tmp_path / folder)
        assert found == Figure(f"{folder}/plot.svg", "what")
    one, two = ((tmp_path / name / "plot.svg").read_bytes() for name in ("one", "two"))
    assert one == two
    assert len(one) < 30_000


def test_plots_are_left_out_with_a_reason(panels: list[Panel], tmp_path: Path, monkeypatch):
    found = draw("plot.svg", "what", panels, None)
    assert isinstance(found, Note)
    assert "--output" in found.text
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = draw("plot.svg", "what", panels, tmp_path)
    assert isinstance(found, Note)
    assert "[plots]" in found.text
