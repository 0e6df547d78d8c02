"""Fits whose steps run in this process: initial centres from a sample, threads, memory for rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.data_statistics import refuse_rows
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine, default_threads
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.engine.scaled import score_rows
from daskcluster.errors import InvalidDataError
from daskcluster.events import Callback, Notice, publish
from daskcluster.host import format_bytes, format_limit, host_memory
from daskcluster.methods.coreset.start import SampledStart, sampled_start
from daskcluster.methods.kmeans.initial import GIVEN, initial_centres, method_for, placed
from daskcluster.methods.minibatch.batches import Batches, order_bytes
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

_LEAST_ROOM = 16 << 20


def centres_of_sample(sample: Batch, parameters: Any, seed: int, restarts: int = 1) -> np.ndarray:
    """Return first centres (k, d) in the compute dtype: of all restarts, the best on the sample.

    Parameters
    ----------
    sample : Batch
    parameters : object
        With ``init``, ``n_clusters`` and ``chain_length``: an estimator, or what a task gets of it.
    seed, restarts : int
    """
    rows = sample.rows[sample.listed]
    given = method_for(parameters.init, in_memory=True) in GIVEN
    weights = None if given or sample.weights is None else sample.listed_weights()
    with placed(Chunk(rows, 0, weights, sample.normalize)) as few:
        best: tuple[float, np.ndarray] | None = None
        for number in range(restarts):
            centres = initial_centres(
                parameters.init,
                few,
                parameters.n_clusters,
                Key(seed, "start", number).derived_seed(),
                source=rows if isinstance(rows, np.ndarray) else few.placement.dataset,
                chain_length=parameters.chain_length,
            )
            cost = 0.0 if restarts == 1 else score_rows(few, centres).inertia
            if best is None or cost < best[0]:
                best = cost, centres
    assert best is not None
    return best[1]


def start_of_batches(
    batches: Batches, n_clusters: int, size: int, seed: int, restarts: int = 1
) -> SampledStart:
    """Return a start from a sample by sensitivity of the rows that batches hold in memory."""
    chunk, row_of = batches.held()
    try:
        with placed(chunk) as rows:
            return sampled_start(rows, n_clusters, size, seed, restarts)
    except InvalidDataError:
        refuse_rows(chunk.rows, row_of, " of those seen so far", normalize=chunk.normalize)
        raise


def threads_of(engine: Engine) -> int:
    """Return the number of threads of this process that a step may use: all of them with a cluster."""
    return engine.n_threads if isinstance(engine, LocalEngine) else default_threads()


def batch_room(engine: Engine, dataset: Dataset, callbacks: Sequence[Callback], most: int) -> int:
    """Return the memory for rows that are read ahead in this process, at most `most` bytes.

    The same everywhere, for the draw depends on it, unless the memory limit leaves less: for the rows, and
    for the orders that they are drawn in.
    """
    limit = engine.memory_limit if isinstance(engine, LocalEngine) else host_memory()
    size = dataset.bytes_of((0, dataset.n_rows)) / max(1, dataset.n_rows)
    values = size / (size + order_bytes(dataset)) if size else 1.0
    room = min(most, max(int((limit - BASELINE_BYTES) * values), _LEAST_ROOM))
    if room < most and not dataset.in_memory:
        publish(
            callbacks,
            Notice(
                f"memory_limit={format_limit(limit)} leaves {format_bytes(room)} for rows read "
                f"ahead instead of {format_bytes(most)}: batches, and so the result of a seed, "
                "are others than with a higher limit."
            ),
        )
    return room
