"""Cells of a comparison: each is measured by itself and saved as plain figures.

Tables, plots and targets are functions of the figures alone. They can be made again without measuring,
and an interrupted comparison resumes with the missing cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.benchmarks.harness.parts import Part
from tests.benchmarks.harness.settings import Settings

Figures = dict[str, Any]
"""Results of a cell: numbers, texts, and lists and dicts of them."""
Records = Mapping[str, Figures]
"""Figures of the cells of one comparison by name, in order."""


@dataclass(frozen=True)
class Cell:
    """One measurement, of one or more programs that take turns.

    Attributes
    ----------
    name : str
        Unique within the comparison, and permanent: saved figures are found by it.
    measure : callable
        Returns the figures. It creates what it needs and leaves nothing in memory.
    """

    name: str
    measure: Callable[[], Figures]


@dataclass(frozen=True)
class Reading:
    """The measured value of a target: a text with the figures, and whether they meet it."""

    text: str
    met: bool


@dataclass(frozen=True)
class Target:
    """A goal that was set before anything was measured.

    Attributes
    ----------
    name : str
        Key in the result files; permanent.
    what, goal : str
        Cells of its line in the summary.
    read : callable
        Returns the reading from the records of the comparison, None if the cells are missing or were
        measured on other rows.
    """

    name: str
    what: str
    goal: str
    read: Callable[[Records], Reading | None]


class Comparison(Protocol):
    """Interface of the modules in `tests.benchmarks.comparisons`."""

    TARGETS: Sequence[Target]
    SCRATCH: Sequence[str]
    """Folders that its cells share; see `Settings.folder`."""

    def cells(self, settings: Settings) -> Iterable[Cell]:
        """Yield the cells, cheap ones first if the order does not matter."""
        ...

    def show(self, records: Records, settings: Settings) -> list[Part]:
        """Return the parts of the section, from the cells that exist."""
        ...


def at_least(value: float, bound: float, text: str = "{:.2f}") -> Reading:
    """Return the reading of a figure whose target is at least `bound`.

    Examples
    --------
    >>> at_least(1.994, 2.0)
    Reading(text='1.99', met=False)
    """
    return Reading(text.format(value), value >= bound)


def at_most(value: float, bound: float, text: str = "{:.2f}") -> Reading:
    """Return the reading of a figure whose target is at most `bound`."""
    return Reading(text.format(value), value <= bound)
