"""Benchmarks of mini-batches on small data: the sets, the runs they keep, and what they make of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.benchmarks import (
    digits,
    energy_runs,
    figure2,
    figure3,
    table1,
)
from tests.benchmarks.__main__ import main
from tests.benchmarks.comparisons import nested
from tests.benchmarks.energy_plots import Band, EnergyPanel, draw_energies
from tests.benchmarks.energy_runs import RunFiles, mean_and_deviation
from tests.benchmarks.harness import energy_programs
from tests.benchmarks.harness.energy import Rows, Run, moments
from tests.benchmarks.harness.parts import Figure
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.minibatch_sets import SETS, chosen
from tests.tiles import BOUNDS_SPARE


@pytest.fixture
def blobs() -> Rows:
    rows = mixture(2200, 4, 3, spread=8.0)
    return Rows("mnist", "generated", rows[:2000], rows[2000:], batch=100, k=6)


def run_of(seconds: list[float], energies: list[float], fit_seconds: float = 9.0) -> Run:
    counts = list(range(len(seconds)))
    return Run(seconds, [10.0 * i for i in counts], energies, counts, fit_seconds, ended=True)


# -- digits -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strokes() -> np.ndarray:
    return digits.Strokes(300).images()


def test_a_digit_is_a_function_of_seed_and_index(strokes: np.ndarray):
    made = digits.DeformedDigits(strokes, "digits")
    whole = made.rows(0, 1030)
    assert whole.dtype == np.uint8
    assert whole.shape == (1030, 784)
    assert (made.rows(1020, 1030) == whole[1020:]).all()
    other = digits.DeformedDigits(strokes, "validation-digits").rows(0, 1)
    assert (other != whole[:1]).any()


def test_deformation_is_smooth_and_small(strokes: np.ndarray):
    still = np.zeros((len(strokes), digits.SIDE, digits.SIDE), np.float32)
    assert (digits._warped(strokes, still, still) == strokes).all()
    pictures = strokes.reshape(-1, 28, 28)
    assert (
        digits._warped(strokes, still + 1, still).reshape(pictures.shape)[:, :-1] == pictures[:, 1:]
    ).all()
    made = digits.DeformedDigits(strokes, "digits").rows(0, 1024).astype(float)
    ink = strokes.astype(float).mean()
    assert made.mean() == pytest.approx(ink, rel=0.1)
    nearest = ((made[:50, None] - strokes.astype(float)) ** 2).mean(axis=2).min(axis=1)
    assert 0 < np.median(nearest) < made.var(axis=0).mean()


def test_digits_are_written_once(tmp_path: Path):
    import zarr

    path = digits.prepare(tmp_path, None, 1500, 100, 2)
    group = zarr.open_group(str(path), mode="r")
    assert [group[name].shape for name in ("rows", "validation")] == [(1500, 784), (100, 784)]
    sources, _ = digits.source_digits(None)
    expected = digits.DeformedDigits(sources[: digits.split_of(sources)], "digits")
    assert (group["rows"][1000:1100] == expected.rows(1000, 1100)).all()
    stamp = path.stat().st_mtime_ns
    assert digits.prepare(tmp_path, None, 1500, 100, 2).stat().st_mtime_ns == stamp
    assert sorted(tmp_path.iterdir()) == [path]


# -- sets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(SETS))
def test_quick_sets_need_no_files(name: str, tmp_path: Path):
    rows = SETS[name](Settings(quick=True, scratch=tmp_path))
    assert rows.name == name
    assert "generated" in rows.source
    assert rows.rows.dtype == rows.validation.dtype == np.float32
    assert 2 * rows.batch < rows.n
    assert rows.validation.shape[0] >= 300
    first = rows.first_centres(1)
    assert first.shape == (10, rows.rows.shape[1])
    assert len(np.unique(first, axis=0)) == 10
    assert (first != rows.first_centres(2)).any()
    if rows.is_sparse:
        length = np.sqrt(rows.rows.multiply(rows.rows).sum(axis=1))
        assert length == pytest.approx(1.0, abs=1e-5)


def test_sets_are_chosen_by_name():
    with pytest.raises(ValueError, match="--sets letters should be some of mnist,digits"):
        next(chosen(("mnist", "digits"), Settings(sets=("letters",))))


def test_patches_come_from_their_pictures():
    from tests.benchmarks.minibatch_sets import _patches

    picture = np.arange(32 * 32 * 3, dtype=np.int64).reshape(1, 32, 32, 3)
    cut = _patches(picture, np.random.default_rng(0)).reshape(-1, 6, 6, 3)
    assert cut.shape[0] == 100
    assert (np.diff(cut, axis=1) == 32 * 3).all()
    assert (np.diff(cut, axis=2) == 3).all()


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


def test_nested_runs_have_a_moment_for_each_round(blobs: Rows):
    run = energy_programs.nested(blobs, 0, 1)
    assert run.ended
    assert run.iterations == list(range(len(run.energies)))
    assert run.seconds == sorted(run.seconds)
    assert run.seconds[-1] <= run.fit_seconds
    assert run.end < run.energies[0]


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
    assert "| digits | " in text
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


def test_early_energies_are_above_late_ones(blobs: Rows, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    late, runs = figure3.compete(blobs, Settings(quick=True, seeds=2, threads=1, scratch=tmp_path))
    assert set(runs) == {(name, rho) for name in figure3.BOUNDS for rho in figure3.RHOS}
    assert all(run.ended for run in runs[figure3.STANDARD])
    panel = figure3._panel("digits", figure3._result(blobs, late, runs))
    bands = {band.name: band.mean for band in panel.bands}
    for name in figure3.BOUNDS:
        assert (bands[name] >= 0).all()
        assert (bands[f"{name}, earlier"] >= bands[name] - 0.5).all()


def test_programs_of_figure_2_share_their_start(blobs: Rows, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    runs = figure2.compete(blobs, Settings(quick=True, seeds=1, threads=1, scratch=tmp_path))
    assert list(runs) == ["lloyd", "yinyang", "mbatch", "nmbatch"]
    assert len({run.energies[0] for (run,) in runs.values()}) == 1
    (mini,) = runs["mbatch"]
    assert mini.iterations[-1] == figure2.QUICK_STEPS
    assert mini.distances[-1] == pytest.approx(figure2.QUICK_STEPS * blobs.batch * blobs.k)
    sparse = replace(blobs, rows=csr_array(blobs.rows), validation=csr_array(blobs.validation))
    settings = Settings(quick=True, seeds=1, threads=1, scratch=tmp_path / "sparse")
    found = figure2.compete(sparse, settings)
    assert list(found) == ["lloyd", "hamerly", "mbatch", "nmbatch"]
    assert found["hamerly"][0].digest == found["lloyd"][0].digest
    assert found["hamerly"][0].distances[-1] < found["lloyd"][0].distances[-1]
    assert found["lloyd"][0].end == pytest.approx(runs["lloyd"][0].end, rel=1e-3)


def test_a_pass_is_timed_with_labels_and_without(blobs: Rows, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    passes = table1.compete(blobs, 1, 2)
    assert {name: len(found.seconds) for name, found in passes.items()} == {
        "steps": 2, "fit": 2, "scikit-learn": 2, "scikit-learn fit": 2,
    }  # fmt: skip
    notes: list[str] = []
    cells = table1._line(blobs, 1, passes, notes)
    assert cells[:3] == ["mnist", blobs.shape, 1]
    far = replace(passes["steps"], value=passes["steps"].value + 10)
    table1._line(blobs, 1, {**passes, "steps": far}, notes)
    assert "cannot be compared" in notes[-1]


def test_energies_are_drawn(tmp_path: Path):
    x = np.geomspace(1, 100, 5)
    panel = EnergyPanel("digits", "seconds", [Band("nmbatch", x, 1 / x, 0.1 / x)], top=0.1)
    found = draw_energies("energies.svg", "what", [[panel], [panel]], tmp_path)
    assert found == Figure(f"{tmp_path.name}/energies.svg", "what")
    text = (tmp_path / "energies.svg").read_text()
    assert all(word in text for word in ("digits", "seconds", "nmbatch"))
    assert draw_energies("energies.svg", "what", [[panel], [panel]], tmp_path) == found
    assert (tmp_path / "energies.svg").read_text() == text


def test_labels_keep_their_digits(tmp_path: Path):
    x = np.geomspace(1, 100, 5)
    panel = EnergyPanel("digits", "seconds", [Band("nmbatch", x, 0.01 / x, 0 * x)], top=0.02)
    draw_energies("energies.svg", "what", [[panel]], tmp_path)
    assert ">0.005<" in (tmp_path / "energies.svg").read_text()
