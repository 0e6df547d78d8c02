"""Verdicts on the claims of papers follow from the results on the page of reproductions."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.benchmarks.__main__ import main
from tests.benchmarks.verdicts import tables
from tests.benchmarks.verdicts.claims import Claim, Finding
from tests.published import DOCS

PAGE = (DOCS / "reproduction.md").read_text(encoding="utf-8")
TABLES = dict(tables())


@pytest.mark.parametrize("section", TABLES)
def test_verdicts_on_the_page_follow_from_the_results(section: str) -> None:
    begin, end = (
        PAGE.index(f"<!-- benchmark: {section} -->"),
        PAGE.index(f"<!-- end: {section} -->"),
    )
    table = "\n".join(TABLES[section].markdown().splitlines()[2:])
    assert PAGE[begin:end].split("\n", 1)[1].strip() == table.strip(), (
        "python -m tests.benchmarks reproduction --verdicts --output docs/reproduction.md"
    )


def test_the_command_prints_all_claims() -> None:
    result = CliRunner().invoke(main, ["reproduction", "--verdicts"])
    assert result.exit_code == 0, result.output
    for table in TABLES.values():
        assert all(row[0] in result.output for row in table.rows)
    assert "| untested: " in result.output


def test_a_verdict_follows_from_the_cases() -> None:
    for holds, verdict in {
        (True, True): "agrees",
        (False, False): "differs",
        (True, False, False): "agrees in 1 of 3 cases",
    }.items():
        assert Claim("it is so", lambda holds=holds: Finding("", holds, "2")).row()[2:] == [
            verdict,
            "2",
        ]
    assert Claim("it is so", "no data").row() == ["it is so", "-", "untested: no data", "-"]
