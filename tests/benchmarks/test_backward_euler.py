"""The reproduction of stochastic backward Euler on small data: what is kept, counted and drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import backward_euler, euler_plots
from tests.benchmarks.backward_euler import CELLS, EXAMINED, Cell, objectives, table_of
from tests.benchmarks.euler_sets import EulerSet, load
from tests.benchmarks.harness.settings import Settings


def settings(folder: Path, seeds: int = 3) -> Settings:
    return Settings(quick=True, scratch=folder, images=folder / "images", seeds=seeds, keep=True)


def test_every_start_is_kept_and_found_again(tmp_path, monkeypatch):
    data = load("iris", settings(tmp_path))
    cell = CELLS["iris"][1]
    asked = settings(tmp_path)
    found = objectives(data, cell, asked)
    assert found.shape == (3,)
    monkeypatch.setitem(backward_euler.PROGRAMS, "SBE", None)
    assert np.array_equal(objectives(data, cell, asked), found)
    assert len(objectives(data, cell, settings(tmp_path, seeds=10))) == 10


def test_on_iris_the_start_does_not_matter(tmp_path):
    table = table_of(load("iris", settings(tmp_path)), settings(tmp_path, seeds=20))
    em, euler = ([float(value) for value in row[4:7]] for row in table.rows)
    assert em[1] > 0.45
    assert euler[1] < 0.275


def test_cells_have_names_of_their_own():
    for cells in (*CELLS.values(), *EXAMINED.values()):
        assert len({cell.name for cell in cells}) == len(cells)
    assert Cell(8, "SBE", 1000, 150, 10).name == "k8-SBE-1000-150-10"


def test_stand_ins_take_the_place_of_missing_pictures(tmp_path):
    asked = settings(tmp_path)
    rows = load("mnist", asked)
    assert rows.rows.shape == (2400, 784)
    assert "generated" in rows.source
    digits = load("digits", asked)
    assert digits.rows.shape == (2400, 784)
    assert abs(digits.rows[:300].std(axis=0).mean() - 0.2) < 0.01


@pytest.mark.filterwarnings("ignore")
def test_plots_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(0)
    data = EulerSet("small", "made", random.normal(size=(200, 3)).astype(np.float32))
    asked = settings(tmp_path)
    euler_plots.histograms("small", {"EM 5": np.array([1.0, 2.0]), "SBE 3": np.ones(2)}, asked)
    euler_plots.jumps(data, Cell(3, "SBE", 50, 25, 2), asked)
    table, _ = euler_plots.two_dimensions(asked)
    assert table.rows[-1][-1] == "20 of 20"
    assert len(list((tmp_path / "images").glob("*.svg"))) == 3
