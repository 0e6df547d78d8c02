"""Benchmarks of mini-batches on small data: the sets, the runs they keep, and what they make of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import (
    energy_runs,
    figure3,
)
from tests.benchmarks.__main__ import main
from tests.benchmarks.comparisons import nested
from tests.benchmarks.energy_runs import RunFiles, mean_and_deviation
from tests.benchmarks.harness import energy_programs
from tests.benchmarks.harness.energy import Rows, Run, moments
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.minibatch_sets import SETS
from tests.tiles import BOUNDS_SPARE


@pytest.fixture
def blobs() -> Rows:
    rows = mixture(2200, 4, 3, spread=8.0)
    return Rows("mnist", "generated", rows[:2000], rows[2000:], batch=100, k=6)


def run_of(seconds: list[float], energies: list[float], fit_seconds: float = 9.0) -> Run:
    counts = list(range(len(seconds)))
    return Run(seconds, [10.0 * i for i in counts], energies, counts, fit_seconds, ended=True)


# -- runs -----------------------------------------------------------------------------------------------


def test_moments_of_a_run():
    run = run_of([0.0, 1.0, 2.0, 4.0], [9.0, 5.0, 6.0, 4.0])
    assert run.time_to(5.0) == 1.0
    assert run.time_to(4.5) == 4.0
    assert run.time_to(3.0) is None
    assert run.energy_at(np.array([0.0, 0.9, 1.0, 3.0, 99.0])).tolist() == [9.0, 9.0, 5.0, 6.0, 4.0]
    assert run.energy_at(np.array([20.0]), "distances").tolist() == [6.0]
    assert moments(1) == [1]
    assert moments(300)[-2:] != moments(300)[-1:] * 2
    assert moments(300)[-1] == 300


def test_means_are_relative_to_the_best():
    runs = [run_of([0.0, 1.0], [4.0, 2.0]), run_of([0.0, 3.0], [6.0, 3.0])]
    mean, deviation = mean_and_deviation(runs, 2.0, np.array([0.0, 2.0, 3.0]), "seconds")
    assert mean.tolist() == [1.5, 1.0, 0.25]
    assert deviation[2] == pytest.approx(0.5 / np.sqrt(2))


def test_runs_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    made: list[str] = []

    def make() -> Run:
        made.append("run")
        return run_of([0.0, float(len(made))], [2.0, 1.0])

    files = RunFiles(tmp_path, {"k": 50}, Run)
    assert files.get("one", make) == files.get("one", make)
    assert len(made) == 1
    assert files.get("one", make, enough=lambda run: run.end < 0.5).seconds[-1] == 2.0
    RunFiles(tmp_path, {"k": 40}, Run).get("one", make)
    assert len(made) == 3
    monkeypatch.setattr(energy_runs, "cpu_name", lambda: "another")
    RunFiles(tmp_path, {"k": 40}, Run).get("one", make)
    assert len(made) == 4


def test_without_a_number_of_seeds_the_saved_ones_are_shown(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    files = RunFiles(tmp_path, {}, Run)
    for name in ("a-0", "a-1", "a-2", "b-0", "b-1"):
        files.get(name, lambda: run_of([0.0, 1.0], [2.0, 1.0]))
    assert files.seeds(7, "a", "b") == 7
    assert files.seeds(0, "a", "b") == 2
    with pytest.raises(ValueError, match="found none"):
        files.seeds(0, "a", "c")


# -- programs -------------------------------------------------------------------------------------------


def test_exact_energies_are_those_of_each_iteration(blobs: Rows):
    from daskcluster import KMeans

    plain = energy_programs.exact(blobs, 0, 1)
    assert plain.ended
    assert plain.seconds == sorted(plain.seconds)
    for iteration, found in zip(plain.iterations, plain.energies, strict=True):
        model = KMeans(6, init=blobs.first_centres(0), n_init=1, max_iter=iteration, tol=0)
        centres = energy_programs.quietly(model, blobs.rows).cluster_centers_
        gaps = blobs.validation[:, None].astype(float) - centres
        assert found == pytest.approx((gaps**2).sum(axis=2).min(axis=1).mean(), rel=1e-5)
    bounded = energy_programs.exact(blobs, 0, 1, algorithm="yinyang", like=plain)
    assert bounded.energies == plain.energies
    assert plain.distances[-1] == 2000 * 6 * plain.iterations[-1]
    spared = plain.distances[-1] - bounded.distances[-1]
    assert spared > 0 if BOUNDS_SPARE else spared == 0
    with pytest.raises(RuntimeError, match="expected the same centres"):
        energy_programs.exact(blobs, 0, 1, like=replace(plain, digest="another"))


def test_scikit_learn_starts_and_ends_as_ours(blobs: Rows):
    ours, theirs = energy_programs.exact(blobs, 0, 1), energy_programs.sklearn_lloyd(blobs, 0, 1)
    assert theirs.ended
    assert theirs.energies[0] == ours.energies[0]
    assert theirs.end == pytest.approx(ours.end, rel=1e-3)
    stepped = energy_programs.sklearn_mini_batches(blobs, 0, 1, steps=40)
    assert stepped.iterations[-1] == 40
    assert stepped.distances[-1] == 40 * 100 * 6
    assert stepped.end < stepped.energies[0]
    early = energy_programs.sklearn_mini_batches(blobs, 0, 1, steps=40, target=stepped.energies[1])
    assert early.iterations == [0, 1]


# -- tables and plots -------------------------------------------------------------------------------------


def test_a_benchmark_continues_with_the_seeds_that_are_there(
    blobs: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    monkeypatch.setattr(nested, "QUICK_STEPS", 20)
    monkeypatch.setitem(SETS, "digits", lambda settings: replace(blobs, name="digits"))
    words = ["nested-digits", "--quick", "--seeds", "2", "--scratch", str(tmp_path)]
    main([*words, "--keep"], standalone_mode=False)
    first = capsys.readouterr()
    assert "| digits | 2,000 + 200, 4, 6 |" in first.out
    assert "digits, seed 1" in first.err
    main(words, standalone_mode=False)
    second = capsys.readouterr()
    assert "digits, seed 1" not in second.err
    assert second.out.split("###")[1:] == first.out.split("###")[1:]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "curve"), [("figure2", "nmbatch"), ("figure3", "without bounds")])
def test_figures_are_drawn_and_kept_as_numbers(
    name: str, curve: str, blobs: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    monkeypatch.setitem(SETS, "digits", lambda settings: replace(blobs, name="digits"))
    words = [
        name,
        "--quick",
        "--seeds",
        "2",
        "--sets",
        "digits",
        "--scratch",
        str(tmp_path / "scratch"),
    ]
    main([*words, "--output", str(tmp_path / "reproduction.md")], standalone_mode=False)
    capsys.readouterr()
    text = (tmp_path / "reproduction.md").read_text()
    assert f"](images/{name}.svg)" in text
    assert f"](results/tables/{name}/" in text
    tables = (tmp_path / "results" / "tables" / name).iterdir()
    assert sum("\ndigits," in table.read_text() for table in tables) == 1
    assert curve in (tmp_path / "images" / f"{name}.svg").read_text()
    kept = json.loads((tmp_path / "results" / f"{name}.json").read_text())
    assert kept["digits"]["shape"] == blobs.shape
    assert list((tmp_path / "scratch").iterdir()) == []
    words[words.index("digits")] = "connections"
    main([*words, "--output", str(tmp_path / "reproduction.md")], standalone_mode=False)
    both = json.loads((tmp_path / "results" / f"{name}.json").read_text())
    assert list(both) == ["digits", "connections"]
    assert both["digits"] == kept["digits"]
    if name == "figure3":
        curves = (tmp_path / "images" / "figure3-curves.svg").read_text()
        assert all(f"rho = {rho:g}" in curves for rho in figure3.RHOS)
