"""Rows of several objects summed up side by side, where one of them may turn out to be unreadable."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from daskcluster.engine.engine import Engine
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError
from daskcluster.events import Callback
from daskcluster.methods.streaming.reading import as_pass
from daskcluster.methods.streaming.tree.cutting import OpenPart, cut_pieces
from daskcluster.methods.streaming.tree.pieces import Piece, SumUp

if TYPE_CHECKING:  # workers import this module, and need no scikit-learn
    from daskcluster.methods.streaming.fold import StreamFold

UNREADABLE = (InvalidDataError, InvalidParameterError, DatasetNotFoundError)
"""What is the fault of an object; all other errors end the cycle."""


@dataclass(frozen=True)
class Bad:
    """Which part cannot be read, by its number, and why."""

    number: int
    why: str


class _Attempt:
    """A task whose error is a result: one bad object must not lose the others."""

    def __init__(self, task: SumUp) -> None:
        self.task = task

    def __call__(self) -> Piece | Bad:
        try:
            return self.task()
        except UNREADABLE as error:
            if len(self.task.parts) == 1:
                return Bad(0, str(error))
            return self._found_out(error)

    def _found_out(self, error: Exception) -> Bad:
        """Look for the part that is to blame, which costs reading them once more."""
        for number, part in enumerate(self.task.parts):
            try:
                SumUp((part,), self.task.position, self.task.settings)()
            except UNREADABLE as found:
                return Bad(number, str(found))
        raise error


def sum_up(
    parts: Sequence[OpenPart],
    fold: StreamFold,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
) -> Generator[Piece | Bad]:
    """Yield what is left of parts that come next in a stream, in order, while the next are being read.

    Parameters
    ----------
    parts : sequence of OpenPart
    fold : StreamFold
        Where the parts go on; left as it is.
    engine : Engine
    callbacks : sequence of callables
        Hear of it as of one pass.

    Yields
    ------
    Piece or Bad
        What comes after something that is bad stands elsewhere in the stream than its pieces say.
    """
    tasks = cut_pieces(parts, fold.position(), fold.settings.leaf)
    found = engine.run_ahead([_Attempt(task) for task in tasks])
    with closing(found):
        told = as_pass(found, tasks, parts, callbacks)
        for names, each in zip(_numbered(tasks, parts), told, strict=True):
            yield Bad(names[each.number], each.why) if isinstance(each, Bad) else each


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
