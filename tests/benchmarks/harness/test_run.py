"""A run of ``compare``: cells are measured once and saved at once; the page comes from saved cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daskcluster.errors import InvalidDataError, InvalidParameterError
from tests.benchmarks.harness import catalogue, mask, run, targets
from tests.benchmarks.harness.cells import Cell, Target, at_least, at_most
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
        return [Table(f"Ratios on {settings.threads} threads", ["cell", "ratio"], rows)]


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


def test_a_run_that_was_interrupted_continues(
    fake: Fake, bench: Callable[..., Bench], monkeypatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    cells = list(fake.cells(bench().settings))
    monkeypatch.setattr(fake, "cells", lambda settings: [cells[0], Cell("large", interrupt)])
    with pytest.raises(KeyboardInterrupt):
        list(bench().run([Choice("fake")]))
    monkeypatch.undo()
    monkeypatch.setattr(run, "comparison", lambda name: fake)
    assert fake.calls == ["small"]
    assert json.loads((bench().results.folder / "fake.json").read_text())["small"]["figures"]


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


def test_the_page_keeps_what_others_wrote(fake: Fake, bench: Callable[..., Bench]) -> None:
    page = bench().page
    page.parent.mkdir()
    page.write_text(
        "# Benchmarks\n\nBy hand.\n\n<!-- benchmark: other -->\nold\n<!-- end: other -->\n"
    )
    section, table = bench().run([Choice("fake")])
    text = page.read_text()
    assert "By hand." in text
    assert "old" in text
    assert section.strip() in text
    assert table.strip() in text
    assert (
        "Command: `python -m tests.benchmarks compare --only fake --threads 1 --repeats 5` (2 cells, "
        in text
    )
    assert "| how fast | >= 2 | 1.50 | **no** |" in text
    assert "- **how fast**: the reason is not known yet." in text
    assert "0 of 2 targets are met, 1 are missed, 1 are not measured" in text


def test_a_part_does_not_replace_the_whole(fake: Fake, bench: Callable[..., Bench], capsys) -> None:
    page = bench().page
    page.parent.mkdir()
    page.write_text("<!-- benchmark: fake -->\nwhole\n<!-- end: fake -->\n")
    list(bench().run([Choice("fake", "small")]))
    assert "\nwhole\n" in page.read_text()
    assert not (page.parent / "images" / "fake.svg").exists()
    assert "on the page is not replaced until these are measured: large" in capsys.readouterr().err
    list(bench().run([Choice("fake", "large")]))
    assert "whole" not in page.read_text()
    assert (page.parent / "images" / "fake.svg").read_text() == "small large"
    assert page.read_text().index("| small |") < page.read_text().index("| large |")


def test_cells_that_are_not_at_hand_now_stay(fake: Fake, bench: Callable[..., Bench]) -> None:
    bench().results.put("fake", "elsewhere", {**_record(fake, bench), "figures": {"ratio": 9.0}})
    section, _ = bench().render([Choice("fake")])
    assert "| elsewhere | 9 |" in section


def _record(fake: Fake, bench: Callable[..., Bench]) -> dict[str, Any]:
    list(bench().run([Choice("fake")]))
    return bench().results.read("fake")["small"]


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
    assert "| what nobody measured | >= 1 | 7 | yes | a cpu | 2026-01-01 | [fake](#fake) |" in table
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


def test_quick_figures_stay_apart(fake: Fake, bench: Callable[..., Bench]) -> None:
    list(bench(quick=True).run([Choice("fake")]))
    quick, real = bench(quick=True), bench()
    assert quick.page.name == "benchmarks-quick.md"
    assert quick.results.read("fake")
    assert not real.results.read("fake")
    assert not real.page.exists()


def test_figures_without_avx512_stay_apart(
    fake: Fake, bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(mask.MARK, mask.AVX2)
    list(bench().run([Choice("fake")]))
    narrow = bench()
    assert narrow.page.name == "benchmarks-avx2.md"
    assert narrow.command("fake").startswith(
        "python -m tests.benchmarks compare --without-avx512 --only fake"
    )
    monkeypatch.delenv(mask.MARK)
    assert not bench().page.exists()
    assert not bench().results.read("fake")


def test_what_cells_leave_is_removed(
    fake: Fake, bench: Callable[..., Bench], tmp_path: Path
) -> None:
    list(bench(keep=True).run([Choice("fake")]))
    assert (tmp_path / "scratch" / "left-behind").exists()
    list(bench().run([Choice("fake")]))
    assert not (tmp_path / "scratch" / "left-behind").exists()


def test_a_choice_without_cells_is_refused(fake: Fake, bench: Callable[..., Bench]) -> None:
    bench().check([Choice("fake", "large")])
    with pytest.raises(InvalidParameterError, match="contains 'huge'; its cells are: small; large"):
        bench().check([Choice("fake"), Choice("fake", "huge")])


def test_an_unknown_comparison_is_named() -> None:
    with pytest.raises(
        InvalidParameterError, match="comparison 'loyd' should be one of assign, wide, lloyd"
    ):
        Choice.of("loyd/400")


# -- files --------------------------------------------------------------------------------------------


def test_numbers_come_back_rounded_and_lists_on_a_line(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.put(
        "a", "x", {"list": [0.1234567891, 2, None], "deep": {"flag": True, "text": "a [ 1 ] b"}}
    )
    assert results.read("a")["x"] == {
        "list": [0.123457, 2, None],
        "deep": {"flag": True, "text": "a [ 1 ] b"},
    }
    results.put("a", "y", {"list": [1.5, -2e-07]})
    assert "[1.5, -2e-07]" in (tmp_path / "a.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_damaged_file_is_not_overwritten(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InvalidDataError, match=r"a\.json is not .*JSON"):
        Results(tmp_path).put("a", "x", {})
    assert (tmp_path / "a.json").read_text() == text


def test_readings() -> None:
    assert at_least(2.0, 2.0).met
    assert not at_most(1.16, 1.15).met
    assert SimpleNamespace(**vars(at_most(50.2, 100, "{:.0f} ms"))).text == "50 ms"
