"""Published benchmarks: the tables that they write, and the sentences of pages on them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.harness.parts import file_name

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLES = DOCS / "results" / "tables"


@dataclass(frozen=True)
class Table:
    """A table: names of the columns (they may repeat) and the cells of each line."""

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


def published(benchmark: str, title: str) -> Table:
    """Return the table of a benchmark whose title begins with these words."""
    name = file_name(title)
    files = [path for path in (TABLES / benchmark).iterdir() if path.stem.startswith(name)]
    files = [path for path in files if path.stem == name] or files
    assert len(files) == 1, f"{benchmark}: {len(files)} tables are named {name}..."
    with files[0].open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    return Table(header, lines)


def said(page: str, pattern: str) -> tuple[str, ...]:
    """Return the groups of a pattern in the text of a page, whose lines may break anywhere."""
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    found = re.search(pattern, text)
    assert found is not None, f"{page} does not say {pattern!r}"
    return found.groups()
