"""Independent starts of stochastic backward Euler: the same bits alone, together, or on any worker.

Each start commits its own state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from daskcluster.chunk import compute_dtype
from daskcluster.data.open import open_chunk
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import ModelFormatError
from daskcluster.estimators.checkpoints import Commits, unfit
from daskcluster.estimators.loop import Limits, is_final, mean_distance
from daskcluster.events import Callback, SeedingEnded, publish
from daskcluster.methods.backward_euler.algorithm import (
    BatchAssigner,
    DescentState,
    ImplicitSteps,
    backward_euler,
)
from daskcluster.methods.coreset.start import SAMPLE_ROWS
from daskcluster.methods.kmeans.initial import GIVEN, is_auto, method_for
from daskcluster.methods.minibatch.batches import Batches, whole
from daskcluster.methods.minibatch.sample import centres_of_sample, start_of_batches
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key
from daskcluster.storage.document import document_of, state_of
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class StartsState:
    """State that the fit commits once: the name under which its starts commit theirs.

    Attributes
    ----------
    token : str
        Drawn by the fit, so that starts of an earlier fit are not resumed.
    """

    token: str


@dataclass(frozen=True)
class StartState:
    """State of a start between two outer steps.

    Attributes
    ----------
    token : str
        Token of the fit.
    number : int
    descent : DescentState
    bytes_read : int
        Decoded bytes fetched from the store so far.
    """

    token: str
    number: int
    descent: DescentState
    bytes_read: int


@dataclass(frozen=True)
class StartCommits:
    """Place where starts commit their state; sent to workers.

    Attributes
    ----------
    commits : Commits
        Commits of the fit; a start has a part of it.
    token : str
    """

    commits: Commits
    token: str

    def of(self, number: int) -> Commits:
        """Return the commits of one start, with a clock of their own."""
        return self.commits.part(f"start-{number:05d}")

    def latest(self, number: int, n_clusters: int, n_features: int) -> StartState | None:
        """Return the state of an interrupted start; None for a new one.

        Raises
        ------
        CheckpointError
            The stored state is damaged or of another kind.
        """
        folder = self.of(number).folder
        document = folder.latest()
        if document is None:
            return None
        centres = (n_clusters, n_features)
        shapes: dict[str, tuple[int, ...]] = {"centres": centres, "first_centres": centres}
        shapes |= {"start_means": centres, "start_weights": (n_clusters,)}
        try:
            found = state_of(
                StartState, document, {f"descent_{name}": shape for name, shape in shapes.items()}
            )
        except ModelFormatError as error:
            raise unfit(folder.url, error) from error
        return found if (found.token, found.number) == (self.token, number) else None


_SAMPLE_BATCHES, _SAMPLE_CLUSTERS = 3, 3
"""First centres come from a sample of this many batches, and at least this many rows per cluster."""


@dataclass(frozen=True)
class StartParameters:
    """Everything a start depends on other than its number and the rows: plain values sent to a worker.

    Attributes
    ----------
    init, n_clusters, chain_length, batch_size, max_iter
        Parameters of the estimator.
    steps : ImplicitSteps
    seed : int
        Seed of the fit; a start's own is derived from it and its number.
    room_bytes : int
        For rows that are read ahead.
    validation : Dataset or None
        Rows that the centres are evaluated on after each step.
    """

    init: Any
    n_clusters: int
    chain_length: int
    batch_size: int
    max_iter: int
    steps: ImplicitSteps
    seed: int
    room_bytes: int
    validation: Dataset | None = None

    @property
    def method(self) -> str:
        """Seeding of the first centres."""
        return method_for(self.init, in_memory=True)

    @property
    def sample_rows(self) -> int:
        """Number of rows that the seeding samples; one for given centres, for its dtype."""
        if self.method in GIVEN:
            return 1
        return max(_SAMPLE_BATCHES * self.batch_size, _SAMPLE_CLUSTERS * self.n_clusters)


@dataclass(frozen=True)
class Start:
    """One start and its cost.

    Attributes
    ----------
    number : int
    result : FitResult
    n_rows, bytes_read : int
        Rows of all its batches, each as often as it was drawn; decoded bytes fetched from the store.
    seconds_before : float
        Seconds spent before it was interrupted.
    """

    number: int
    result: FitResult
    n_rows: int
    bytes_read: int
    seconds_before: float = 0.0

    @classmethod
    def of(
        cls, number: int, end: DescentState, dtype: Any, bytes_read: int, before: float
    ) -> Start:
        """Return a start with centres of `dtype`; its history tells the number of rows drawn."""
        n_rows = int(sum(record["n_touched"] for record in end.history))
        result = FitResult.of(replace(end, centres=end.centres.astype(dtype)))
        return cls(number, result, n_rows, bytes_read, before)


def held(dataset: Dataset, room_bytes: int) -> tuple[Dataset, int]:
    """Return rows in memory, which starts share, and the bytes read for them."""
    if dataset.in_memory or dataset.bytes_of((0, dataset.n_rows)) > room_bytes:
        return dataset, 0
    read: list[int] = []
    chunk = whole(dataset, read.append)
    return open_chunk(chunk), sum(read)


def run_start(
    dataset: Dataset,
    parameters: StartParameters,
    number: int,
    *,
    max_time: float | None = None,
    n_threads: int = 1,
    callbacks: Sequence[Callback] = (),
    commits: StartCommits | None = None,
) -> Start:
    """Seed and run the start of that number, or the rest of it, in this process.

    Parameters
    ----------
    dataset : Dataset
    parameters : StartParameters
    number : int
    max_time : float, optional
        Seconds, those before it was interrupted included.
    n_threads : int
    callbacks : sequence of callables
    commits : StartCommits, optional
        The state to resume from, and where to store it.
    """
    found = None
    if commits is not None:
        found = commits.latest(number, parameters.n_clusters, dataset.n_features)
    dtype = compute_dtype(dataset.dtype)
    if found is not None and found.descent.reason is not None:
        descent = found.descent
        left = None if max_time is None else max(0.0, max_time - descent.seconds)
        assert descent.reason is not None
        if is_final(descent.reason, len(descent.history), parameters.max_iter, left):
            return Start.of(number, descent, dtype, found.bytes_read, descent.seconds)
    began, seed = time.perf_counter(), Key(parameters.seed, "restart", number).derived_seed()
    with (
        Batches(
            dataset,
            parameters.batch_size,
            seed,
            room_bytes=parameters.room_bytes,
            least_rows=parameters.sample_rows,
            skipped=0 if found is None else found.descent.n_batches,
            callbacks=callbacks,
        ) as batches,
        ExitStack() as stack,
    ):
        validate = None
        if parameters.validation is not None:
            engine = LocalEngine(n_threads=n_threads)
            rows = ScaledPlacement(stack.enter_context(engine.place(parameters.validation)))
            validate = lambda state: mean_distance(rows, state.centres)  # noqa: E731
        read = 0 if found is None else found.bytes_read
        keep = _keeping(commits, number, batches, read)
        if found is None:
            begin = _seeded(batches, parameters, seed)
            method, seconds = parameters.method, time.perf_counter() - began
            publish(callbacks, SeedingEnded(method, 0, seconds))
            keep(begin)
        else:
            begin = found.descent
        seconds = time.perf_counter() - began
        left = None if max_time is None else max(0.0, max_time - seconds)
        end = backward_euler(
            batches,
            BatchAssigner(dtype, n_threads=n_threads),
            begin,
            parameters.steps,
            Limits(parameters.max_iter, left, callbacks),
            keep=keep,
            validate=validate,
        )
    return Start.of(number, end, dtype, read + batches.bytes_read, begin.seconds)


def _seeded(batches: Batches, parameters: StartParameters, seed: int) -> DescentState:
    """Choose first centres from a sample of rows."""
    if is_auto(parameters.init):
        size = max(SAMPLE_ROWS, parameters.sample_rows)
        start = start_of_batches(batches, parameters.n_clusters, size, seed)
        return DescentState.first(start.centres, parameters.steps)
    sample = batches.sample(parameters.sample_rows, Key(seed, "sample"))
    batches.refuse_bad(sample)
    centres = centres_of_sample(sample, parameters, seed)
    return DescentState.first(centres, parameters.steps)


def _keeping(
    commits: StartCommits | None, number: int, batches: Batches, read_before: int
) -> Callable[[DescentState], None]:
    """Return a function that commits the state of a start when that is due, and at both ends."""
    if commits is None:
        return lambda state: None
    own = commits.of(number)

    def keep(state: DescentState) -> None:
        ends = not state.history or state.reason is not None
        read = read_before + batches.bytes_read
        own.keep(lambda: document_of(StartState(commits.token, number, state, read)), now=ends)

    return keep


def run_starts(
    dataset: Dataset,
    parameters: StartParameters,
    numbers: Sequence[int],
    max_time: float | None = None,
    commits: StartCommits | None = None,
) -> list[Start]:
    """Run some starts one after the other; those that would start after `max_time` are left out."""
    began = time.perf_counter()
    rows, read = held(dataset, parameters.room_bytes)
    done: list[Start] = []
    for number in numbers:
        left = None if max_time is None else max_time - (time.perf_counter() - began)
        if done and left is not None and left <= 0.0:
            break
        start = run_start(rows, parameters, number, max_time=left, commits=commits)
        began -= start.seconds_before
        done.append(start)
    if read:
        done[0] = replace(done[0], bytes_read=done[0].bytes_read + read)
    return done


def spread(
    engine: Engine,
    dataset: Dataset,
    parameters: StartParameters,
    n_starts: int,
    width: int,
    max_time: float | None = None,
    commits: StartCommits | None = None,
) -> list[Start]:
    """Run starts 0 to `n_starts` on an engine, `width` at a time, and return them in order.

    One call on the engine for each of the `width` shares, which share nothing: no message is sent
    while they run.
    """
    shares = [range(first, n_starts, width) for first in range(min(width, n_starts))]
    found = engine.run(
        [partial(run_starts, dataset, parameters, share, max_time, commits) for share in shares]
    )
    return sorted((start for share in found for start in share), key=lambda start: start.number)
