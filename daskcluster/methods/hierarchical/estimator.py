"""HierarchicalKMeans: cells, k-means in each, then all centres together; and its dry run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import undone
from daskcluster.chunkwise.labelled import RANKED_BYTES
from daskcluster.data.open import open_chunk
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import in_declared_order
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import (
    Notice,
    PassEnded,
    PassProgress,
    PassStarted,
    SeedingEnded,
    publish,
)
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.coreset.algorithm import draw_coreset
from daskcluster.methods.coreset.estimator import CORESET_PASSES, coreset_footprint
from daskcluster.methods.hierarchical.cells import (
    DISTINCT,
    PASSES_OF_A_ROUND,
    CellParameters,
    DistinctParams,
    DistinctRows,
    HierarchicalModel,
    HierarchicalState,
    cell_groups,
    cell_method,
    find_quotas,
    fit_cells,
    fit_centres,
    group_bytes,
    n_groups,
    nearest_rows,
    quota_shares,
    resample_rounds,
    resample_size,
    sizes_above,
)
from daskcluster.methods.hierarchical.parameters import HIERARCHICAL
from daskcluster.methods.kmeans.algorithm import lloyd
from daskcluster.methods.kmeans.assignment import FullAssignment
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.methods.kmeans.fit import (
    fit_footprint,
    measure_run,
    pass_flop,
    travel,
)
from daskcluster.models.balance import Balance, ancestors, check_labels_alone
from daskcluster.models.fitted import FitResult, KMeansModel
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key
from daskcluster.typing import Dataset, Range

_MIN_SECONDS, _MOST_GROWTH = 4.0, 8
"""Shorter segments run together, for no longer than an interrupt waits for the end of a segment
(`daskcluster.interrupts.GRACE_SECONDS`)."""
_SHARES = 4
"""Groups of cells for each thread, where making more of them costs no pass."""
_SEGMENT_SECONDS = 4.0
"""Shorter segments are made together, for no longer than an interrupt waits for the end of one."""


def next_segment_count(segments: int, seconds: float) -> int:
    """Return how many segments to run next if the last `segments` took `seconds`.

    Examples
    --------
    >>> next_segment_count(1, 2.0), next_segment_count(4, 50.0), next_segment_count(1, 0.001)
    (2, 1, 8)
    """
    wanted = int(segments * _MIN_SECONDS / max(seconds, 1e-9))
    return max(1, min(wanted, segments * _MOST_GROWTH))


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

    name = "hierarchical"

    @property
    def most(self) -> int:
        """Maximum number of iterations of all centres together."""
        return int(self.estimator.refine_iter) if self.estimator.refine else 0

    def footprint(self) -> Footprint:
        return hierarchical_footprint(self.dataset, self.estimator.get_params(deep=False))

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        """Return the run of all centres; its ``n_iter`` counts iterations of the refinement."""
        n_coarse, size = self._n_coarse, self.dataset.n_rows * self.dataset.n_features
        self.method = cell_method(self.init, self.n_clusters // n_coarse, size // n_coarse)
        labels = self.kept_labels(rows.placement)
        self.cells = self._all_cells(rows, labels)
        result = self._resample(rows, self._refine(rows, self.cells, labels))
        run = measure_run(rows, result, labels, labelled=self.labelled)
        self.parents = self._levels_above(run.result.centres)
        return run

    # -- stages -----------------------------------------------------------------------------------

    def _all_cells(self, rows: ScaledPlacement, labels: np.ndarray | None) -> HierarchicalState:
        """Return the state after all cells, including those done before an interruption."""
        began, n, k = time.perf_counter(), self.dataset.n_rows, self.n_clusters
        shapes = HierarchicalState.shapes(self.dataset.n_features)
        state = self.resumed(HierarchicalState, shapes, lambda state: state.check(n, k))
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
        size = coarse_sample(self.dataset.n_rows, n_coarse)
        few = draw_coreset(rows, size, Key(seed, "coarse coreset").derived_seed())
        coarse = fit_centres(
            home_engine(self.engine),
            rows.chunk(few.rows, few.weights),
            n_coarse,
            Key(seed, "coarse"),
            self._parameters(),
        )
        found = score_rows(rows, coarse, labels)
        weights = found.cluster_weights(weighted=self.dataset.weights is not None)
        shares = quota_shares(weights, found.costs.sum(axis=0))

        def count(most: np.ndarray) -> np.ndarray:
            params = DistinctParams(coarse, most, labels)
            distinct: DistinctRows = rows.placement.reduce(DISTINCT, params)
            return distinct.counts

        quotas = find_quotas(shares, found.sizes, self.n_clusters, count)
        state = HierarchicalState(coarse, found.sizes, quotas)
        self._keep(state, now=True)
        publish(self.callbacks, _division(state))
        return state

    @property
    def _n_coarse(self) -> int:
        return coarse_cells(self.estimator.n_coarse, self.n_clusters, self.dataset)

    def _parameters(self) -> CellParameters:
        given = self.estimator
        limits = int(given.chain_length), int(given.max_iter), float(given.tol)
        return CellParameters(self.init, *limits, self.seed)

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
            self._keep(state, now=not groups, counts=False)
            wanted = int(step * _SEGMENT_SECONDS / (time.perf_counter() - began))
            step = max(1, min(wanted, 8 * step))
        return state

    def _centres_of(
        self,
        engine: Engine,
        state: HierarchicalState,
        spans: Sequence[Range],
        known: np.ndarray | None,
    ) -> np.ndarray:
        """Return the centres (m, d) of the cells of some groups."""
        cells, n = replace(state, centres=None, history=()), self.dataset.n_rows
        sent = self.dataset, cells, self._parameters()
        tasks = [partial(fit_cells, *sent, span, known) for span in spans]
        began = time.perf_counter()
        publish(self.callbacks, PassStarted("cells", n))
        centres, sizes = zip(*engine.run(tasks), strict=True)
        seconds = time.perf_counter() - began
        visits = 1 if known is not None else len(spans)
        for visit in range(visits):
            if visit > 0:
                publish(self.callbacks, PassStarted("cells", n))
            read = sum(sizes[visit::visits])
            publish(self.callbacks, PassProgress(n))
            publish(self.callbacks, PassEnded("cells", seconds / visits, read))
        self.passes += visits
        self.bytes_read += sum(sizes)
        return np.concatenate(centres)

    def _groups(self, engine: Engine, state: HierarchicalState, labelled: bool) -> list[Range]:
        """Return groups of the remaining cells; if rows are labelled, more groups cost nothing."""
        groups, left = (
            n_groups(self.dataset.bytes_of((0, self.dataset.n_rows))),
            state.sizes[state.n_cells :],
        )
        if labelled:
            groups = max(groups, _SHARES * engine.n_threads)
        groups = max(1, math.ceil(groups * left.sum() / self.dataset.n_rows))
        first = state.n_cells
        return [(first + start, first + stop) for start, stop in cell_groups(left, groups)]

    def _refine(
        self, rows: ScaledPlacement, state: HierarchicalState, labels: np.ndarray | None
    ) -> FitResult:
        """Move all centres together, a few times."""
        most = self.most
        if state.rounds:
            return FitResult.of(state)

        def keep(state: HierarchicalState) -> None:
            self._keep(state, now=state.reason is not None)

        end = lloyd(
            rows,
            state,
            self.limits(0 if self.time_left() == 0.0 else most),
            assign=FullAssignment(rows, labels, by_changes=True, plans=True),
            tol=float(self.estimator.tol),
            labels=labels,
            keep=keep,
            validate=self.validate,
        )
        return FitResult.of(end, None if labels is None else state)

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
            self._keep(state, now=True)
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

    def _fit_points(self, points: Chunk, n_clusters: int, key: Key, rounds: int) -> FitRun:
        """Fit points in memory, as one level without checkpoints."""
        given = self.estimator.get_params(deep=False)
        given |= {"n_levels": 1, "level_sizes": None, "checkpoint": None, "max_time": None}
        given |= {"validation": None, "callbacks": (), "verbose": 0}
        given |= {"n_coarse": "auto", "resample_rounds": rounds}
        given |= {"n_clusters": n_clusters, "random_state": key.derived_seed()}
        given["engine"] = home_engine(self.engine)
        fit = HierarchicalFit(type(self.estimator)(**given), None, open_chunk(points))
        fit.labelled = False
        return fit.run()

    # -- checkpoints ------------------------------------------------------------------------------

    def circumstances(self) -> Mapping[str, Any]:
        """Return the parameters that centres of cells depend on, without limits of the whole fit."""
        return {"iterations_in_cells": int(self.estimator.max_iter)}

    def _keep(self, state: HierarchicalState, **when: bool) -> None:
        self.keep(lambda: state, **when)


def _division(cells: HierarchicalState) -> Notice:
    balance = Balance.of(cells.sizes)
    split = int((cells.quotas > 1).sum())
    return Notice(
        f"{balance.n_clusters:,} cells of {balance.smallest:,} to {balance.largest:,} rows; {split:,} of "
        f"them get 2 to {int(cells.quotas.max()):,} clusters",
        {"cells": balance.as_dict(), "split": split},
    )


_SAMPLE_ROWS, _SAMPLE_LEAST = 256, 10_000
"""Rows of the coreset that cells are found on: for each cell, and altogether at least."""
_ONE_CELL, _ONE_CELL_BYTES = 1 << 30, 64 << 20
"""Multiplications of an iteration, and bytes of rows, up to which rows are not divided: some 10 ms."""
_HASH_BYTES = 16
_MEMORY_SHARE = 4
_MEASURING_PASSES = 2
"""One for the size of each cell, one for its different rows."""


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`.

    It assumes that every cell has as many different rows as clusters, and that no cluster becomes empty.
    """
    k = int(parameters["n_clusters"])
    check_enough_rows(dataset, k)
    n_coarse = coarse_cells(parameters["n_coarse"], k, dataset)
    n_values = dataset.n_rows * dataset.n_features
    method = cell_method(parameters["init"], k // n_coarse, n_values // n_coarse)
    size = dataset.bytes_of((0, dataset.n_rows))
    gathering = 1 if dataset.in_memory else n_groups(size)
    seeding = CORESET_PASSES + _MEASURING_PASSES + gathering
    refinements = int(parameters["refine_iter"]) if parameters["refine"] else 0
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + refinements + PASSES_OF_A_ROUND * resample_rounds(parameters) + 1,
        footprint=hierarchical_footprint(dataset, parameters),
        flop=pass_flop(dataset, k),
        commit_bytes=centres_bytes(dataset, k + n_coarse) + 16 * n_coarse,
        travel=travel(dataset, k, bounded=False),
    )


def coarse_cells(n_coarse: int | str, n_clusters: int, dataset: Dataset) -> int:
    """Return the number of cells, by default the square root of the number of clusters.

    Where an iteration over all rows is cheap, one cell is the default, which is plain k-means.
    """
    if n_coarse != "auto":
        return max(1, min(int(n_coarse), n_clusters))
    work = n_clusters * dataset.n_rows * dataset.n_features
    is_small = dataset.bytes_of((0, dataset.n_rows)) <= _ONE_CELL_BYTES
    return 1 if work <= _ONE_CELL and is_small else round(math.sqrt(n_clusters))


def coarse_sample(n_rows: int, n_coarse: int) -> int:
    """Return the size of the coreset on which cells are found."""
    return min(n_rows, max(_SAMPLE_LEAST, _SAMPLE_ROWS * n_coarse))


def hierarchical_footprint(dataset: Dataset, parameters: Mapping[str, Any]) -> Footprint:
    """Return the memory of the fit: all centres, and a group of cells with its rows per thread."""
    k, n_coarse = int(parameters["n_clusters"]), parameters["n_coarse"]
    found = fit_footprint(dataset, k, "cells", int(parameters["chain_length"]))
    size = dataset.bytes_of((0, dataset.n_rows))
    cells = coarse_cells(n_coarse, k, dataset)
    drawn = coreset_footprint(dataset, coarse_sample(dataset.n_rows, cells)).thread_bytes
    # Rows in memory are gathered in more groups, each by its own thread.
    gathered = size // _MEMORY_SHARE if dataset.in_memory else min(size, group_bytes(size))
    hashes = 2 * _HASH_BYTES * k
    nearest = 0
    if resample_rounds(parameters):  # in the first level: rows that a round draws
        nearest = k * resample_size(parameters["resample_size"], dataset.n_rows, k)
        nearest = min(dataset.n_rows, nearest)
    thread_bytes = max(found.thread_bytes, gathered, hashes, drawn, nearest * RANKED_BYTES)
    resampled = 2 * nearest * size // max(1, dataset.n_rows)
    return replace(found, thread_bytes=thread_bytes, process_bytes=drawn, home_bytes=resampled)


@varies_with(order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class HierarchicalKMeans(KMeansEstimator):
    """K-means with very many clusters, found cell by cell, and clusters of clusters.

    Rows are divided into about sqrt(k) cells by k-means of a coreset. Each cell gets clusters in
    proportion to the square root of its cost, its rows are clustered by weighted k-means on their own, and
    at last all centres are moved together by a few iterations of Lloyd's algorithm over all rows. Labels
    are exact: the nearest of all k centres. The result is the same to the bit on any engine, for any
    chunking and any number of workers.

    With several levels, the centres are clustered again, and their centres again. `resample_rounds` spreads
    the centres of each level evenly over the data.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    n_coarse : int >= 1 or "auto", default "auto"
        Cells, at most `n_clusters`. ``"auto"``: the square root of `n_clusters`, which balances the work of
        both stages, and one cell for up to 64 MB of rows where an iteration over all of them takes some
        hundredths of a second.
    n_levels : int >= 1, default 1
        Levels of clusters: those of each level are clusters of the centres below, and a tenth as many, or
        the `n_levels`-th root of `n_clusters` where that is less: 5000, 500, 50; or 64, 16, 4.
    level_sizes : str or sequence of int, optional
        Numbers of clusters of the levels above the first, decreasing, instead of `n_levels`: ``[100, 10]``
        or ``"100,10"``.
    resample_rounds : int >= 0 or "auto", default "auto"
        Rounds of resampling in each level: the `resample_size` rows (or centres) nearest to each centre are
        drawn, and new centres are fitted to them alone. Centres then spread evenly over the support of
        the data instead of following its density. ``"auto"``: 10 if there are several levels, but 2 in the
        first, whose rounds read all rows; otherwise 0.
    resample_size : int >= 2 or "auto", default "auto"
        Rows that each cluster gives, or all it has. ``"auto"``: half the mean size of a cluster, 2 to 20.
    refine : bool, default True
        Move all centres together once the cells are clustered. Otherwise, rows are not compared with
        centres of other cells before they are labelled.
    refine_iter : int >= 0, default 2
        Iterations of the refinement.
    init : str, default "auto"
        How the cells and the clusters within each are seeded. ``"auto"``: k-means++, and AFK-MC2 within
        large cells that get more than 64 clusters.
    max_iter : int >= 0, default 100
        Iterations at most, of the cells and within each.
    tol : float >= 0, default 0.0001
        As in `daskcluster.KMeans`, for every stage with the variance of its own rows.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Distance; cosine is spherical k-means.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Cells are independent tasks on it.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Seconds; the refinement does not begin after them, and its iteration that exceeds them is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        The same as in `daskcluster.KMeans`, after each iteration of the refinement.
    chain_length : int >= 1, default 10
        Length of the chains of ``"afk-mc2"``.
    checkpoint : str or path, optional
        Save progress at this URL; continue with resume.
    checkpoint_every : int >= 1, default 10
        The same as in `daskcluster.KMeans`: commits follow the division into cells, every half a minute of
        groups of cells, all cells, and iterations of the refinement.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, d)
        Those of a cell are consecutive.
    coarse_centers_ : ndarray of shape (c, d)
        Centres of the cells; not part of a saved model, as the two below.
    coarse_sizes_, quotas_ : ndarray of shape (c,), int64
        Rows of each cell, and how many clusters it got.
    parents_ : list of ndarray of int32
        For each level but the last, the cluster of the next level that each cluster belongs to: the first
        is of shape (k,). Empty for one level.
    level_sizes_ : list of int
        Numbers of clusters of all levels, k first.
    labels_ : ndarray of shape (n,), int32, or Labels
        Clusters of the first level, as all figures are.
    inertia_ : float
        Weighted sum of squared distances of the rows to the nearest of all centres.
    n_iter_ : int
        Iterations of the refinement.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
    passes_, bytes_read_, stop_reason_, seeding_, history_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`; the history is that of the refinement.

    Notes
    -----
    Cost: two passes for the coreset, one for the sizes of cells, one for their different rows (another one
    where cells with few of those leave their quota to others), one for each group of cells, `refine_iter`
    and one more for inertia and labels. Only the last two use all k centres: with c = sqrt(k) all
    others together take O(n d sqrt(k)) operations a pass or iteration. A group is a sixteenth of the
    rows, but at least 64 MB and at most 4 GB; rows in memory are gathered once. Memory: for each thread one
    group of cells and its statistics (8 k (d + 1) bytes, twice that for float64 or weighted rows). Each
    round of resampling in the first level takes two passes, and memory for `resample_size` k rows in this
    process, which it clusters there. Levels above the first take no pass: they cluster at most k centres in
    this process.

    Two-level clustering for large vocabularies: Nister and Stewenius, "Scalable Recognition with a
    Vocabulary Tree" (CVPR 2006), with equal branching. What differs: quotas in proportion to the square
    root of the cost by Webster's method, at least one and at most the different rows of the cell; the
    refinement; full search for labels. Levels and resampling: Vo et al., "Automatic Data Curation for
    Self-Supervised Learning: A Clustering-Based Approach" (2024), algorithm 1. What differs: every k-means
    of a level is that of this class, and draws are seeded by round.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(5000, 2)).astype(np.float32)
    >>> model = dc.HierarchicalKMeans(400, n_coarse=20, random_state=0).fit(X)
    >>> len(model.quotas_), int(model.quotas_.sum()), model.n_iter_
    (20, 400, 2)
    >>> bool((model.labels_ == model.predict(X)).all()), model.balance().empty
    (True, 0)
    >>> model = dc.HierarchicalKMeans(200, n_levels=2, random_state=0).fit(X)
    >>> model.level_sizes_, [len(parents) for parents in model.parents_]
    ([200, 20], [200])
    >>> bool((model.parents_[0][model.labels_] == model.predict(X, level=2)).all())
    True
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = HIERARCHICAL
    fit_class: ClassVar[type[Fit]] = HierarchicalFit
    model_kinds = (KMeansModel.kind, HierarchicalModel.kind)

    n_coarse: int | str = "auto"
    n_levels: int = 1
    level_sizes: str | Sequence[int] | None = None
    resample_rounds: int | str = "auto"
    resample_size: int | str = "auto"
    refine: bool = True
    refine_iter: int = 2
    init: str = "auto"
    max_iter: int = 100
    tol: float = 1e-4

    def _learn_own(self, fit: HierarchicalFit) -> None:
        self.coarse_centers_ = undone(self.scaling_, fit.cells.coarse)
        self.coarse_sizes_, self.quotas_ = fit.cells.sizes, fit.cells.quotas
        self.parents_, self.level_sizes_ = fit.parents, [self.n_clusters, *fit.sizes_above]

    def predict(self, X: Any, *, level: int = 1, **options: Any) -> Any:
        """Return the nearest centre of every row, or the cluster of a level that it belongs to.

        Parameters
        ----------
        X, **options
            The same as in `daskcluster.KMeans.predict`.
        level : int, default 1
            From 1. Above it, a row gets the cluster of that level that its nearest centre belongs to.

        Returns
        -------
        labels : ndarray of int32, shape (n,)
            Or what else `daskcluster.KMeans.predict` returns.

        Raises
        ------
        InvalidParameterError
            There is no such level, or the nearest centres or distances of a level above the first.

        Notes
        -----
        Cost: one pass.
        """
        check_is_fitted(self)
        parents = ancestors(self.parents_, level)
        if parents is None:
            return super().predict(X, **options)
        n_nearest, distances = options.get("n_nearest"), options.get("return_distance", False)
        check_labels_alone(level, n_nearest=n_nearest, distances=distances)
        return self.predict_level(X, parents, **options)

    def to_model(self) -> KMeansModel:
        """Return the model: the learnt attributes, without the data."""
        model = super().to_model()
        if not self.parents_:
            return model
        sizes = tuple(self.level_sizes_[1:])
        return HierarchicalModel(**vars(model), parents=tuple(self.parents_), level_sizes=sizes)

    @classmethod
    def from_model(cls, model: KMeansModel) -> Self:
        """Return the fitted estimator that a model describes (without ``labels_``)."""
        self = super().from_model(model)
        above = list(getattr(model, "level_sizes", ()))
        self.parents_ = list(getattr(model, "parents", ()))
        self.level_sizes_ = [model.n_clusters, *above]
        if above and self.n_levels == 1 and self.level_sizes is None:
            self.level_sizes = above  # a list, which is not among the parameters of a model
        return self

    def balance(self) -> Balance:
        """Return how evenly the rows of the fit are spread over the clusters."""
        check_is_fitted(self)
        return Balance.of(self.cluster_sizes_)

    def check_parameters(self) -> None:
        super().check_parameters()
        sizes_above(self.n_clusters, self.n_levels, self.level_sizes)
        if self.n_coarse != "auto" and int(self.n_coarse) > self.n_clusters:
            raise InvalidParameterError(
                f"n_coarse={self.n_coarse} should be <= n_clusters={self.n_clusters}: every cell gets at "
                "least one cluster; lower it, or leave it 'auto'."
            )
