"""One call of ``HierarchicalKMeans.fit``: cells, quotas, k-means in each, all centres together."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from daskcluster.algorithms.lloyd import lloyd
from daskcluster.algorithms.scoring import score_rows
from daskcluster.chunk import Chunk
from daskcluster.coresets.lightweight import lightweight_coreset
from daskcluster.data.cells import cell_groups, n_groups
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import home_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.assignments import AssignmentChoice
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.hierarchical_cells import (
    CellParameters,
    counter,
    find_quotas,
    fit_cells,
    fit_centres,
)
from daskcluster.estimators.hierarchical_plan import (
    FEW_REFINEMENTS,
    cell_method,
    coarse_cells,
    coarse_sample,
    hierarchical_footprint,
)
from daskcluster.estimators.initial import method_for
from daskcluster.estimators.kmeans_base import KMeansRun, judge
from daskcluster.events import Notice, PassEnded, PassProgress, PassStarted, SeedingEnded, publish
from daskcluster.models.balance import Balance
from daskcluster.models.result import FitResult
from daskcluster.randomness import Key, as_seed

if TYPE_CHECKING:
    from daskcluster.estimators.hierarchical import HierarchicalKMeans

_SHARES = 4
"""Groups of cells for each thread, where making more of them costs no pass."""


class HierarchicalFit(Fit):
    """One call of fit.

    Attributes
    ----------
    cells : CellParameters
        The cells and their quotas, once they are known.
    """

    estimator: HierarchicalKMeans
    cells: CellParameters

    def run(self) -> KMeansRun:
        """Return the run of all centres; its ``n_iter`` counts iterations of the refinement."""
        estimator = self.estimator
        self.method = cell_method(self.init)
        refinements = int(estimator.refine_iter) if estimator.refine else 0
        self.started("hierarchical", max_iter=refinements)
        footprint = hierarchical_footprint(
            self.dataset, self.n_clusters, estimator.n_coarse, self.method, estimator.chain_length
        )
        with self.engine.place(
            self.dataset, footprint=footprint, callbacks=self.callbacks
        ) as placement:
            rows = ScaledPlacement(placement, unit=self.unit)
            labels = self.kept_labels(placement)
            began = time.perf_counter()
            self.cells = self._divide(rows, labels)
            centres = self._fit_cells(labels)
            self.passes += placement.traffic.passes
            seconds = time.perf_counter() - began
            publish(self.callbacks, SeedingEnded(self.method, self.passes, seconds))
            before = placement.traffic.passes
            result = self._refine(rows, centres, refinements, labels)
            run = judge(rows, result, labels, labelled=self.labelled)
            self.passes += placement.traffic.passes - before
            self.bytes_read += placement.traffic.bytes_read
        self.ended(run.result.stop_reason, run.found.inertia, run.result.n_iter)
        return run

    # -- stages -----------------------------------------------------------------------------------

    def _divide(self, rows: ScaledPlacement, labels: np.ndarray | None) -> CellParameters:
        """Return cells and their quotas; `labels` become the cells of all rows."""
        estimator, seed = self.estimator, as_seed(self.estimator.random_state)
        n_coarse = coarse_cells(estimator.n_coarse, self.n_clusters)
        none = np.empty(0, np.int64)
        parameters = CellParameters(
            np.empty((0, self.dataset.n_features), rows.dtype),
            none,
            none,
            method_for(self.init, in_memory=True),
            self.unit,
            int(estimator.chain_length),
            int(estimator.max_iter),
            float(estimator.tol),
            seed,
        )
        size = coarse_sample(self.dataset.n_rows, n_coarse)
        few = lightweight_coreset(rows, size, Key(seed, "coarse coreset").derived_seed())
        coarse = fit_centres(
            home_engine(self.engine),
            Chunk(few.rows, 0, few.weights),
            n_coarse,
            Key(seed, "coarse"),
            parameters,
        )
        found = score_rows(rows, coarse, labels)
        weighted = self.dataset.weights is not None
        weights = found.weights.sum(axis=0) if weighted else found.sizes.astype(np.float64)
        quotas = find_quotas(weights, found.sizes, self.n_clusters, counter(rows, coarse, labels))
        cells = replace(
            parameters, coarse=coarse, sizes=found.sizes, quotas=quotas, init=self.method
        )
        publish(self.callbacks, _division(cells))
        return cells

    def _fit_cells(self, labels: np.ndarray | None) -> np.ndarray:
        """Return the centres (k, d) of all cells, one cell after the other."""
        engine = self.engine if self.engine.can_read(self.dataset) else home_engine(self.engine)
        known = labels if engine.name == "local" else None
        groups = self._groups(engine, known is not None)
        tasks = [partial(fit_cells, self.dataset, self.cells, span, known) for span in groups]
        began, n = time.perf_counter(), self.dataset.n_rows
        publish(self.callbacks, PassStarted("cells", n))
        found = engine.run(tasks)
        seconds = time.perf_counter() - began
        visits = 1 if known is not None else len(groups)
        for visit in range(visits):
            if visit > 0:
                publish(self.callbacks, PassStarted("cells", n))
            read = sum(part.bytes_read for part in found[visit::visits])
            publish(self.callbacks, PassProgress(n))
            publish(self.callbacks, PassEnded("cells", seconds / visits, read))
        self.passes += visits
        self.bytes_read += sum(part.bytes_read for part in found)
        return self._filled(np.concatenate([part.centres for part in found]))

    def _groups(self, engine: Engine, labelled: bool) -> list[tuple[int, int]]:
        """Return groups of cells; where rows are labelled already, more of them cost nothing."""
        groups = n_groups(self.dataset.bytes_of((0, self.dataset.n_rows)))
        if labelled:
            groups = max(groups, _SHARES * engine.n_threads)
        return list(cell_groups(self.cells.sizes, groups))

    def _filled(self, centres: np.ndarray) -> np.ndarray:
        """Return k centres: where fewer rows are different, the first is there several times."""
        missing = self.n_clusters - len(centres)
        return np.concatenate([centres, np.repeat(centres[:1], missing, axis=0)])

    def _refine(
        self,
        rows: ScaledPlacement,
        centres: np.ndarray,
        refinements: int,
        labels: np.ndarray | None,
    ) -> FitResult:
        """Move all centres together, a few times."""
        left = self.time_left()
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
            )
        finally:
            assign.close()


def _division(cells: CellParameters) -> Notice:
    balance = Balance.of(cells.sizes)
    split = int((cells.quotas > 1).sum())
    return Notice(
        f"{balance.n_clusters:,} cells of {balance.smallest:,} to {balance.largest:,} rows; {split:,} of "
        f"them get 2 to {int(cells.quotas.max()):,} clusters",
        {"cells": balance.as_dict(), "split": split},
    )
