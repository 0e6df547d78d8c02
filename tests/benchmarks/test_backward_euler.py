"""The reproduction of stochastic backward Euler on small data: what is kept, counted and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.benchmarks import backward_euler
from tests.benchmarks.backward_euler import CELLS, objectives, table_of
from tests.benchmarks.euler_sets import load
from tests.benchmarks.harness.settings import Settings


def settings(folder: Path, seeds: int = 3) -> Settings:
    return Settings(quick=True, scratch=folder, images=folder / "images", seeds=seeds, keep=True)


def test_every_start_is_kept_and_found_again(tmp_path, monkeypatch):
    data = load("iris", settings(tmp_path))
    cell = CELLS["iris"][1]
    asked = settings(tmp_path)
    found = objectives(data, cell, asked)
    assert found.shape == (3,)
    more = objectives(data, cell, settings(tmp_path, seeds=13))
    assert np.array_equal(more[:3], found)
    files = tmp_path.rglob("starts/iris/*.json")
    counts = sorted(len(json.loads(file.read_text())) for file in files)
    assert counts == [3, 3, 10]  # no more than were asked for
    monkeypatch.setitem(backward_euler.PROGRAMS, "SBE", None)
    assert np.array_equal(objectives(data, cell, asked), found)
    assert len(objectives(data, cell, settings(tmp_path, seeds=10))) == 10


def test_on_iris_the_start_does_not_matter(tmp_path):
    table = table_of(load("iris", settings(tmp_path)), settings(tmp_path, seeds=20))
    em, euler = ([float(value) for value in row[4:7]] for row in table.rows)
    assert em[1] > 0.45
    assert euler[1] < 0.275
