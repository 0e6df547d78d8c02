"""Rows of several objects summed up side by side, where one of them may turn out to be unreadable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from daskcluster.coresets.pieces import OpenPart, Piece, SumUp, cut_pieces
from daskcluster.engine.engine import Engine
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError
from daskcluster.estimators.streaming_fold import StreamFold

UNREADABLE = (InvalidDataError, InvalidParameterError, DatasetNotFoundError)
"""What is the fault of an object; all other errors end the cycle."""


@dataclass(frozen=True)
class _Bad:
    """Which part of a task cannot be read, and why."""

    number: int
    why: str


class _Attempt:
    """A task whose error is a result: one bad object must not lose the others."""

    def __init__(self, task: SumUp) -> None:
        self.task = task

    def __call__(self) -> Piece | _Bad:
        try:
            return self.task()
        except UNREADABLE as error:
            if len(self.task.parts) == 1:
                return _Bad(0, str(error))
            return self._found_out(error)

    def _found_out(self, error: Exception) -> _Bad:
        """Look for the part that is to blame, which costs reading them once more."""
        for number, part in enumerate(self.task.parts):
            try:
                SumUp((part,), self.task.position, self.task.settings)()
            except UNREADABLE as found:
                return _Bad(number, str(found))
        raise error


def sum_up(
    parts: Sequence[OpenPart], fold: StreamFold, engine: Engine
) -> tuple[list[Piece], dict[int, str]]:
    """Return what is left of parts that come next in a stream, or which of them are unreadable, and why.

    Parameters
    ----------
    parts : sequence of OpenPart
    fold : StreamFold
        Left as it is.
    engine : Engine

    Returns
    -------
    pieces : list of Piece
        In order; empty if something is unreadable, for then all that comes after it stands elsewhere.
    bad : dict of int to str
        By the number of the part.
    """
    tasks = cut_pieces(parts, fold.position(), fold.settings.leaf)
    found = engine.run([_Attempt(task) for task in tasks])
    bad: dict[int, str] = {}
    for names, each in zip(_numbered(tasks, parts), found, strict=True):
        if isinstance(each, _Bad):
            bad[names[each.number]] = each.why
    return [each for each in found if isinstance(each, Piece)] if not bad else [], bad


def _numbered(tasks: Sequence[SumUp], parts: Sequence[OpenPart]) -> list[list[int]]:
    """Return for every task which of `parts` its own parts are."""
    ends = list(accumulate(part.span[1] - part.span[0] for part in parts))
    found, row, number = [], 0, 0
    for task in tasks:
        names = []
        for part in task.parts:
            while ends[number] <= row:
                number += 1
            names.append(number)
            row += part.n_rows
        found.append(names)
    return found
