"""Independent starts of stochastic backward Euler, each the same bits alone or among others, anywhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from daskcluster.algorithms.backward_euler import ImplicitSteps, backward_euler
from daskcluster.algorithms.minibatch import refuse_bad_batch
from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.backward_euler import BatchAssigner
from daskcluster.data.batches import Batches, whole
from daskcluster.data.open import open_dataset
from daskcluster.engine.engine import Engine
from daskcluster.estimators.initial import GIVEN, method_for
from daskcluster.estimators.sample import centres_of_sample
from daskcluster.events import Callback, Notice, SeedingEnded, publish
from daskcluster.models.result import FitResult
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

_SAMPLE_BATCHES, _SAMPLE_CLUSTERS = 3, 3
"""First centres come from a sample of so many batches, and at least so many rows a cluster."""


@dataclass(frozen=True)
class StartParameters:
    """What a start depends on beside its number and the rows: plain values that travel to a worker.

    Attributes
    ----------
    init, n_clusters, metric, chain_length, batch_size, max_iter
        Of the estimator.
    steps : ImplicitSteps
    seed : int
        Of the fit; a start's own is derived from it and its number.
    room_bytes : int
        For rows that are read ahead.
    """

    init: Any
    n_clusters: int
    metric: str
    chain_length: int
    batch_size: int
    max_iter: int
    steps: ImplicitSteps
    seed: int
    room_bytes: int

    @property
    def unit(self) -> bool:
        return self.metric == "cosine"

    def sample_rows(self, method: str) -> int:
        """Return how many rows the seeding looks at; of centres that are given one shows the dtype."""
        if method in GIVEN:
            return 1
        return max(_SAMPLE_BATCHES * self.batch_size, _SAMPLE_CLUSTERS * self.n_clusters)


@dataclass(frozen=True)
class Start:
    """One start and what it took.

    Attributes
    ----------
    number : int
    result : FitResult
    n_rows, bytes_read : int
        Rows of all its batches, each as often as it was drawn; decoded bytes fetched from the store.
    """

    number: int
    result: FitResult
    n_rows: int
    bytes_read: int


def held(dataset: Dataset, room_bytes: int) -> tuple[Dataset, int]:
    """Return rows that fit as rows in memory, which starts share, and the bytes that were read."""
    if dataset.in_memory or dataset.bytes_of((0, dataset.n_rows)) > room_bytes:
        return dataset, 0
    read: list[int] = []
    chunk = whole(dataset, read.append)
    return open_dataset(chunk.rows, weights=chunk.weights), sum(read)


def run_start(
    dataset: Dataset,
    parameters: StartParameters,
    number: int,
    *,
    max_time: float | None = None,
    n_threads: int = 1,
    callbacks: Sequence[Callback] = (),
) -> Start:
    """Seed and run the start of a number, in this process."""
    seed = Key(parameters.seed, "restart", number).derived_seed()
    method, began = method_for(parameters.init, in_memory=True), time.perf_counter()
    size = parameters.sample_rows(method)
    with Batches(
        dataset, parameters.batch_size, seed, room_bytes=parameters.room_bytes, least_rows=size
    ) as batches:
        if batches.notice:
            publish(callbacks, Notice(batches.notice))
        sample = batches.sample(size, Key(seed, "sample"))
        refuse_bad_batch(sample, batches.row_of, " of those seen so far")
        centres = centres_of_sample(sample, parameters, seed)
        seconds = time.perf_counter() - began
        publish(callbacks, SeedingEnded(method, 0, seconds))
        result = backward_euler(
            batches,
            BatchAssigner(compute_dtype(dataset.dtype), unit=parameters.unit, n_threads=n_threads),
            centres,
            parameters.steps,
            max_iter=parameters.max_iter,
            max_time=None if max_time is None else max(0.0, max_time - seconds),
            callbacks=callbacks,
        )
    n_rows = int(sum(record["n_touched"] for record in result.history))
    return Start(number, result, n_rows, batches.bytes_read)


def run_starts(
    dataset: Dataset,
    parameters: StartParameters,
    numbers: Sequence[int],
    max_time: float | None = None,
) -> list[Start]:
    """Run some starts one after the other; those whose turn comes after `max_time` are left out."""
    began = time.perf_counter()
    rows, read = held(dataset, parameters.room_bytes)
    done: list[Start] = []
    for number in numbers:
        left = None if max_time is None else max_time - (time.perf_counter() - began)
        if done and left is not None and left <= 0.0:
            break
        done.append(run_start(rows, parameters, number, max_time=left))
    if read:
        first = done[0]
        done[0] = Start(first.number, first.result, first.n_rows, first.bytes_read + read)
    return done


def spread(
    engine: Engine,
    dataset: Dataset,
    parameters: StartParameters,
    n_starts: int,
    width: int,
    max_time: float | None = None,
) -> list[Start]:
    """Run starts 0 to `n_starts` on an engine, `width` at a time, and return them in order.

    One call on the engine for each of the `width` shares, which share nothing: no message is sent
    while they run.
    """
    shares = [range(first, n_starts, width) for first in range(min(width, n_starts))]
    found = engine.run(
        [partial(run_starts, dataset, parameters, share, max_time) for share in shares]
    )
    return sorted((start for share in found for start in share), key=lambda start: start.number)
