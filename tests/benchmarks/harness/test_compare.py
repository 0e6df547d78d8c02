"""``python -m tests.benchmarks compare``: what it lists, measures, keeps and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.benchmarks.comparisons import predict


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.harness.race.REST", 0.0)
    monkeypatch.setattr(predict, "QUICK", ((1500, 4, 5), (1000, 3, 4)))


WORDS = ("compare", "--quick", "--repeats", "1", "--threads", "1", "--output", "out")


def test_cells_are_chosen_measured_and_kept(
    here: Path, small: None, run: Callable[..., Result]
) -> None:
    words = (*WORDS, "--only", "predict/1,500", "--json")
    record = json.loads(run(*words).stdout.splitlines()[-1])
    assert (record["measured"], record["kept"]) == (1, 0)
    assert "## predict" in Path("out/benchmarks-quick.md").read_text()
    table = Path("out/results/tables-quick/predict/seconds-to-label-rows-in-memory.csv")
    assert '\n"1,500, 4, 5",' in table.read_text()
    kept = json.loads(Path("out/results/bench-quick/predict.json").read_text())
    assert list(kept) == ["1,500, 4, 5"]
    again = run(*words, "--no-progress")
    assert again.stderr == ""
    record = json.loads(again.stdout.splitlines()[-1])
    assert (record["measured"], record["kept"]) == (0, 1)
    result = run(*WORDS, "--only", "predict", "--render")
    assert "## predict" in result.stdout
    assert "## Summary" in result.stdout
    assert "measured  0 cells" in result.stdout


def test_bad_usage(here: Path, run: Callable[..., Result]) -> None:
    for words, text in (
        (("--only", "loyd"), "comparison 'loyd' should be one of assign, wide, spectra"),
        (
            ("--only", "predict/9,999"),
            "no cell of predict contains '9,999'; its cells are: 100,000",
        ),
        (("--peer", "mine"), "peer 'mine' should be NAME=MODULE:FUNCTION"),
        (("--data", "nowhere"), "nowhere"),
    ):
        result = run("compare", *words)
        assert result.exit_code == 2
        assert text in " ".join(result.stderr.split())
        assert not Path("daskcluster-compare").exists()
