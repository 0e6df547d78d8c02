"""The parts of a section: tables, plots and remarks, as Markdown; tables as CSV, too."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Table:
    """A table of results with remarks below it.

    `name` is that of its file, by default the first words of the title. A page shows a table that is
    `shown`, and leads to the files of the others.

    Examples
    --------
    >>> print(Table("Seconds", ["n", "s"], [["1,000", 0.12345]], ["One run."]).markdown(), end="")
    ### Seconds
    <BLANKLINE>
    | n | s |
    | --- | --- |
    | 1,000 | 0.123 |
    <BLANKLINE>
    - One run.
    """

    title: str
    header: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    name: str = ""
    shown: bool = False

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", *self._lines()]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def link(self, folder: str) -> str:
        """Return what a page says of it: a link to its file in `folder`; lines and remarks if shown."""
        lines = [f"- [{self.title}]({folder}/{self.stem}.csv)"]
        if self.shown:
            lines += [*(f"    - {note}" for note in self.notes), "", *self._lines(), ""]
        return "\n".join(lines) + "\n"

    def save(self, folder: Path) -> None:
        """Write a CSV file into `folder`, where no table may have the same name."""
        with (folder / f"{self.stem}.csv").open("x", encoding="utf-8", newline="") as file:
            lines = [self.header, *([_cell(cell) for cell in row] for row in self.rows)]
            csv.writer(file, lineterminator="\n").writerows(lines)

    @property
    def stem(self) -> str:
        """The name of its file, without the ending."""
        return self.name or file_name(self.title)

    def _lines(self) -> list[str]:
        return [
            _row(self.header),
            _row(["---"] * len(self.header)),
            *(_row(row) for row in self.rows),
        ]


@dataclass(frozen=True)
class Figure:
    """A plot: its path relative to the page, and its alternative text."""

    path: str
    text: str

    def markdown(self) -> str:
        return f"![{self.text}]({self.path})\n"


@dataclass(frozen=True)
class Note:
    """A paragraph, such as the reason why a plot is missing."""

    text: str

    def markdown(self) -> str:
        return f"{self.text}\n"


Part = Table | Figure | Note


def file_name(title: str) -> str:
    """Return the first words of a title, up to eight, as the name of a file.

    Examples
    --------
    >>> file_name("Table 1: seconds"), file_name("phi on mnist (60,000 x 784), 10 starts")
    ('table-1', 'phi-on-mnist')
    """
    words = re.findall("[a-z0-9]+", re.split(r", |: | \(", title.lower())[0])
    return "-".join(words[:8])


def sentence(phrase: str) -> str:
    """Return a phrase with a capital letter and a full stop.

    Examples
    --------
    >>> sentence("labels of rows")
    'Labels of rows.'
    """
    return f"{phrase[:1].upper()}{phrase[1:]}."


def ratio(value: float | None, over: float | None, digits: int = 2) -> str | None:
    """Return `value` / `over` as text, None if one of them is missing.

    Examples
    --------
    >>> ratio(3.0, 2.0), ratio(None, 2.0)
    ('1.50', None)
    """
    if value is None or not over:
        return None
    return f"{value / over:.{digits}f}"


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
