"""The benchmarks of bounds on small data: what they check, what they write, what they refuse."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import bench_bounds, bench_bounds_ooc, ooc_fit, ooc_rows
from tests.benchmarks.__main__ import main
from tests.benchmarks.bounds_problems import Problem, missing, problems
from tests.benchmarks.harness import Figure, Note, Options, Outcome, mixture
from tests.benchmarks.plots import Curve, Panel, draw

SMALL = ooc_rows.Layout(20_000, 4, 10, chunk_rows=256, shard_rows=4096)


@pytest.fixture
def problem() -> Problem:
    rows = mixture(3000, 4, 3, spread=8.0)
    return Problem("small", rows, rows[:6].copy(), max_iter=100, plotted=True)


@pytest.fixture
def outcomes(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> dict[str, Outcome]:
    monkeypatch.setattr("tests.benchmarks.harness.REST", 0.0)
    return bench_bounds.compete(problem, Options(threads=1, repeats=1))


@pytest.fixture
def panels() -> list[Panel]:
    return [Panel("data", "share", [Curve("lloyd", np.ones(5)), Curve("auto", np.ones(300))])]


# -- in memory --------------------------------------------------------------------------------------


def test_quick_problems_are_small_and_start_from_rows_of_theirs():
    found = list(problems(Options(quick=True)))
    assert sum(problem.without_structure for problem in found) == 2
    for problem in found:
        assert problem.rows.nbytes < 30e6
        assert problem.rows.dtype == problem.centres.dtype == np.float32
        assert len(np.unique(problem.centres, axis=0)) == problem.k
        same = (problem.rows[:, None, :2] == problem.centres[None, :3, :2]).all(axis=2)
        assert same.any(axis=0).all()


def test_sets_that_are_not_there_are_named(tmp_path: Path):
    assert [text.split()[0] for text in missing(Options(data=tmp_path))] == ["birch2", "worms_2"]
    rows = np.random.default_rng(0).normal(size=(2000, 2)) * [4.0, 2.0]
    np.savez(tmp_path / "birch2.npz", X=rows.astype(np.float32))
    assert [text.split()[0] for text in missing(Options(data=tmp_path))] == ["worms_2"]
    found = next(p for p in problems(Options(quick=True, data=tmp_path)) if p.name == "birch2")
    spread = found.rows.std(axis=0)
    assert (spread**2).mean() == pytest.approx(1.0, rel=1e-3)
    assert spread[0] / spread[1] == pytest.approx(2.0, rel=0.2)


def test_ours_agree_and_others_reach_the_same(problem: Problem, outcomes: dict[str, Outcome]):
    bench_bounds.check_bits("small", outcomes)
    same, _ = bench_bounds.compare_quality(problem, outcomes)
    assert set(same) == {"scikit-learn lloyd", "scikit-learn elkan"}
    assert outcomes["lloyd"].value.touched.tolist() == [1.0] * outcomes["lloyd"].value.n_iter
    assert outcomes["hamerly"].value.touched[-1] < 0.5


@pytest.mark.parametrize("name", ["hamerly", "yinyang", "elkan", "auto"])
def test_a_bit_that_differs_is_refused(name: str, outcomes: dict[str, Outcome]):
    other = replace(outcomes[name].value, digest="another")
    outcomes[name] = replace(outcomes[name], value=other)
    with pytest.raises(RuntimeError, match=f"small: {name} ended after"):
        bench_bounds.check_bits("small", outcomes)


def test_times_of_other_optima_are_not_compared(problem: Problem, outcomes: dict[str, Outcome]):
    name = "scikit-learn lloyd"
    centres, n_iter = outcomes[name].value
    outcomes[name] = replace(outcomes[name], value=(centres + np.float32(0.5), n_iter))
    same, remarks = bench_bounds.compare_quality(problem, outcomes)
    assert not same[name]
    assert any("not compared" in remark and name in remark for remark in remarks)
    assert bench_bounds._ratios(problem, outcomes, same)[5] is None


def test_section_and_plot_are_written(problem: Problem, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("tests.benchmarks.harness.REST", 0.0)
    monkeypatch.setattr(bench_bounds, "problems", lambda options: iter([problem]))
    output = tmp_path / "benchmarks.md"
    main(["bounds", "--repeats", "1", "--threads", "1", "--output", str(output)])
    text = output.read_text()
    assert "| small | 3,000, 4, 6 |" in text
    assert "](images/bounds_touched.svg)" in text
    plot = (tmp_path / "images" / "bounds_touched.svg").read_text()
    assert all(name in plot for name in ("hamerly", "yinyang", "elkan", "auto", "small, k = 6"))
    assert "## bounds" in capsys.readouterr().out


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
    assert "daskcluster[plots]" in found.text


# -- out of core ------------------------------------------------------------------------------------


def test_arrival_is_source_after_source():
    labels = SMALL.mixture("arrival").labels(0, SMALL.n_rows)
    assert (np.diff(labels) >= 0).all()
    assert np.bincount(labels).tolist() == [2000] * 10
    shuffled = SMALL.mixture("random").labels(0, SMALL.n_rows)
    assert (np.diff(shuffled) < 0).mean() > 0.3


def test_rows_are_written_once(tmp_path: Path):
    import zarr

    first = ooc_rows.prepare(tmp_path, SMALL, ("arrival", "random"), 2)
    written = [path.stat().st_mtime_ns for path in first]
    assert ooc_rows.prepare(tmp_path, SMALL, ("arrival", "random"), 2) == first
    assert [path.stat().st_mtime_ns for path in first] == written
    assert sorted(tmp_path.iterdir()) == sorted(first)
    for path, order in zip(first, ("arrival", "random"), strict=True):
        array = zarr.open_array(path, mode="r")
        assert array.chunks == (256, 4)
        assert array.shards == (4096, 4)
        assert (array[:] == SMALL.mixture(order).rows(0, SMALL.n_rows)).all()


def test_a_full_disk_is_refused_first(tmp_path: Path, monkeypatch):
    free = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(OSError, match="--scratch"):
        ooc_rows.prepare(tmp_path, SMALL, ("random",), 1)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def measured(tmp_path: Path) -> dict[str, list[dict]]:
    (path,) = ooc_rows.prepare(tmp_path, SMALL, ("arrival",), 1)
    centres = SMALL.mixture("arrival").rows(0, SMALL.n_rows)[:: SMALL.n_rows // 5][:5].copy()
    return {
        name: [ooc_fit.measure(str(path), centres, name, 20, 1)] for name in ("lloyd", "hamerly")
    }


def test_bytes_are_those_of_unkept_rows(measured: dict[str, list[dict]]):
    bench_bounds_ooc.check("arrival", measured, SMALL)
    plain, bounded = measured["lloyd"][0], measured["hamerly"][0]
    assert plain["bytes_by_iteration"][1:] == [SMALL.n_bytes] * (plain["n_iter"] - 1)
    assert bounded["bytes_by_iteration"][-1] < SMALL.n_bytes
    assert bounded["touched_by_iteration"][-1] < SMALL.n_rows
    cells = list(bench_bounds_ooc._rows("arrival", measured, SMALL))
    assert [row[1] for row in cells] == ["lloyd", "hamerly"]
    assert cells[0][5] is None
    assert float(cells[1][5]) < 1.0


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [("digest", "another", "agree to the bit"), ("bytes_read", 1, "stayed in memory")],
)
def test_figures_that_mislead_are_refused(measured, field: str, value, text: str):
    measured["lloyd"][0][field] = value
    with pytest.raises(RuntimeError, match=text):
        bench_bounds_ooc.check("arrival", measured, SMALL)
