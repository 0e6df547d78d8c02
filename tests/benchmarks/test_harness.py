"""The harness itself, and that the benchmarks run at all."""

from __future__ import annotations

import pytest

from tests.benchmarks.__main__ import BENCHMARKS, main
from tests.benchmarks.harness.page import write_section
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.race import race


def test_race_rotates_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    calls: list[str] = []
    found = race({name: lambda name=name: calls.append(name) or name for name in "abc"}, 3)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"
    assert {name: outcome.value for name, outcome in found.items()} == {
        "a": "a",
        "b": "b",
        "c": "c",
    }
    assert all(len(outcome.seconds) == 3 for outcome in found.values())


def test_long_programs_warm_up_with_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    calls: list[str] = []
    short = {name: lambda name=name: calls.append(name) for name in "ab"}
    long = {name: lambda name=name: calls.append(name.upper()) or name for name in "ab"}
    found = race(long, 1, warm_up=short)
    assert calls == ["a", "b", "A", "B"]
    assert {name: outcome.value for name, outcome in found.items()} == {"a": "a", "b": "b"}


def test_table_is_markdown() -> None:
    text = Table("T", ["a", "b"], [[1.23456, None], [12345.6, "x"]], ["note"]).markdown()
    assert text == ("### T\n\n| a | b |\n| --- | --- |\n| 1.23 | - |\n| 12,346 | x |\n\n- note\n")


def test_section_is_replaced_and_others_stay(tmp_path) -> None:
    path = tmp_path / "benchmarks.md"
    write_section(path, "one", "old")
    write_section(path, "two", "stays")
    write_section(path, "one", r"new \1")
    text = path.read_text()
    assert "old" not in text
    assert text.index(r"new \1") < text.index("stays")


def test_the_chart_of_the_readme_is_drawn_from_the_published_table(tmp_path) -> None:
    main(["speed", "--output", str(tmp_path)], standalone_mode=False)
    drawn = (tmp_path / "speed.svg").read_text()
    assert all(name in drawn for name in ("daskcluster", "scikit-learn", "Faiss", "dask-ml"))


@pytest.mark.benchmark
@pytest.mark.parametrize("name", [*BENCHMARKS, "figure2", "figure3", "table1", "kernel", "vrkm"])
def test_quick_benchmark_runs(name: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "benchmarks.md"
    few = ["--repeats", "1", "--seeds", "2", "--scratch", str(tmp_path / "scratch")]
    main([name, "--quick", *few, "--output", str(output)], standalone_mode=False)
    assert f"<!-- benchmark: {name} -->" in output.read_text()
    assert f"## {name}" in capsys.readouterr().out
