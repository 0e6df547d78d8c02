"""The parts of a section: tables, plots and remarks, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """A table of results with remarks below it.

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

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", _row(self.header), _row(["---"] * len(self.header))]
        lines += [_row(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


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
