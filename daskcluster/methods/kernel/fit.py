"""One call of ``KernelKMeans.fit``: the Gram matrix, several starts, the best one; projected costs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.fit import Fit, FitRun, mean_cost
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan
from daskcluster.events import Callback, SeedingEnded, StartEnded, publish
from daskcluster.methods.kernel.algorithm import (
    FullResult,
    FullState,
    GramMatrix,
    Members,
    StreamedGram,
    full_batch,
    n_blocks,
    restored,
)
from daskcluster.methods.kernel.chunkwise.gram import PRECOMPUTED
from daskcluster.methods.kernel.graph import (
    graph_and_matrix,
    graph_centres,
    graph_footprint,
    graph_labels,
    graph_scores,
    weights_of,
)
from daskcluster.methods.kernel.initial import (
    HAVE_GAMMA,
    chosen_rows,
    gram_of,
    kernel_restarts,
    measure_by_gram,
    refuse_validation,
    seed_of_start,
)
from daskcluster.methods.kernel.minibatch.algorithm import KernelResult
from daskcluster.methods.kernel.minibatch.fit import (
    kernel_footprint,
    minibatch_footprint,
    rows_per_step,
)
from daskcluster.methods.kernel.parameters import GRAPHS, is_graph
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.storage.state import stored_as, within
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.kernel.estimator import KernelKMeans


@dataclass(frozen=True)
class KernelState:
    """State of a fit between two iterations.

    Attributes
    ----------
    restart : int
        Number of the current start.
    loop : FullState
        State of the current start.
    best : FullState or None
        Final state of the best of the previous starts.
    """

    restart: int = field(metadata=stored_as("start"))
    loop: FullState
    best: FullState | None = None

    def check(self, n_rows: int) -> None:
        """Refuse row and cluster numbers that are out of range."""
        self.loop.check(n_rows)
        if self.best is not None:
            self.best.check(n_rows)


class KernelFit(Fit):
    """One call of fit."""

    estimator: KernelKMeans
    gram: GramMatrix
    weights: np.ndarray

    def __init__(
        self,
        estimator: KernelKMeans,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
        *,
        labelled: bool,
        resume: bool = False,
    ) -> None:
        super().__init__(
            estimator, source, dataset, engine, callbacks, labelled=labelled, resume=resume
        )
        self.method = str(estimator.init) if isinstance(estimator.init, str) else "array"
        self.restarts = kernel_restarts(estimator, self.method)

    name = "kernel"

    def footprint(self) -> Footprint:
        return kernel_footprint(self.dataset, self.n_clusters, self.dataset.n_rows)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the best start, evaluated."""
        estimator, self.weights = self.estimator, weights_of(self.dataset)
        if is_graph(estimator.kernel):
            return self._of_graph(rows)
        placement = rows.placement
        if estimator.kernel == "precomputed" or callable(estimator.kernel):
            rows.known()  # looks for NaN
        self.gram = gram = StreamedGram(placement, gram_of(estimator, rows))
        found = self._best()
        centres = gram.centres(found.members)
        shared = placement.shares_memory and self.labelled
        room = np.empty(gram.n_rows, np.int32) if shared else None
        bound = float(found.costs.max(initial=0.0))
        scores = measure_by_gram(placement, centres, labels=room, bound=bound)
        return FitRun(KernelResult.of(centres, found.state), scores, room)

    def _of_graph(self, rows: ScaledPlacement) -> FitRun:
        """Return the result for a graph's kernel, with the statistics of the last iteration.

        Labels are those of `predict`, which depend only on the neighbours of a row: rows at distance zero
        have the same label.
        """
        estimator = self.estimator
        graph, gram = graph_and_matrix(estimator, rows, self.seed, self.callbacks)
        self.gram = gram
        found = self._best()
        members = found.members
        centres = graph_centres(members.terms, members.norms, gram, graph, estimator.kernel)
        labels = graph_labels(centres, graph)
        scores = graph_scores(found.costs, labels, self.weights, self.n_clusters)
        return FitRun(KernelResult.of(centres, found.state), scores, labels)

    def validation_rows(self) -> Dataset | None:
        refuse_validation(self.estimator)
        return super().validation_rows()

    def validated(self, rows: ScaledPlacement, members: Members) -> float:
        assert isinstance(self.gram, StreamedGram)
        return mean_cost(measure_by_gram(rows.placement, self.gram.centres(members)), rows)

    # -- starts ---------------------------------------------------------------------------------------

    def _best(self) -> FullResult:
        """Return the start with the lowest inertia."""
        n, shapes = self.dataset.n_rows, FullState.shapes(self.dataset.n_rows, self.n_clusters)
        both = {**within("loop", shapes), **within("best", shapes)}
        resumed = self.resumed(KernelState, both, lambda state: state.check(n))
        return self.best_restart(
            resumed,
            lambda state: restored(self.gram, state, self.weights),
            lambda found: found.inertia(self.weights),
        )

    def begin(self, restart: int, best: FullState | None) -> KernelState:
        seeds = self._seeds(self.gram, self.weights, seed_of_start(self.seed, restart))
        state = KernelState(restart, FullState(seeds), best)
        self.keep_step(state, state.loop)
        return state

    def finish(self, state: KernelState) -> tuple[FullState, FullResult]:
        found = full_batch(
            self.gram,
            state.loop,
            self.weights,
            self.limits(),
            tol=self.estimator.tol,
            keep=lambda loop: self.keep_step(replace(state, loop=loop), loop),
            validate=self.validate,
        )
        if self.restarts > 1:
            inertia = found.inertia(self.weights)
            publish(self.callbacks, StartEnded(state.restart, self.restarts, inertia))
        return found.state, found

    def _seeds(self, gram: GramMatrix, weights: np.ndarray, seed: int) -> np.ndarray:
        estimator, began = self.estimator, time.perf_counter()
        if self.method == "array":
            chosen = np.asarray(estimator.init)
            whole = chosen.dtype.kind in "iu"
            if not (whole and ((chosen >= 0) & (chosen < gram.n_rows)).all()):
                raise InvalidParameterError(
                    f"init={estimator.init!r} should have row numbers in 0 to {gram.n_rows - 1}."
                )
        else:
            chosen = chosen_rows(estimator, gram.columns, gram.diagonal, weights, seed)
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return np.asarray(chosen, np.int64)


def plan_minibatch_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `MiniBatchKernelKMeans` fit; `flop` is that of the last pass.

    With a graph, the rows are read once more, and steps are passes by their batches alone.
    """
    n, k, max_iter = dataset.n_rows, *(int(parameters[name]) for name in ("n_clusters", "max_iter"))
    check_enough_rows(dataset, k)
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    b, tau = rows_per_step(n, parameters), int(parameters["truncation"] or 0)
    is_graph, first = parameters["kernel"] in GRAPHS, first_passes(parameters)
    points = k * (tau + b) if tau else k + max_iter * b
    if is_graph or not parameters["replacement"]:
        points = min(points, k * n)
    per_start = -(-max_iter * b // n) + 2
    if not (tau or is_graph):  # products with all rows, per step
        per_start += max_iter + 1
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=first,
        restarts=restarts,
        passes_at_most=first + is_graph + restarts * per_start,
        footprint=graph_footprint(dataset, parameters)
        if is_graph
        else minibatch_footprint(dataset, k, points, batch_rows=b, truncated=bool(tau)),
        flop=pass_flop(dataset, n if is_graph else points),
        commit_bytes=(16 * points + (0 if tau or is_graph else 8 * n * k)) * min(restarts, 2),
    )


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a `KernelKMeans` fit on `dataset`; graphs take a single pass."""
    n, k, max_iter = dataset.n_rows, int(parameters["n_clusters"]), int(parameters["max_iter"])
    check_enough_rows(dataset, k)
    restarts = 1 if parameters["n_init"] == "auto" else int(parameters["n_init"])
    blocks = n_blocks(dataset) if parameters["kernel"] != "precomputed" else 1
    seeding = 1 + first_passes(parameters) + (k if parameters["init"] == "k-means++" else 1)
    return Plan(
        seeding=str(parameters["init"]),
        passes_seeding=seeding,
        restarts=restarts,
        passes_at_most=restarts * (seeding + 2 + max_iter * blocks) + 2,
        footprint=kernel_footprint(dataset, k, n),
        flop=pass_flop(dataset, n),
        commit_bytes=8 * (n + k) * min(restarts, 2),
    )


def first_passes(parameters: Mapping[str, Any]) -> int:
    """Return the number of passes before seeding: one for an automatic gamma or the check for NaN."""
    automatic = parameters["kernel"] in HAVE_GAMMA and parameters["gamma"] == "auto"
    return int(automatic or parameters["kernel"] in (PRECOMPUTED, *GRAPHS))
