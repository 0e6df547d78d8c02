"""Read rows into the state of a stream: the engine summarises parts, this process folds them."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.methods.streaming.tree.pieces import OpenPart, Piece, SumUp, cut_pieces
from daskcluster.methods.streaming.tree.stream_rows import Forgetting
from daskcluster.typing import Dataset, Range

if TYPE_CHECKING:
    from daskcluster.methods.streaming.fold import StreamFold


T = TypeVar("T")


def check_timestamp(forgetting: Forgetting, timestamp: float | None) -> None:
    """Refuse rows without a time where forgetting needs it, and a time that is not used."""
    if forgetting.by_time and timestamp is None:
        raise InvalidParameterError(
            "half_life or window is a time, so rows need one: pass timestamp= to partial_fit, in seconds."
        )
    if timestamp is not None and not forgetting.by_time:
        raise InvalidParameterError(
            f"timestamp={timestamp!r} has no effect where neither half_life nor window is a time; leave it "
            "out, or give one of them as e.g. '6h'."
        )


def fold_dataset(
    fold: StreamFold,
    dataset: Dataset,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
    timestamp: float | None = None,
    span: Range | None = None,
) -> StreamFold:
    """Return `fold` with the rows of a dataset folded in; it is itself left as it was.

    Parameters
    ----------
    fold : StreamFold
    dataset : Dataset
    engine : Engine
    callbacks : sequence of callables
    timestamp : float, optional
        Of all rows.
    span : (start, stop), optional
        Of the rows that are wanted.

    Notes
    -----
    Cost: one pass. Some pieces are read and summed up ahead of the one that is folded, each an eighth of
    its rows.
    """
    twin = fold.twin()
    parts = [OpenPart(dataset, span or (0, dataset.n_rows), timestamp)]
    tasks = cut_pieces(parts, twin.position(), twin.settings.leaf)
    runner = engine if engine.can_read(dataset) else LocalEngine()
    if len(tasks) == 1:  # which is not worth a journey
        runner = LocalEngine(1)
    with closing(runner.run_ahead(tasks)) as pieces:
        for piece in as_pass(pieces, tasks, parts, callbacks):
            twin.add_piece(piece, callbacks)
    return twin


def as_pass(
    found: Iterable[T],
    tasks: Sequence[SumUp],
    parts: Sequence[OpenPart],
    callbacks: Sequence[Callback],
) -> Generator[T]:
    """Yield what tasks found, and tell callbacks of it as of one pass over `parts`.

    Parameters
    ----------
    found : iterable
        One for each of `tasks`; its rows are done when the next one is asked for.
    tasks : sequence of SumUp
    parts : sequence of OpenPart
    callbacks : sequence of callables
    """
    began = time.perf_counter()
    publish(callbacks, PassStarted("coresets", sum(task.n_rows for task in tasks)))
    for task, each in zip(tasks, found, strict=True):
        yield each
        publish(callbacks, PassProgress(task.n_rows))
    read = (part for part in parts if not part.dataset.in_memory)
    n_bytes = sum(part.dataset.bytes_of(part.span) for part in read)
    publish(callbacks, PassEnded("coresets", time.perf_counter() - began, n_bytes))


UNREADABLE = (InvalidDataError, InvalidParameterError, DatasetNotFoundError)
"""Errors that an object causes; all others end the cycle."""


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
        Where the parts continue; left as it is.
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
        totals = as_pass(found, tasks, parts, callbacks)
        for names, each in zip(_numbered(tasks, parts), totals, strict=True):
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
