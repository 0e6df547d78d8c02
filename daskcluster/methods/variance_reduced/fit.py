"""One call of ``VarianceReducedKMeans.fit``: place rows, seed, run the epochs; and its dry run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import PartitionedDataset, RowDataset, partition_edges
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import Footprint, thread_rows
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import Notice, PassEnded, PassStarted, publish
from daskcluster.methods.kmeans.fit import (
    SeededFit,
    fit_footprint,
    measure_run,
    pass_flop,
    seeding_passes,
)
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.minibatch.batches import whole
from daskcluster.methods.variance_reduced.algorithm import (
    EpochsState,
    StepRule,
    TakeSteps,
    secant_bytes,
    variance_reduced,
)
from daskcluster.methods.variance_reduced.chunkwise import STEPS, StepParams, StepsTaken
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.variance_reduced.estimator import VarianceReducedKMeans


def steps_here(rows: Chunk, params: StepParams) -> StepsTaken:
    """Take all steps with `rows` as one partition: the sequential algorithm of the paper."""
    prepared = STEPS.prepare(params)
    taken: StepsTaken = STEPS.zero(prepared)
    STEPS.chunk(rows, prepared, taken)
    return taken


class VarianceReducedFit(SeededFit):
    """One call of fit."""

    estimator: VarianceReducedKMeans
    take_steps: TakeSteps

    @property
    def name(self) -> str:  # type: ignore[override]
        return str(self.estimator.variant)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        estimator, shape = self.estimator, (self.n_clusters, self.dataset.n_features)
        labels = self.kept_labels(rows.placement)
        arrays = ("centres", "snapshot", "secant_centres", "secant_gradient")
        state = self.resumed(EpochsState, dict.fromkeys(arrays, shape))
        if state is None:
            centres = self.seeded(rows, Key(self.seed, "restart"))  # as KMeans has it
            state = EpochsState(centres, estimator.rate_for(self.dataset))
            self.keep_step(state)
        end = variance_reduced(
            rows,
            state,
            self.take_steps,
            self.limits(),
            rule=StepRule(estimator.epoch_size, len(self.edges) - 1),
            key=Key(self.seed, "steps"),
            full_gradient=estimator.variant == "vrkm",
            guard=bool(estimator.guard),
            adapts=bool(estimator.adaptive_rate),
            tol=estimator.tol,
            labels=labels,
            keep=self.keep_step,
            validate=self.validate,
        )
        result = FitResult.of(end, None if labels is None else state)
        return self._evaluated(rows, end, result, labels)

    @cached_property
    def edges(self) -> np.ndarray:
        """Edges of the partitions of the inner loop."""
        assert isinstance(self.dataset, RowDataset)
        return partition_edges(self.dataset, self.estimator.wanted_partitions)

    def footprint(self) -> Footprint:
        adapts, n_partitions = self.estimator.adaptive_rate, len(self.edges) - 1
        return vrkm_footprint(self.dataset, self.n_clusters, self.init, n_partitions, adapts=adapts)

    def placed(self, stack: ExitStack) -> Placement:
        """Return the engine of the passes; `take_steps` becomes the one of the inner loop."""
        dataset, edges, footprint = self.dataset, self.edges, self.footprint()
        assert isinstance(dataset, RowDataset)
        if len(edges) == 2:
            placement = super().placed(stack)
            self.take_steps = partial(steps_here, self._gathered())
            return placement
        # A partition steps for itself, from the snapshot; what all of them did is added up.
        view = PartitionedDataset(dataset, edges)
        placement = self.engine.place(view, footprint=footprint, callbacks=self.callbacks)
        stack.enter_context(placement)
        self.take_steps = partial(placement.reduce, STEPS)
        if not (placement.shares_memory and dataset.in_memory):
            return placement
        # Rows of this process are shared among threads in smaller pieces, but for the steps.
        return super().placed(stack)

    def _gathered(self) -> Chunk:
        """Return all rows: views of rows in memory; other rows are read in an extra pass."""
        if self.dataset.in_memory:
            return whole(self.dataset)
        began = time.perf_counter()
        publish(self.callbacks, PassStarted("gather", self.dataset.n_rows))
        read: list[int] = []
        rows = whole(self.dataset, read.append)
        self.bytes_read += sum(read)
        self.passes += 1
        publish(self.callbacks, PassEnded("gather", time.perf_counter() - began, self.bytes_read))
        return rows

    def _evaluated(
        self,
        rows: ScaledPlacement,
        end: EpochsState,
        result: FitResult,
        labels: np.ndarray | None,
    ) -> FitRun:
        """Return the final figures; if the last steps diverged, those of the centres before them."""
        run = measure_run(rows, result, labels, labelled=self.labelled)
        if not self.estimator.guard or run.found.inertia <= end.bound * (1.0 + 1e-6):
            return run
        text = (
            f"the steps of the last epoch raised the inertia from {end.bound:.6g} to "
            f"{run.found.inertia:.6g}; the centres are those of its position correction. Pass a smaller "
            "learning_rate or epoch_size."
        )
        publish(self.callbacks, Notice(text))
        snapshot = np.empty((0, 0)) if end.snapshot is None else end.snapshot
        back = replace(result, centres=snapshot, labelled=False)
        return measure_run(rows, back, labels, labelled=self.labelled)


def vrkm_footprint(
    dataset: Dataset, n_clusters: int, init: object, n_partitions: int, *, adapts: bool = False
) -> Footprint:
    """Return what a fit needs: as Lloyd's algorithm, centres on their way, and rows that are one partition.

    Those are held from the first pass to the last, in the process that makes the steps; so are two secants
    if the rate adapts.
    """
    base = fit_footprint(dataset, n_clusters, method_for(init, in_memory=dataset.in_memory))
    moving = (2 * 8 + 4) * n_clusters * (dataset.n_features + 1)
    held = 2 * secant_bytes(n_clusters, dataset.n_features) if adapts else 0
    if n_partitions == 1 and not dataset.in_memory:
        weights = 0 if dataset.weights is None else 8 * dataset.n_rows
        held += dataset.bytes_of((0, dataset.n_rows)) + weights
    return replace(base, thread_bytes=base.thread_bytes + moving, home_bytes=held)


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`."""
    n_clusters, wanted = int(parameters["n_clusters"]), parameters["n_partitions"]
    check_enough_rows(dataset, n_clusters)
    assert isinstance(dataset, RowDataset)
    method = method_for(parameters["init"], in_memory=dataset.in_memory)
    seeding = seeding_passes(method, n_clusters)
    edges = partition_edges(dataset, None if wanted == "auto" else int(wanted))
    gathering, stepping = 0, 0
    if not dataset.in_memory:
        gathering, stepping = (1, 0) if len(edges) == 2 else (0, 1)
    an_epoch = 1 + stepping + int(parameters["variant"] == "vrkm")
    adapts = bool(parameters["adaptive_rate"])
    kept = secant_bytes(n_clusters, dataset.n_features) if adapts else 0
    n_partitions = len(edges) - 1
    footprint = vrkm_footprint(dataset, n_clusters, parameters["init"], n_partitions, adapts=adapts)
    if n_partitions > 1 and not dataset.in_memory:
        # Partitions are larger than those that a projection counts.
        larger = thread_rows(dataset, pairwise(edges.tolist()))
        larger -= thread_rows(dataset, dataset.partitions)
        footprint = replace(footprint, thread_bytes=footprint.thread_bytes + max(0, larger))
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + gathering + an_epoch * int(parameters["max_iter"]) + 1,
        footprint=footprint,
        flop=pass_flop(dataset, n_clusters),
        commit_bytes=2 * centres_bytes(dataset, n_clusters) + kept,
    )
