"""VarianceReducedKMeans: single-row steps whose noise vanishes, its fit and its dry run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import RowDataset, in_partitions, partition_edges
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import Footprint, thread_rows
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.base import in_declared_order
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import Notice, PassEnded, PassStarted, publish
from daskcluster.invariance import DRAWN, SEEDING, varies_with
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.methods.kmeans.fit import (
    SeededFit,
    fit_footprint,
    measure_run,
    pass_flop,
)
from daskcluster.methods.kmeans.initial import method_for, seeding_of
from daskcluster.methods.minibatch.batches import whole
from daskcluster.methods.variance_reduced.algorithm import (
    STEPS,
    EpochsState,
    StepParams,
    StepRule,
    StepsTaken,
    TakeSteps,
    VarianceReduced,
    secant_bytes,
)
from daskcluster.methods.variance_reduced.parameters import VARIANCE_REDUCED
from daskcluster.models.fitted import FitResult
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key
from daskcluster.typing import Dataset


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
        algorithm = VarianceReduced(
            rows,
            self.take_steps,
            rule=StepRule(estimator.epoch_size, len(self.edges) - 1),
            key=Key(self.seed, "steps"),
            full_gradient=estimator.variant == "vrkm",
            guard=bool(estimator.guard),
            adapts=bool(estimator.adaptive_rate),
            tol=estimator.tol,
            labels=labels,
        )
        end = algorithm.run(state, self.limits(), keep=self.keep_step, validate=self.validate)
        result = FitResult.of(end, None if labels is None else state)
        return self._evaluated(rows, end, result, labels)

    @cached_property
    def edges(self) -> np.ndarray:
        """Edges of the partitions of the inner loop."""
        assert isinstance(self.dataset, RowDataset)
        wanted = self.estimator.n_partitions
        return partition_edges(self.dataset, None if wanted == "auto" else int(wanted))

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
        view = in_partitions(dataset, list(pairwise(edges.tolist())))
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
    seeding = seeding_of(method).passes(n_clusters)
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


@varies_with(
    chunks="Rows above 256 MB are divided into partitions that end at chunks.",
    storage=SEEDING,
    order=DRAWN,
)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class VarianceReducedKMeans(KMeansEstimator):
    """Variance reduced k-means (VRKM, VRKM++).

    An epoch assigns all rows and moves centres to the means of their rows, as Lloyd's algorithm does. Then
    rows drawn at random move centres one by one, at a constant rate: only rows whose nearest centre has
    changed meanwhile pull, so the noise of stochastic gradients fades as the fit settles. Rows above 256 MB
    are divided into partitions that end at chunks, on which the result then depends.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    init : str, URL, array, callable or estimator, default "auto"
        The same as in `KMeans`.
    variant : {"vrkm++", "vrkm"}, default "vrkm++"
        ``"vrkm"`` computes the full gradient too, in one more pass an epoch. It is zero where steps begin,
        so both give the same centres, to the bit.
    learning_rate : float >= 0 or "auto", default "auto"
        eta, the share of the way that a step moves a centre. ``"auto"`` is the paper's K / n. The paper
        goes beyond a hundred times that on large data; if steps diverge, it is halved.
    adaptive_rate : bool, default False
        From the second epoch on, the rate is that of Barzilai and Borwein, as Tan et al. ("Barzilai-Borwein
        step size for stochastic gradient descent", 2016) have it: usually two to five times K / n. It costs
        no pass.
    epoch_size : float >= 0 or "doubling", default 1.0
        Steps of an epoch, as a multiple of the rows; 0 is Lloyd's algorithm. ``"doubling"``: 2^s in epoch
        s, to twice the rows at most.
    n_partitions : int >= 1 or "auto", default "auto"
        1 is the sequential algorithm of the paper; its rows have to fit into memory. Of several partitions
        (of stored rows: whole chunks), each takes its share of the steps from the same centres, and what
        all did is added up: they run side by side, and no row leaves its partition. ``"auto"``: 1 for
        rows of up to 256 MB, else one for each 64 MB.
    guard : bool, default True
        Undo an epoch that raises the inertia. False: the rate and the centres stay as the steps leave them,
        as in the paper; but steps that take a centre farther than any two rows can be apart are dropped.
    max_iter : int >= 0, default 300
        Epochs at most; 0 keeps the first centres.
    tol : float >= 0, default 0.0001
        Stop when the inertia changes by at most this times itself from one epoch to the next; 0 waits until
        nothing moves.
    metric : {"euclidean", "cosine"}, default "euclidean"
        With ``"cosine"``, centres are scaled to length one at the end of each epoch.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        The same as in `KMeans`. The steps of a single partition run in this process in any case.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`, an `EpochEnded` for each epoch.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Seconds for the whole fit; the epoch that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        The same as in `daskcluster.KMeans`, after each epoch.
    chain_length : int >= 1, default 10
        Rows that afk-mc2 proposes for each centre.
    checkpoint : str or path, optional
        The same as in `daskcluster.KMeans`; a commit takes the bytes of the centres twice.
    checkpoint_every : int >= 1, default 10
        Epochs between two commits.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, stop_reason_, seeding_, n_features_in_, feature_names_in_
        The same as in `KMeans`.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
    n_iter_ : int
        Epochs.
    passes_, bytes_read_ : int
        Passes over all rows, steps of several partitions included; decoded bytes fetched from the store.
    history_ : list of dict
        A record per epoch: ``inertia`` of the centres it began with, ``shift``, ``seconds``,
        ``learning_rate``, ``n_steps``, ``n_switched`` (steps whose row had changed centres), ``went_back``,
        ``full_gradient`` (its length; of ``"vrkm"``), ``n_distances``, ``mean_squared_distance``,
        ``validation``.

    Notes
    -----
    Cost: n k distances and one pass an epoch, T k distances of its steps, for which several partitions
    read the rows once more; ``"vrkm"`` one more pass; in the end one pass for inertia and labels. What
    travels: 8 k (d + 1) bytes a task and pass. Memory: 20 k (d + 1) bytes more than `KMeans` for each
    thread, and the rows of a partition.

    The guard: the inertia of an epoch is that of the centres it begins with. If it is higher than an epoch
    before, steps have lost more than the means had gained: centres go back to those means, the rate is
    halved, and a `Notice` says so. Hence the inertia never rises at any rate. ``guard=False`` and
    ``tol=0`` follow the paper but for that.

    What differs from the paper (Zhao et al., "Large-scale k-means clustering via variance reduction",
    Neurocomputing 2018): the guard and `tol`; with weights, rows are drawn in proportion to them; empty
    clusters keep their centres. The paper's objective is half the inertia.

    The result does not depend on the engine, threads or workers; nor on chunks, if there is one partition.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[1.0, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = dc.VarianceReducedKMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist()), model.inertia_
    ([[1.0, 2.0], [10.0, 2.0]], 16.0)
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = VARIANCE_REDUCED
    fit_class: ClassVar[type[Fit]] = VarianceReducedFit

    init: Any = "auto"
    variant: str = "vrkm++"
    learning_rate: float | str = "auto"
    adaptive_rate: bool = False
    epoch_size: float | str = 1.0
    n_partitions: int | str = "auto"
    guard: bool = True
    max_iter: int = 300
    tol: float = 1e-4

    def rate_for(self, dataset: Dataset) -> float:
        """Return the learning rate of the first epoch."""
        if self.learning_rate == "auto":
            return min(1.0, self.n_clusters / dataset.n_rows)
        return float(self.learning_rate)
