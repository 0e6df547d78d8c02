"""One reading of rows into the state of a stream: pieces are summed up by the engine, folded here."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.methods.streaming.tree.cutting import OpenPart, cut_pieces
from daskcluster.methods.streaming.tree.forgetting import Forgetting
from daskcluster.methods.streaming.tree.pieces import SumUp
from daskcluster.typing import Dataset, Range

if TYPE_CHECKING:  # workers import this module, and need no scikit-learn
    from daskcluster.methods.streaming.fold import StreamFold

T = TypeVar("T")


def check_stamp(forgetting: Forgetting, timestamp: float | None) -> None:
    """Refuse rows without a time where they are forgotten by it, and a time that nobody looks at."""
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
