"""NestedMiniBatchKMeans: mini-batches that double until they are all rows, their fit and its dry run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from daskcluster.engine.engine import Placement, Traffic
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import in_declared_order
from daskcluster.estimators.fit import Fit, FitRun
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, centres_bytes
from daskcluster.events import Notice, SeedingEnded, publish
from daskcluster.host import format_bytes
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.coreset.start import SAMPLE_ROWS, sampled_start
from daskcluster.methods.kmeans.bounds import AssignmentChoice
from daskcluster.methods.kmeans.estimator import KMeansEstimator
from daskcluster.methods.kmeans.fit import (
    SeededFit,
    bounds_bytes,
    fit_footprint,
    measure_run,
    pass_flop,
    travel,
)
from daskcluster.methods.kmeans.initial import is_auto, method_for, seeding_of
from daskcluster.methods.nested.algorithm import DoublingRule, Nested, NestedState
from daskcluster.methods.nested.batches import HOME_BYTES, NestedBatches, NestedOrder
from daskcluster.methods.nested.parameters import NESTED
from daskcluster.models.fitted import FitResult
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key
from daskcluster.typing import Dataset


class NestedFit(SeededFit):
    """One call of fit."""

    estimator: NestedMiniBatchKMeans
    batches: NestedBatches
    whole: Placement
    home_bytes: int

    name = "nested"

    def footprint(self) -> Footprint:
        return fit_footprint(self.dataset, self.n_clusters, "random")

    def took(self) -> Traffic:
        whole = self.whole.traffic
        return Traffic(whole.passes + self.batches.gathers, self.batches.bytes_read)

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        estimator, self.whole = self.estimator, rows.placement
        shape = (self.n_clusters, self.dataset.n_features)
        state = self.resumed(NestedState, {"centres": shape, "seeds": shape})
        labels = self.kept_labels(self.whole)
        self.home_bytes = HOME_BYTES
        if self.whole.shares_memory:
            self.home_bytes = min(HOME_BYTES, self.whole.state_room() // 2)
        key = Key(self.seed, "nested") if estimator.shuffle else None
        self.batches = batches = NestedBatches(
            self.whole,
            self.engine,
            NestedOrder(self.dataset.n_rows, key),
            int(estimator.batch_size),
            labels=labels,
            footprint=self.footprint(),
            callbacks=self.callbacks,
            home_bytes=self.home_bytes,
            number=0 if state is None else state.batch,
        )
        stack.callback(batches.close)
        self.rows = batches.rows
        self.recall(batches.rows)
        if state is None:
            centres = self._first_centres(batches)
            state = NestedState(0, False, centres, centres if estimator.seeds_vote else None)
            self.keep_step(state)

        def keep(state: NestedState) -> None:
            self.rows = batches.rows
            self.keep_step(state)

        name = str(estimator.bounds) if estimator.bounds else "lloyd"
        choice = AssignmentChoice(
            name, self.n_clusters, estimator.bounds_memory, self.callbacks, parameter="bounds"
        )
        rule = DoublingRule(float(estimator.rho), estimator.doubling)
        algorithm = Nested(batches, choice, rule, estimator.tol)
        end = algorithm.run(state, self.limits(), keep=keep, validate=self.validate)
        keeps_labels = batches.is_whole and batches.labels is not None
        result = FitResult.of(end, state if keeps_labels else None)
        rows = batches.rows if batches.is_whole else ScaledPlacement(self.whole)
        return measure_run(rows, result, labels, labelled=self.labelled)

    def _first_centres(self, batches: NestedBatches) -> np.ndarray:
        """Return centres of a sample of all rows in memory: rare rows may not be in the first batch."""
        key, held = Key(self.seed, "restart"), batches.held
        if not is_auto(self.init) or batches.is_whole:
            return self.seeded(batches.rows, key)  # as KMeans has it
        wanted = min(HOME_BYTES, self.dataset.bytes_of((0, self.dataset.n_rows)))
        if self.home_bytes < wanted and not self.dataset.in_memory:
            text = (
                f"the memory limit leaves {format_bytes(self.home_bytes)} for gathered rows instead of "
                f"{format_bytes(wanted)}: the sample for the first centres, and so the result of a seed, "
                "may be others than with a higher limit."
            )
            publish(self.callbacks, Notice(text))
        if held is None:
            return self.seeded(batches.rows, key)
        began, size = time.perf_counter(), max(SAMPLE_ROWS, 3 * self.n_clusters)
        with home_engine(self.engine).place(held) as placement:
            rows = ScaledPlacement(placement)
            start = sampled_start(rows, self.n_clusters, size, key.derived_seed())
        self.method = method_for(self.init, in_memory=True)
        publish(self.callbacks, SeedingEnded(self.method, 0, time.perf_counter() - began))
        return start.centres


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return what a fit with `parameters` takes on `dataset`.

    Rounds on a part of the rows are no passes. Their number is not known in advance: at most all of
    `max_iter` are on all rows.
    """
    n_clusters, size = int(parameters["n_clusters"]), int(parameters["batch_size"])
    check_enough_rows(dataset, n_clusters)
    is_whole = size >= dataset.n_rows
    at_home = size * dataset.bytes_of((0, dataset.n_rows)) <= HOME_BYTES * dataset.n_rows
    seeded_in_memory = dataset.in_memory if is_whole else at_home
    method = method_for(parameters["init"], in_memory=seeded_in_memory)
    seeding = seeding_of(method).passes(n_clusters) if is_whole else 0
    gathering = int(not is_whole and parameters["shuffle"] and not dataset.in_memory)
    budget, bounds = parameters["bounds_memory"], parameters["bounds"]
    return Plan(
        seeding=method,
        passes_seeding=seeding,
        restarts=1,
        passes_at_most=seeding + gathering + int(parameters["max_iter"]) + 1,
        footprint=fit_footprint(dataset, n_clusters, method if is_whole else "sample"),
        flop=pass_flop(dataset, n_clusters),
        states=bounds_bytes(dataset, n_clusters, "lloyd" if not bounds else str(bounds)),
        states_at_most=None if budget == "auto" else int(budget),
        commit_bytes=centres_bytes(dataset, n_clusters) * (2 if parameters["seeds_vote"] else 1),
        travel=travel(dataset, n_clusters, bounded=bool(bounds)),
    )


@varies_with(
    storage="First centres come from a sample of the rows that this process holds.",
    memory_limit="A limit that leaves less than 256 MB for batches changes the first centres.",
    order=DRAWN,
)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class NestedMiniBatchKMeans(KMeansEstimator):
    """Nested mini-batch k-means: the speed of mini-batches, the end of Lloyd's algorithm.

    The first batch is a random sample; centres move to the means of its clusters, round after round,
    until they move less than chance would explain. Then the batch doubles: it keeps its
    rows, and as many join. Once a batch is all rows, the fit continues and ends as `KMeans` does. First
    centres come from the rows that this process holds, so that the result depends on whether rows are in
    memory and, where it leaves less than 256 MB for stored rows, on the memory limit.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    init : str, URL, array, callable or estimator, default "auto"
        The same as in `KMeans`, but centres are chosen from the first batch. ``"auto"`` draws a sample of
        all rows in memory, far rows more often, and refines the centres of k-means++ on it. Of stored
        rows, those of all batches that are gathered in one pass serve, so a memory limit below about 1 GB
        changes the result of a seed.
    batch_size : int >= 1, default 5000
        Rows of the first batch. With all rows or more, this is ``KMeans(algorithm="lloyd")``, to the bit.
    rho : float >= 0, default 100.0
        The batch doubles when the standard error of every cluster's mean exceeds `rho` times
        the centre's last movement. Small values double early. The paper finds 100 good with bounds, and 10
        without.
    bounds : {"auto", "hamerly", "yinyang", "elkan"}, None or False, default "auto"
        Bounds of distances, which spare most of the work of later rounds; as `algorithm` of `KMeans`. They
        never change the result. False computes all distances (growbatch-rho of the paper), as
        is done for sparse rows in any case.
    shuffle : bool, default True
        Batches are random samples, however the rows are ordered. False takes the rows as they are stored:
        for rows that have been shuffled already, of which a store then reads the beginning only.
    seeds_vote : bool, default False
        Each first centre counts as one more row of its cluster, to the end, as in the paper. By default
        it does not, as in the authors' program: centres are means of rows alone.
    doubling : {"paper", "code"}, default "paper"
        The spread that is compared with the movement: ``"paper"``, the standard error of the mean, which
        is Algorithm 5; or ``"code"``, the standard deviation of the cluster, which is the authors' program
        and doubles earlier, the more so the larger the clusters.
    validation : str, array-like of shape (m, d) or Dataset, optional
        Rows whose mean squared distance is measured after each round, for ``history_``.
    max_iter : int >= 0, default 300
        Rounds at most, on batches of any size; 0 keeps the first centres.
    tol : float >= 0, default 0.0001
        The same as in `KMeans`, once the batch is all rows.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Distance; cosine is spherical k-means.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        The same as in `KMeans`. Batches up to 256 MB are gathered in this process in any case.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Seconds for the whole fit; the round that exceeds them is the last.
    bounds_memory : int >= 0 or "auto", default "auto"
        The same as in `KMeans`.
    chain_length : int >= 1, default 10
        Rows that afk-mc2 proposes for each centre.
    checkpoint : str or path, optional
        The same as in `daskcluster.KMeans`; a commit takes the bytes of the centres.
    checkpoint_every : int >= 1, default 10
        Rounds between two commits.

    Attributes
    ----------
    cluster_centers_, labels_, inertia_, stop_reason_, seeding_, n_features_in_, feature_names_in_
        The same as in `KMeans`; inertia and labels are those of all rows.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
    n_iter_ : int
        Rounds.
    passes_, bytes_read_ : int
        Passes over all rows (those over batches are not counted); decoded bytes fetched from the store.
    history_ : list of dict
        A record per round: ``batch_size``, ``inertia`` of the batch, ``shift``, ``seconds`` (without
        validation), ``n_touched``, ``n_distances``, ``doubling_ratio`` (what is compared with `rho`, or a
        bound of it that was enough to say no; None where no cluster has a say),
        ``mean_squared_distance`` of the
        batch, ``validation``.

    Notes
    -----
    Cost: a round takes a pass over its batch, of which bounds spare most. Rows from a store are read once
    to gather all batches up to 256 MB; with ``shuffle=False`` only the beginning is. Beyond that, and on a
    cluster, rows of a batch stay where they are: in memory as far as it goes. At the end one pass for
    inertia and labels. Memory: the gathered batch (256 MB at most, and at most a quarter of the
    memory limit) and 4 bytes a row for labels of the batch, otherwise as `KMeans`.

    Weights are votes; for the doubling rule they are scaled to a mean of one, so that their unit does
    not matter. Where they are uneven, the standard error takes Kish's effective number of rows of a
    cluster, (sum w)^2 / sum w^2.

    Newling and Fleuret, "Nested mini-batch k-means", NIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[0.0, 0], [8, 0], [0, 8]], 500, axis=0) + rng.normal(size=(1500, 2))
    >>> model = dc.NestedMiniBatchKMeans(3, batch_size=100, random_state=0).fit(X)
    >>> model.cluster_centers_.round().astype(int).tolist()[:3]  # doctest: +SKIP
    [[0, 0], [8, 0], [0, 8]]
    >>> sorted({record["batch_size"] for record in model.history_})
    [100, 200, 400, 800, 1500]
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = NESTED
    fit_class: ClassVar[type[Fit]] = NestedFit

    init: Any = "auto"
    batch_size: int = 5000
    rho: float = 100.0
    bounds: str | bool = "auto"
    shuffle: bool = True
    seeds_vote: bool = False
    doubling: str = "paper"
    max_iter: int = 300
    tol: float = 1e-4
    bounds_memory: int | str = "auto"

    def _check_rows(self, dataset: Dataset) -> None:
        super()._check_rows(dataset)
        if self.batch_size < self.n_clusters:
            raise InvalidParameterError(
                f"batch_size={self.batch_size} should be >= n_clusters={self.n_clusters}: the first "
                "centres are chosen from the first batch; pass a larger batch."
            )
