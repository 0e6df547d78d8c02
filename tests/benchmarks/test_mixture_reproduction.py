"""The experiments on vc-GMM: what is counted and compared, what is kept, and that they run small."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.events import IterationEnded, StopFit
from tests.benchmarks import vc_gmm
from tests.benchmarks.__main__ import main
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.vc_gmm import programs, sweeps, tables
from tests.benchmarks.vc_gmm.outcomes import (
    FreeEnergyRule,
    Outcome,
    Setting,
    chains_distances,
    kmeans_free_energy,
    relative_error,
)
from tests.benchmarks.vc_gmm.problems import Problem
from tests.benchmarks.vc_gmm.tables import Compared, times

K = 6


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return mixture(3000, 4, K, spread=4.0)


@pytest.fixture
def small(rows: np.ndarray) -> Problem:
    def make(data: Path | None, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
        return rows, rows

    every = ("chain", "coreset", "truncation", "tolerance", "greedy", "warm-up")
    return Problem("cod_rna", "RNA", 3000, 4, K, 300, 2, 3, make, 1, sweeps=every)


def outcome(error: float, processor: float = 2.0, nmi: float | None = None) -> Outcome:
    stages = (0.0, 0.5, 1.5)
    return Outcome(stages, (0.0, 0.0, processor), (0.0, 10.0, 90.0), 3, error, nmi)


# -- what is counted ----------------------------------------------------------------------------------


def test_free_energy_of_kmeans_is_that_of_one_gaussian_a_cluster():
    # For well separated clusters, mixture and k-means have the same bound.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3)) + 1000.0 * rng.integers(0, 4, (4000, 1))
    means = 1000.0 * np.arange(4)[:, None] * np.ones(3)
    inertia = dc.quantization_error(X, means)
    variance = inertia / (3 * 4000)
    density = -1.5 * math.log(2 * math.pi * variance) - math.log(4)
    expected = 4000 * density - inertia / (2 * variance)
    assert kmeans_free_energy(inertia, 4000.0, 4, 3) == pytest.approx(expected, rel=1e-12)


def test_rule_stops_when_the_free_energy_stays():
    rule = FreeEnergyRule(weight=100.0, k=5, d=2, tol=1e-4)
    rule(dc.events.SeedingEnded("k-means++", 1, 0.0))
    for iteration, inertia in enumerate((400.0, 300.0, 290.0)):
        rule(IterationEnded(iteration, inertia, shift=1.0, seconds=0.0))
    with pytest.raises(StopFit):
        rule(IterationEnded(3, 289.9, shift=1.0, seconds=0.0))
    before, after = (kmeans_free_energy(inertia, 100.0, 5, 2) for inertia in (290.0, 289.9))
    assert rule.free_energy == after
    assert abs(after - before) < 1e-4 * abs(after)
    assert abs(after - before) > 1e-6 * abs(after)


def test_counts_and_errors():
    assert chains_distances(1000, 20, 3) == 1000 + 3 * 20 * 20 / 2
    assert relative_error(110.0, 100.0) == pytest.approx(0.1)
    assert [times(value) for value in (None, 3.14, 1234.5)] == [None, "3.1x", "1,234x"]
    found = outcome(1.0)
    assert (found.seconds, found.processor, found.distances, found.share) == (2.0, 2.0, 100.0, 0.0)


# -- programs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "seeding", "iteration"),
    [
        (Setting("k-means++", K), 3000 * K, 3000 * K),
        (Setting("greedy k-means++", K), 4 * 3000 * K, 3000 * K),
        (Setting("AFK-MC2", K, chain=3), 3000 + 1.5 * K * K, None),
        (Setting("LWCS", K, chain=3, coreset=300), 300 + 1.5 * K * K, 300 * K),
        (Setting("var-GMM-S", K, chain=3, truncation=2), 3000 + 1.5 * K * K, None),
        (Setting("vc-GMM", K, chain=3, coreset=300, truncation=2), 300 + 1.5 * K * K, None),
    ],
    ids=lambda value: value.program if isinstance(value, Setting) else "",
)
def test_programs_report_seconds_and_distances(
    rows: np.ndarray, setting: Setting, seeding: float, iteration: float | None
):
    found = programs.fit(rows, setting, 0, 1)
    assert found.centres.shape == (K, 4)
    coreset, seeded, em = found.distances
    assert coreset == (3000 if setting.coreset else 0)
    assert seeded == seeding
    assert all(value >= 0.0 for value in (*found.seconds, *found.processor))
    assert (found.seconds[0] > 0.0) == bool(setting.coreset)
    assert (found.seconds[2] > 0.0) == (found.n_iter > 0)
    if iteration is not None:
        assert em == found.n_iter * iteration
    elif setting.truncation:
        n = setting.coreset or 3000
        assert 2 * n * (found.n_iter + 1) <= em <= (2 + 4) * n * (found.n_iter + 1)
    error, labels = programs.measure_run(rows, found.centres, 1)
    assert error == pytest.approx(dc.quantization_error(rows, found.centres))
    assert programs.mutual_information(labels, labels) == pytest.approx(1.0)


def test_coreset_apart_gives_the_same_mixture(rows: np.ndarray):
    setting = Setting("vc-GMM", K, chain=3, coreset=300, truncation=2)
    apart = programs.fit(rows, setting, 5, 1)
    whole = dc.VariationalGaussianMixture(
        K, coreset_size=300, truncation=2, n_neighbors=2, chain_length=3, random_state=5, max_iter=1000,
        tol=0.0, callbacks=[FreeEnergyRule(float(len(rows)), K, rows.shape[1], setting.tol)],
    ).fit(rows)  # fmt: skip
    assert (apart.centres == whole.means_).all()


# -- what is kept and shown ---------------------------------------------------------------------------


class _Kept:
    """Cells of a set that are given."""

    def __init__(self, problem: Problem, kept: dict[str, list[Outcome]]) -> None:
        self.problem, self._kept = problem, kept

    def outcomes(self, setting: Setting) -> list[Outcome]:
        return self._kept.get(setting.name, [])


def test_table_stands_next_to_the_paper(small: Problem):
    kept = {
        sweeps.base(small, "k-means++").name: [outcome(90.0, 30.0), outcome(110.0, 50.0)],
        sweeps.base(small, "LWCS").name: [outcome(120.0, 4.0)],
    }
    other = replace(small, name="mnist", stands_for="CIFAR-10")
    sets = [Compared(_Kept(small, kept)), Compared(_Kept(other, {}))]  # type: ignore[arg-type]
    table = tables.table_1(sets)
    assert table.rows[0][:4] == ["cod_rna (RNA)", "k-means++", 2, "0.00 ± 14.14 % (0.00 ± 0.22 %)"]
    assert table.rows[1][1:6] == [
        "LWCS", 1, "20.00 % (11.24 ± 0.60 %)", "1.0x (19.8x)", "10.0x (21.2x)"
    ]  # fmt: skip
    assert len(table.rows) == 2
    assert table.notes[-1] == "Not run yet: mnist."


def test_a_small_run_resumes_and_shows_saved_fits(
    small: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    tiny = replace(small, name="tiny-like", sweeps=("clusters",))
    both = {"cod_rna": replace(small, sweeps=("chain", "coreset", "warm-up")), "tiny-like": tiny}
    monkeypatch.setattr(vc_gmm, "PROBLEMS", both)
    monkeypatch.setattr(Problem, "scaled", lambda self, options: self)
    words = [
        "vc-gmm",
        "--quick",
        "--seeds",
        "2",
        "--scratch",
        str(tmp_path / "scratch"),
        "--threads",
        "1",
    ]
    shown = ["--output", str(tmp_path / "reproduction.md")]
    main([*words, *shown, "--sets", "cod_rna", "--keep"], standalone_mode=False)
    first = capsys.readouterr()
    assert "vc-GMM" in first.err
    text = (tmp_path / "reproduction.md").read_text()
    assert "](images/vc-gmm.svg)" in text
    tables = tmp_path / "results" / "tables" / "vc-gmm"
    assert "Not run yet: tiny-like." in (tables / "notes.csv").read_text()
    main([*words, "--seeds", "0", "--keep"], standalone_mode=False)
    again = capsys.readouterr()
    assert "k-means++_C6" not in again.err
    assert again.out.split("###")[3:] == first.out.split("###")[3:]
    main([*words, *shown], standalone_mode=False)
    assert "cod_rna: " not in capsys.readouterr().err
    assert '\n"tiny-like, 3,000 x 4",300,24,' in (tables / "table-2.csv").read_text()
    kept = json.loads((tmp_path / "results" / "vc-gmm.json").read_text())
    assert len(kept["cod_rna"]["k-means++_C6"]["error"]) == 2
    assert "LWCS" in (tmp_path / "images" / "vc-gmm.svg").read_text()
    assert list((tmp_path / "scratch").iterdir()) == []
