"""Nested mini-batches against others: what the runs of all seeds come to."""

from __future__ import annotations

from dataclasses import asdict

from tests.benchmarks.comparisons import nested
from tests.benchmarks.harness.energy import Run
from tests.benchmarks.harness.rows import MNIST
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
