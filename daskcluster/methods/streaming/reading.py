"""Folding of datasets into the state of a stream: the engine summarises pieces, this process folds them."""

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
    """Refuse a missing timestamp if ages are times, and a timestamp that has no effect."""
    if forgetting.by_time and timestamp is None:
        raise InvalidParameterError(
            "half_life or window is a time, so rows need a timestamp: pass timestamp= to partial_fit, in "
            "seconds."
        )
    if timestamp is not None and not forgetting.by_time:
        raise InvalidParameterError(
            f"timestamp={timestamp!r} has no effect where neither half_life nor window is a time; omit it, "
            "or set one of them to a time such as '6h'."
        )


def fold_dataset(
    fold: StreamFold,
    dataset: Dataset,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
    timestamp: float | None = None,
    span: Range | None = None,
) -> StreamFold:
    """Return a copy of `fold` with the rows of a dataset folded in; `fold` itself does not change.

    Parameters
    ----------
    fold : StreamFold
    dataset : Dataset
    engine : Engine
    callbacks : sequence of callables
    timestamp : float, optional
        Timestamp of all rows.
    span : (start, stop), optional
        Range of rows; None: all.

    Notes
    -----
    Cost: one pass. Memory: a few pieces, which are prefetched and summarised; a summary has an eighth of
    the rows of its piece.
    """
    twin = fold.twin()
    parts = [OpenPart(dataset, span or (0, dataset.n_rows), timestamp)]
    tasks = cut_pieces(parts, twin.position(), twin.settings.leaf)
    runner = engine if engine.can_read(dataset) else LocalEngine()
    if len(tasks) == 1:  # not worth sending to workers
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
    """Yield the results of tasks, with events to callbacks as for one pass over `parts`.

    Parameters
    ----------
    found : iterable
        A result per task; progress is reported when the next one is requested.
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
"""Errors of a single object, which is then rejected; other errors end the cycle."""


@dataclass(frozen=True)
class Bad:
    """A part that cannot be read: its number, and the reason."""

    number: int
    why: str


class _Attempt:
    """A task that returns an error as its result, so that one bad object does not lose the others."""

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
        """Find the part that raises the error, by reading the parts one by one."""
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
    """Summarise the next parts of a stream; yield the results in order while later parts are being read.

    Parameters
    ----------
    parts : sequence of OpenPart
    fold : StreamFold
        The state that the parts follow. Not changed.
    engine : Engine
    callbacks : sequence of callables
        Called with the events of one pass.

    Yields
    ------
    Piece or Bad
        Pieces after a `Bad` part are invalid, because their positions in the stream are wrong.
    """
    tasks = cut_pieces(parts, fold.position(), fold.settings.leaf)
    found = engine.run_ahead([_Attempt(task) for task in tasks])
    with closing(found):
        totals = as_pass(found, tasks, parts, callbacks)
        for names, each in zip(_numbered(tasks, parts), totals, strict=True):
            yield Bad(names[each.number], each.why) if isinstance(each, Bad) else each


def _numbered(tasks: Sequence[SumUp], parts: Sequence[OpenPart]) -> list[list[int]]:
    """Return, for every task, the positions in `parts` of its own parts."""
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
