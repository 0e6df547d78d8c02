"""One reading of rows into the state of a stream: pieces are summed up by the engine, folded here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from daskcluster.coresets.cutting import OpenPart, cut_pieces
from daskcluster.coresets.forgetting import Forgetting
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.streaming_fold import StreamFold
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.typing import Dataset, Range


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
    start, stop = span or (0, dataset.n_rows)
    began, twin = time.perf_counter(), fold.twin()
    parts = [OpenPart(dataset, (start, stop), timestamp)]
    tasks = cut_pieces(parts, twin.position(), twin.settings.leaf)
    publish(callbacks, PassStarted("coresets", stop - start))
    runner = engine if engine.can_read(dataset) else LocalEngine()
    if len(tasks) == 1:  # which is not worth a journey
        runner = LocalEngine(1)
    with closing(runner.run_ahead(tasks)) as pieces:
        for task, piece in zip(tasks, pieces, strict=True):
            twin.add_piece(piece, callbacks)
            publish(callbacks, PassProgress(task.n_rows))
    n_bytes = 0 if dataset.in_memory else dataset.bytes_of((start, stop))
    publish(callbacks, PassEnded("coresets", time.perf_counter() - began, n_bytes))
    return twin
