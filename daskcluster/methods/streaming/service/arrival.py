"""What a source holds under one name, as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from daskcluster.typing import Dataset, Range


@dataclass(frozen=True)
class Arrival:
    """An object of a source.

    Attributes
    ----------
    name : str
        Unique within the source, and its place in the order of the stream.
    version : str
        Changes when the content does.
    n_rows : int
        Rows that can be read.
    timestamp : float
        The object's own, in seconds since 1970: its attribute ``timestamp``, or when it was last modified.
    modified : float
        When it was last modified, by the store.
    problem : str
        Why it cannot be read yet; empty if it can.
    grows : bool
        Rows are appended to it; what was read of it stays as it is.
    array : str
        Which array of it holds the rows, if it is a group that has several.
    """

    name: str
    version: str
    n_rows: int = 0
    timestamp: float = 0.0
    modified: float = 0.0
    problem: str = ""
    grows: bool = False
    array: str = ""


@dataclass(frozen=True)
class Taken:
    """What was folded of an object so far.

    Attributes
    ----------
    version : str
    stop : int
        Rows of it that were folded.
    rejected : str
        Why it was not; empty if it was.
    """

    version: str
    stop: int
    rejected: str = ""


class Source(Protocol):
    """Where rows come from, in order."""

    has_times: ClassVar[bool]
    """Whether objects have time stamps of their own."""

    def look(self, taken: Mapping[str, Taken]) -> list[Arrival]:
        """Return what is there, in the order of the stream.

        Parameters
        ----------
        taken : mapping of str to Taken
            What was folded, by name: what has not changed since then need not be opened.
        """
        ...

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        """Open rows of an object, to be read once.

        Raises
        ------
        DaskClusterError
            They cannot be read.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Return what decides what the stream consists of, as plain values without credentials."""
        ...
