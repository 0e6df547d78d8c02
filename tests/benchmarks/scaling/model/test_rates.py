"""Rates are kept as they were measured, and what is no such file says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from daskcluster.errors import InvalidDataError
from tests.benchmarks.scaling.model.engine_rates import _rates, _Run
from tests.benchmarks.scaling.model.least_squares import largest_error, solve_rates
from tests.benchmarks.scaling.model.rates import REFERENCE, load_rates, save_rates

ROOT = Path(__file__).resolve().parents[4]


def test_rates_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    save_rates(REFERENCE, path)
    assert load_rates(path) == REFERENCE


def test_files_that_are_no_rates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    for change, message in (
        (lambda d: d.update(version=99), "format"),
        (lambda d: d["rates"].pop("scheduler"), "scheduler"),
        (lambda d: d["rates"].update(decode="fast"), "decode='fast' should be a number"),
        (lambda d: d["rates"]["nearest"].update(row=-1.0), "row=-1.0 should be a finite number"),
    ):
        save_rates(REFERENCE, path)
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))
        with pytest.raises(InvalidDataError, match="a file of `calibrate`") as caught:
            load_rates(path)
        assert message in str(caught.value)


def test_rates_are_found_again_in_runs_that_they_make() -> None:
    rng = np.random.default_rng(0)
    true = np.array([2e-3, 0.0, 3e-9])
    counts = np.column_stack([np.ones(8), rng.integers(1, 50, 8), rng.integers(1, 10**8, 8)])
    seconds = counts @ true
    found = solve_rates(counts, seconds)
    assert found == pytest.approx(true, rel=1e-6, abs=1e-12)
    assert largest_error(counts, seconds, found) < 1e-6
    assert largest_error(counts, 2 * seconds, found) == pytest.approx(0.5)


def test_the_roles_of_a_cluster_are_distinguished() -> None:
    def run(tasks: int, handles: int, size: int) -> _Run:
        client = 4e-3 + 1e-3 * tasks + 2e-5 * handles + 1e-9 * size + 5e-4 * tasks
        scheduler = 1e-3 + 2e-3 * tasks + 6e-5 * handles + 2e-9 * size
        worker = 3e-3 * tasks + 1e-5 * handles + 1e-9 * size
        return _Run(tasks, handles, size, client, scheduler, worker, 1.0)

    runs = [run(2, 32, 16), run(2, 256, 16), run(32, 32, 256), run(32, 32, 10**7)]
    found = _rates([*runs, run(32, 32, 2 * 10**7)], 5e-4, 0.0)
    assert found.client.a_task == pytest.approx(1e-3)
    assert found.client.a_worker == 5e-4
    assert found.client.a_pass == pytest.approx(4e-3)
    assert found.scheduler.a_handle == pytest.approx(6e-5)
    assert found.worker.a_byte == pytest.approx(1e-9)
    assert found.round_trip < 1.0


def test_the_built_in_rates_are_those_of_the_published_calibration() -> None:
    published = json.loads((ROOT / "docs" / "results" / "scaling.json").read_text())
    measured = published["rates"]["rates"]
    for name in ("nearest", "truncated", "scan", "client", "scheduler", "worker"):
        for key, value in measured[name].items():
            assert getattr(getattr(REFERENCE, name), key) == pytest.approx(
                value, rel=0.1, abs=1e-12
            )
    assert REFERENCE.decode == pytest.approx(measured["decode"], rel=0.1)
