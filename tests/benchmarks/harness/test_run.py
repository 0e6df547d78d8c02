"""A run of ``compare``: cells are measured once and saved at once; the page comes from saved cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daskcluster.errors import InvalidDataError
from tests.benchmarks.harness import catalogue, mask, run, targets
from tests.benchmarks.harness.cells import Cell, Target, at_least
from tests.benchmarks.harness.page import RUNS
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.run import Bench, BenchmarkError, Choice
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.store import Results


class Fake:
    """A comparison of two cells that counts how often each was measured."""

    SCRATCH = ("left-behind",)

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken: set[str] = set()
        self.TARGETS = (
            Target("fast", "how fast", ">= 2", self._read),
            Target("never", "what nobody measured", ">= 1", lambda records: None),
        )

    def cells(self, settings: Settings) -> Iterator[Cell]:
        for i, name in enumerate(("small", "large")):
            yield Cell(name, self._measure(name, 1.5 + i, settings))

    def _measure(self, name: str, value: float, settings: Settings) -> Callable[[], dict[str, Any]]:
        def measure() -> dict[str, Any]:
            self.calls.append(name)
            settings.folder("left-behind").mkdir(parents=True, exist_ok=True)
            if name in self.broken:
                raise ZeroDivisionError("a peer's fault")
            return {"ratio": value}

        return measure

    def _read(self, records: Any) -> Any:
        return at_least(records["small"]["ratio"], 2.0) if "small" in records else None

    def show(self, records: Any, settings: Settings) -> list[Table]:
        rows = [[name, one["ratio"]] for name, one in records.items()]
        if settings.images is not None:
            settings.images.mkdir(parents=True, exist_ok=True)
            (settings.images / "fake.svg").write_text(" ".join(records))
        title = f"Ratios on {settings.threads} threads"
        return [Table(title, ["cell", "ratio"], rows, name="ratios", shown=True)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    for module in (catalogue, run):
        monkeypatch.setattr(module, "COMPARISONS", {"fake": catalogue.Entry("a fake", "no time")})
        monkeypatch.setattr(module, "comparison", lambda name: fake)
    monkeypatch.setattr(targets, "targets", lambda: [("fake", one) for one in fake.TARGETS])
    return fake


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make(again: bool = False, **settings: Any) -> Bench:
        settings = {"threads": 1, "scratch": tmp_path / "scratch", **settings}
        return Bench(Settings(**settings), tmp_path / "out", again=again)

    return make


def test_cells_are_measured_once(fake: Fake, bench: Callable[..., Bench]) -> None:
    first = bench()
    list(first.run([Choice("fake")]))
    assert fake.calls == ["small", "large"]
    again = bench()
    list(again.run([Choice("fake")]))
    assert (fake.calls, again.measured, again.kept) == (["small", "large"], 0, 2)
    list(bench(again=True).run([Choice("fake", "larg")]))
    assert fake.calls[2:] == ["large"]
    list(bench(repeats=3).run([Choice("fake")]))
    assert fake.calls[3:] == ["small", "large"]


def test_a_broken_cell_costs_no_other(fake: Fake, bench: Callable[..., Bench], capsys) -> None:
    fake.broken = {"small"}
    with pytest.raises(BenchmarkError, match="1 cells failed: fake: small"):
        list(bench().run([Choice("fake")]))
    assert "a peer's fault" in capsys.readouterr().err
    assert list(bench().results.read("fake")) == ["large"]
    fake.broken = set()
    list(bench().run([Choice("fake")]))
    assert fake.calls == ["small", "large", "small"]
    assert list(bench().results.read("fake")) == ["large", "small"]


def test_other_sections_of_the_page_are_kept(fake: Fake, bench: Callable[..., Bench]) -> None:
    page = bench().page
    page.parent.mkdir()
    page.write_text(
        "# Benchmarks\n\nBy hand.\n\n<!-- benchmark: other -->\nold\n<!-- end: other -->\n"
    )
    section, table = bench().run([Choice("fake")])
    text = page.read_text()
    assert "By hand." in text
    assert "old" in text
    assert "- [Ratios on 1 threads](results/tables/fake/ratios.csv)\n\n| cell | ratio |\n" in text
    assert table.strip() in text
    line = "compare --only fake --threads 1 --repeats 5"
    assert f"Command: `python -m tests.benchmarks {line}` (" in section
    runs = (bench().tables / RUNS).read_text().splitlines()
    assert runs[0].startswith("name,command,")
    assert runs[1].startswith(f"fake,python -m tests.benchmarks {line},")
    assert (bench().tables / "fake" / "ratios.csv").read_text() == (
        "cell,ratio\nsmall,1.5\nlarge,2.5\n"
    )
    assert "| how fast | >= 2 | 1.50 | **no** | - |" in text
    assert "- **how fast**: the reason is not known yet." in text
    assert "0 of 2 targets are met, 1 are missed, 1 are not measured" in text


def test_a_part_does_not_replace_the_whole(fake: Fake, bench: Callable[..., Bench], capsys) -> None:
    page = bench().page
    (bench().tables / "fake").mkdir(parents=True)
    page.write_text("<!-- benchmark: fake -->\nwhole\n<!-- end: fake -->\n")
    list(bench().run([Choice("fake", "small")]))
    assert "\nwhole\n" in page.read_text()
    assert not (page.parent / "images" / "fake.svg").exists()
    assert "are not replaced until these are measured: large" in capsys.readouterr().err
    list(bench().run([Choice("fake", "large")]))
    assert "whole" not in page.read_text()
    assert (page.parent / "images" / "fake.svg").read_text() == "small large"
    assert page.read_text().index("| small |") < page.read_text().index("| large |")


def test_targets_stay_until_they_are_measured_again(
    fake: Fake, bench: Callable[..., Bench]
) -> None:
    results = bench().results
    entry = {
        "measured": "7",
        "met": True,
        "command": "earlier",
        "date": "2026-01-01",
        "cpu": "a cpu",
    }
    results.put("targets", "never", entry)
    results.put("reasons", "fast", "The clock is slow.")
    *_, table = bench().run([Choice("fake")])
    line = "| what nobody measured | >= 1 | 7 | yes | - | [fake](#fake) |"
    assert line in table
    assert "- **how fast**: The clock is slow." in table
    assert results.read("targets")["fast"]["measured"] == "1.50"


def test_rendering_measures_nothing(fake: Fake, bench: Callable[..., Bench]) -> None:
    list(bench().run([Choice("fake")]))
    page = bench().page
    written = page.read_text()
    page.unlink()
    list(bench(repeats=99).render([Choice("fake")]))
    assert fake.calls == ["small", "large"]
    assert page.read_text() == written


def test_figures_without_avx512_stay_apart(
    fake: Fake, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(mask.MARK, mask.AVX2)
    list(bench().run([Choice("fake")]))
    narrow = bench()
    assert "| how fast | >= 2 | - | - | 1.50 (**no**) |" in narrow.page.read_text()
    assert "- **how fast**, AVX2 only: the reason is not known yet." in narrow.page.read_text()
    assert (narrow.output / "results" / "tables-avx2" / "fake" / "ratios.csv").exists()
    assert narrow.command("fake").startswith(
        "python -m tests.benchmarks compare --without-avx512 --only fake"
    )
    monkeypatch.delenv(mask.MARK)
    assert "<!-- benchmark: fake -->" not in bench().page.read_text()
    assert not bench().tables.exists()
    assert not bench().results.read("fake")


def test_a_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    for text in ("{", "[1]"):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(InvalidDataError, match=r"a\.json is not .*JSON"):
            Results(tmp_path).put("a", "x", {})
        assert (tmp_path / "a.json").read_text() == text
