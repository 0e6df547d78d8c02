"""One call of ``HierarchicalKMeans.fit``: cells, quotas, k-means in each cell, then all centres."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.open import open_chunk
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine, next_segment_count
from daskcluster.engine.local import home_engine
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.stopping import is_final
from daskcluster.events import (
    Notice,
    PassEnded,
    PassProgress,
    PassStarted,
    SeedingEnded,
    StopReason,
    publish,
)
from daskcluster.methods.coreset.algorithm import lightweight_coreset
from daskcluster.methods.hierarchical.cells import cell_groups, n_groups
from daskcluster.methods.hierarchical.levels import (
    nearest_rows,
    resample_rounds,
    resample_size,
    sizes_above,
)
from daskcluster.methods.hierarchical.projection import (
    FEW_REFINEMENTS,
    coarse_cells,
    coarse_sample,
    hierarchical_footprint,
)
from daskcluster.methods.hierarchical.state import HierarchicalState
from daskcluster.methods.hierarchical.within_cells import (
    CellParameters,
    cell_method,
    counter,
    find_quotas,
    fit_cells,
    fit_centres,
    quota_shares,
)
from daskcluster.methods.kmeans.algorithm import lloyd
from daskcluster.methods.kmeans.base import KMeansRun, measure_run
from daskcluster.methods.kmeans.bounds import AssignmentChoice
from daskcluster.models.balance import Balance
from daskcluster.models.fitted import FitResult
from daskcluster.randomness import Key
from daskcluster.typing import Range

if TYPE_CHECKING:
    from daskcluster.methods.hierarchical.estimator import HierarchicalKMeans

_SHARES = 4
"""Groups of cells for each thread, where making more of them costs no pass."""


class HierarchicalFit(Fit):
    """One call of fit.

    Attributes
    ----------
    cells : HierarchicalState
        The cells, their quotas and centres, once they are known.
    parents : list of ndarray of int32
        For each level but the last, the cluster of the next level that each cluster belongs to.
    sizes_above : list of int
        Numbers of clusters of the levels above the first.
    """

    estimator: HierarchicalKMeans
    cells: HierarchicalState
    parents: list[np.ndarray]

    def run(self) -> KMeansRun:
        """Return the run of all centres; its ``n_iter`` counts iterations of the refinement."""
        estimator = self.estimator
        n_coarse, size = self._n_coarse, self.dataset.n_rows * self.dataset.n_features
        self.method = cell_method(self.init, self.n_clusters // n_coarse, size // n_coarse)
        refinements = int(estimator.refine_iter) if estimator.refine else 0
        self.started("hierarchical", max_iter=refinements)
        footprint = hierarchical_footprint(self.dataset, estimator.get_params(deep=False))
        with self.engine.place(
            self.dataset, footprint=footprint, callbacks=self.callbacks
        ) as placement:
            rows = ScaledPlacement(placement)
            self.recall(rows)
            labels = self.kept_labels(placement)
            self.cells = self._all_cells(rows, labels)
            result = self._refine(rows, self.cells, refinements, labels)
            result = self._resample(rows, result)
            run = measure_run(rows, result, labels, labelled=self.labelled)
            self.passes += placement.traffic.passes
            self.bytes_read += placement.traffic.bytes_read
        self.parents = self._levels_above(run.result.centres)
        self.ended(run.result.stop_reason, run.found.inertia, run.result.n_iter)
        return run

    # -- stages -----------------------------------------------------------------------------------

    def _all_cells(self, rows: ScaledPlacement, labels: np.ndarray | None) -> HierarchicalState:
        """Return the state after all cells, including those done before an interruption."""
        state, began = self._resumed(), time.perf_counter()
        if state is None:
            state = self._fit_cells(rows, self._divide(rows, labels), labels)
            passes, seconds = rows.placement.traffic.passes, time.perf_counter() - began
            publish(self.callbacks, SeedingEnded(self.method, self.passes + passes, seconds))
        elif state.n_cells < len(state.sizes):
            if labels is not None:
                score_rows(rows, state.coarse, labels)
            state = self._fit_cells(rows, state, labels)
        return state

    def _divide(self, rows: ScaledPlacement, labels: np.ndarray | None) -> HierarchicalState:
        """Return cells and their quotas; `labels` become the cells of all rows."""
        n_coarse, seed = self._n_coarse, self.seed
        parameters = self._parameters(rows.dtype)
        size = coarse_sample(self.dataset.n_rows, n_coarse)
        few = lightweight_coreset(rows, size, Key(seed, "coarse coreset").derived_seed())
        coarse = fit_centres(
            home_engine(self.engine),
            rows.chunk(few.rows, few.weights),
            n_coarse,
            Key(seed, "coarse"),
            parameters,
        )
        found = score_rows(rows, coarse, labels)
        weights = found.cluster_weights(weighted=self.dataset.weights is not None)
        shares = quota_shares(weights, found.costs.sum(axis=0))
        quotas = find_quotas(shares, found.sizes, self.n_clusters, counter(rows, coarse, labels))
        state = HierarchicalState(coarse, found.sizes, quotas)
        self._keep(state, rows, now=True)
        publish(self.callbacks, _division(state))
        return state

    @property
    def _n_coarse(self) -> int:
        return coarse_cells(self.estimator.n_coarse, self.n_clusters, self.dataset)

    def _parameters(self, dtype: Any) -> CellParameters:
        """Return the parameters of the fits, without cells."""
        estimator, none = self.estimator, np.empty(0, np.int64)
        return CellParameters(
            np.empty((0, self.dataset.n_features), dtype),
            none,
            none,
            self.init,
            int(estimator.chain_length),
            int(estimator.max_iter),
            float(estimator.tol),
            self.seed,
        )

    def _cells_of(self, state: HierarchicalState) -> CellParameters:
        """Return the cells, with the parameters of the fits in them."""
        parameters = self._parameters(state.coarse.dtype)
        return replace(parameters, coarse=state.coarse, sizes=state.sizes, quotas=state.quotas)

    def _fit_cells(
        self, rows: ScaledPlacement, state: HierarchicalState, labels: np.ndarray | None
    ) -> HierarchicalState:
        """Return the state with the centres of all cells.

        Groups of cells are fitted in segments, after each of which a commit may be due. There is
        one segment if rows are labelled already, or nothing is committed.
        """
        engine = self.engine if self.engine.can_read(self.dataset) else home_engine(self.engine)
        known = labels if engine.name == "local" else None
        groups = self._groups(engine, state, known is not None)
        whole = known is not None or self.checkpoints.commits is None
        segment, step = len(groups) if whole else engine.n_threads, 1
        while groups:
            began, spans, groups = (
                time.perf_counter(),
                groups[: step * segment],
                groups[step * segment :],
            )
            state = state.joined(spans[-1][1], self._centres_of(engine, state, spans, known))
            if not groups:
                state = state.filled(self.n_clusters)
            self._keep(state, rows, now=not groups, counts=False)
            step = next_segment_count(step, time.perf_counter() - began)
        return state

    def _centres_of(
        self,
        engine: Engine,
        state: HierarchicalState,
        spans: Sequence[Range],
        known: np.ndarray | None,
    ) -> np.ndarray:
        """Return the centres (m, d) of the cells of some groups."""
        cells, n = self._cells_of(state), self.dataset.n_rows
        tasks = [partial(fit_cells, self.dataset, cells, span, known) for span in spans]
        began = time.perf_counter()
        publish(self.callbacks, PassStarted("cells", n))
        found = engine.run(tasks)
        seconds = time.perf_counter() - began
        visits = 1 if known is not None else len(spans)
        for visit in range(visits):
            if visit > 0:
                publish(self.callbacks, PassStarted("cells", n))
            read = sum(part.bytes_read for part in found[visit::visits])
            publish(self.callbacks, PassProgress(n))
            publish(self.callbacks, PassEnded("cells", seconds / visits, read))
        self.passes += visits
        self.bytes_read += sum(part.bytes_read for part in found)
        return np.concatenate([part.centres for part in found])

    def _groups(self, engine: Engine, state: HierarchicalState, labelled: bool) -> list[Range]:
        """Return groups of the remaining cells; if rows are labelled, more groups cost nothing."""
        groups, left = n_groups(self.dataset.bytes_of((0, self.dataset.n_rows))), state.sizes_left
        if labelled:
            groups = max(groups, _SHARES * engine.n_threads)
        groups = max(1, math.ceil(groups * left.sum() / self.dataset.n_rows))
        first = state.n_cells
        return [(first + start, first + stop) for start, stop in cell_groups(left, groups)]

    def _refine(
        self,
        rows: ScaledPlacement,
        state: HierarchicalState,
        refinements: int,
        labels: np.ndarray | None,
    ) -> FitResult:
        """Move all centres together, a few times."""
        left, centres, ended = self.time_left(), state.centres, state.reason
        assert centres is not None
        is_done = ended is not None and is_final(ended, len(state.history), refinements, left)
        if ended is not None and (is_done or state.rounds):
            return FitResult(centres, len(state.history), ended, list(state.history))

        def keep(centres: np.ndarray, history: Any, reason: StopReason | None) -> None:
            moved = replace(state, centres=centres, history=history, reason=reason)
            self._keep(moved, rows, now=reason is not None)

        choice = AssignmentChoice(
            "auto" if refinements > FEW_REFINEMENTS else "lloyd",
            self.n_clusters,
            self.estimator.bounds_memory,
            self.callbacks,
            sparse=isinstance(self.dataset, SparseDataset),
        )
        assign = choice(rows, labels)
        try:
            return lloyd(
                rows,
                centres,
                assign=assign,
                max_iter=0 if left == 0.0 else refinements,
                tol=float(self.estimator.tol),
                max_time=left,
                callbacks=self.callbacks,
                labels=labels,
                history=state.history,
                keep=keep,
            )
        finally:
            assign.close()

    def _resample(self, rows: ScaledPlacement, result: FitResult) -> FitResult:
        """Fit the centres again to the rows nearest to them, in several rounds.

        Each cluster gives as many rows, whatever its size. So every round flattens the density of the
        centres, until they are spread over the support of the rows.
        """
        k, rounds = self.n_clusters, resample_rounds(self.estimator.get_params(deep=False))
        size = resample_size(self.estimator.resample_size, self.dataset.n_rows, k)
        for number in range(self.cells.rounds, rounds):
            if self.time_left() == 0.0:
                break
            points = nearest_rows(rows, result.centres, size)
            if points.n_rows < k:
                break
            key = Key(self.seed, "resample", number)
            found = self._fit_points(points, k, key, 0).result
            result = replace(result, centres=found.centres, labelled=False)
            state = replace(
                self.cells,
                centres=result.centres,
                history=result.history,
                reason=result.stop_reason,
                rounds=number + 1,
            )
            publish(
                self.callbacks,
                Notice(f"Resampled {points.n_rows:,} rows, {number + 1} of {rounds}"),
            )
            self._keep(state, rows, now=True)
        return result

    def _levels_above(self, centres: np.ndarray) -> list[np.ndarray]:
        """Return the parents of the clusters of each level but the last."""
        estimator, parents = self.estimator, []
        self.sizes_above = sizes_above(self.n_clusters, estimator.n_levels, estimator.level_sizes)
        rounds = resample_rounds(estimator.get_params(deep=False), first=False)
        for level, size in enumerate(self.sizes_above, start=2):
            points = Chunk(centres, normalize=self.dataset.normalize)
            run = self._fit_points(points, size, Key(self.seed, "level", level), rounds)
            assert run.labels is not None
            parents.append(run.labels)
            centres = run.result.centres
        return parents

    def _fit_points(self, points: Chunk, n_clusters: int, key: Key, rounds: int) -> KMeansRun:
        """Fit points in memory, as one level without checkpoints."""
        given = self.estimator.get_params(deep=False)
        given |= {"n_levels": 1, "level_sizes": None, "checkpoint": None, "max_time": None}
        given |= {"n_coarse": "auto", "resample_rounds": rounds}
        given |= {"n_clusters": n_clusters, "random_state": key.derived_seed()}
        twin = type(self.estimator)(**given)
        return HierarchicalFit(twin, None, open_chunk(points), home_engine(self.engine), ()).run()

    # -- checkpoints ------------------------------------------------------------------------------

    def circumstances(self) -> Mapping[str, Any]:
        """Return the parameters that centres of cells depend on, without limits of the whole fit."""
        return {"iterations_in_cells": int(self.estimator.max_iter)}

    def _resumed(self) -> HierarchicalState | None:
        n, k = self.dataset.n_rows, self.n_clusters
        shapes = HierarchicalState.shapes(self.dataset.n_features)
        return self.resumed(HierarchicalState, shapes, lambda state: state.check(n, k))

    def _keep(self, state: HierarchicalState, rows: ScaledPlacement, **when: bool) -> None:
        self.keep(lambda: state, rows.placement.traffic, rows, **when)


def _division(cells: HierarchicalState) -> Notice:
    balance = Balance.of(cells.sizes)
    split = int((cells.quotas > 1).sum())
    return Notice(
        f"{balance.n_clusters:,} cells of {balance.smallest:,} to {balance.largest:,} rows; {split:,} of "
        f"them get 2 to {int(cells.quotas.max()):,} clusters",
        {"cells": balance.as_dict(), "split": split},
    )
