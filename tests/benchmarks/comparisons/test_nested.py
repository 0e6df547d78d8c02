"""Nested mini-batches against others: what the runs of all seeds come to."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.comparisons import nested
from tests.benchmarks.harness.energy import Rows, Run
from tests.benchmarks.harness.rows import MNIST, mixture
from tests.benchmarks.harness.settings import Settings

SETTINGS = Settings(threads=1, seeds=2, quick=True)


def run_of(seconds: list[float], energies: list[float], fit_seconds: float = 9.0) -> Run:
    counts = list(range(len(seconds)))
    return Run(seconds, [10.0 * i for i in counts], energies, counts, fit_seconds, ended=True)


def records(source: str = MNIST) -> nested.Records:
    runs = {
        "nested": [run_of([0.0, 1.0], [9.0, 4.0]), run_of([0.0, 1.0], [9.0, 4.02])],
        nested.PEER: [run_of([0.0, 20.0], [9.0, 4.01]), run_of([0.0, 30.0], [9.0, 8.0])],
        nested.KMEANS: [run_of([0.0, 5.0], [9.0, 4.0]), run_of([0.0, 5.0], [9.0, 4.2])],
        nested.LLOYD: [run_of([0.0, 5.0], [9.0, 4.0], 27.0)] * 2,
    }
    return {
        f"mnist, seed {i}": {
            "rows": "mnist",
            "source": source,
            "shape": "10 + 5, 2, 50",
            "runs": {name: asdict(found[i]) for name, found in runs.items()},
        }
        for i in range(2)
    }


def test_times_of_seeds_that_fail_are_bounds():
    times, end = nested.show(records(), SETTINGS)
    assert times.rows[0][2:8] == ["4", "1", "2 of 2", "> 30", "1 of 2", ">= 25.0"]
    assert end.rows[0][4] == "3.00"
    assert end.rows[0][-2] == "-0.64"


def test_targets_are_read_from_mnist_alone():
    readings = [target.read(records()) for target in nested.TARGETS]
    assert [reading.text for reading in readings] == [">= 25.0", "3.00"]
    assert all(reading.met for reading in readings)
    assert [target.read(records("generated")) for target in nested.TARGETS] == [None, None]


def test_a_seed_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    monkeypatch.setattr(nested, "QUICK_STEPS", 10)
    rows = mixture(2200, 4, 3, spread=8.0)
    blobs = Rows("small", "generated", rows[:2000], rows[2000:], batch=100, k=6)
    found = {
        cell.name: cell.measure() for cell in nested.cells_of("small", lambda: blobs, 99, SETTINGS)
    }
    assert list(found) == ["small, seed 0", "small, seed 1"]
    one = found["small, seed 0"]
    assert one["shape"] == "2,000 + 200, 4, 6"
    assert one["runs"][nested.PEER]["iterations"][-1] == 10
    assert len({run["energies"][0] for run in one["runs"].values()}) == 1
    assert nested.show(found, SETTINGS)[0].rows[0][0] == "small"


def test_mnist_is_split_as_it_comes(tmp_path: Path):
    X = np.zeros((70_000, 784), np.uint8)
    X[60_000:] = 255
    np.savez(tmp_path / "mnist.npz", X=X)
    found = nested.mnist_rows(Settings(quick=True, data=tmp_path))
    assert (found.source, found.n, found.validation.shape) == (MNIST, 2400, (400, 784))
    assert found.rows.max() == 0
    assert found.validation.min() == found.validation.max() == 1
