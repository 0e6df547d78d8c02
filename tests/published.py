"""Published benchmarks: the tables in the sections that they write, and the sentences around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


@dataclass(frozen=True)
class Table:
    """A Markdown table: names of the columns (they may repeat) and the cells of each line."""

    header: list[str]
    lines: list[list[str]]

    def cell(self, line: str, column: str, nth: int = 0) -> str:
        """Return what is in the nth column of that name, in the only line that begins like that."""
        places = [at for at, name in enumerate(self.header) if name == column]
        found = [cells for cells in self.lines if " | ".join(cells).startswith(line)]
        assert len(found) == 1, f"{len(found)} lines begin with {line!r}"
        return found[0][places[nth]]

    def number(self, line: str, column: str, nth: int = 0) -> float:
        """Return the first number in a cell, whatever stands around it."""
        return first_number(self.cell(line, column, nth))

    def numbers(self, column: str, *, having: str = "") -> list[float]:
        """Return the numbers of a column, of the lines that have this text in them."""
        at = self.header.index(column)
        return [first_number(cells[at]) for cells in self.lines if having in " | ".join(cells)]


def first_number(text: str) -> float:
    found = re.search(r"-?\d[\d,]*(?:\.\d+)?", text)
    assert found is not None, f"no number in {text!r}"
    return float(found[0].replace(",", ""))


def published(page: str, section: str, heading: str) -> Table:
    """Return the first table below the heading of a section that begins with these words."""
    text = (DOCS / page).read_text(encoding="utf-8")
    part = text[
        text.index(f"<!-- benchmark: {section} -->") : text.index(f"<!-- end: {section} -->")
    ]
    begin = re.search(rf"^###? {re.escape(heading)}", part, re.MULTILINE)
    assert begin is not None, f"{page}, {section}: no heading {heading!r}"
    lines = re.search(r"(?:^\|.*\n)+", part[begin.end() :], re.MULTILINE)
    assert lines is not None, f"{page}, {section}: no table below {heading!r}"
    header, _, *rest = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()
    ]
    return Table(header, rest)


def said(page: str, pattern: str) -> tuple[str, ...]:
    """Return the groups of a pattern in the text of a page, whose lines may break anywhere."""
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    found = re.search(pattern, text)
    assert found is not None, f"{page} does not say {pattern!r}"
    return found.groups()
