"""A comparison is made of cells, each measured by itself and kept as plain figures.

Tables, plots and targets are functions of the figures alone, so that they can be made again without
measuring, and a comparison that was interrupted continues with the cells that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.benchmarks.harness.parts import Part
from tests.benchmarks.harness.settings import Settings

Figures = dict[str, Any]
"""What a cell measured: numbers, texts, lists and dicts of them."""
Records = Mapping[str, Figures]
"""Figures of the cells of one comparison, by their names, in their order."""


@dataclass(frozen=True)
class Cell:
    """One measurement, in turns with whatever it compares.

    Attributes
    ----------
    name : str
        Of its own within the comparison; stays the same, so that its figures are found again.
    measure : callable
        Returns the figures. It makes what it needs and leaves nothing in memory.
    """

    name: str
    measure: Callable[[], Figures]


@dataclass(frozen=True)
class Reading:
    """What a target came to: a text with the figures, and whether they are good enough."""

    text: str
    met: bool


@dataclass(frozen=True)
class Target:
    """A figure that was set before anything was measured.

    Attributes
    ----------
    name : str
        In files; never changes.
    what, goal : str
        The line of the table.
    read : callable
        Returns what the records of the comparison say, None if the cells are not among them or were
        made of other rows.
    """

    name: str
    what: str
    goal: str
    read: Callable[[Records], Reading | None]


class Comparison(Protocol):
    """What a module in `tests.benchmarks.comparisons` has."""

    TARGETS: Sequence[Target]
    SCRATCH: Sequence[str]
    """Folders that its cells leave for each other; see `Settings.folder`."""

    def cells(self, settings: Settings) -> Iterable[Cell]:
        """Yield the cells, cheap ones first where it does not matter."""
        ...

    def show(self, records: Records, settings: Settings) -> list[Part]:
        """Return the section of the page from the cells that are there."""
        ...


def at_least(value: float, bound: float, text: str = "{:.2f}") -> Reading:
    """Return the reading of a figure that should be at least `bound`.

    Examples
    --------
    >>> at_least(1.994, 2.0)
    Reading(text='1.99', met=False)
    """
    return Reading(text.format(value), value >= bound)


def at_most(value: float, bound: float, text: str = "{:.2f}") -> Reading:
    """Return the reading of a figure that should be at most `bound`."""
    return Reading(text.format(value), value <= bound)
