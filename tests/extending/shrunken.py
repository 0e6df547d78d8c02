"""An estimator from outside the package, in one file: k-means++ centres, drawn towards their mean."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar, Self

from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import FitRun
from daskcluster.events import StopReason
from daskcluster.extending import Algorithm, KMeansEstimator, Parameter, register_algorithm
from daskcluster.methods.kmeans.fit import SeededFit, measure_run
from daskcluster.models.fitted import FitResult
from daskcluster.parameters import shared
from daskcluster.randomness import Key

SHRUNKEN = (
    shared.N_CLUSTERS,
    shared.INIT.varied(default="k-means++"),
    Parameter("shrinkage", float, 0.0, "Share of the way to the mean of all centres.", ge=0, lt=1),
    shared.METRIC,
    *shared.RUN,
    shared.CHAIN_LENGTH,
)

register_algorithm(
    "shrunken",
    Algorithm(
        "tests.extending.shrunken:ShrunkenKMeans", SHRUNKEN, about="first centres, drawn together"
    ),
)


class ShrunkenFit(SeededFit):
    """One call of fit: seed, shrink, label."""

    name, most = "shrunken", 0

    def placed(self, stack: ExitStack) -> Placement:
        return stack.enter_context(self.engine.place(self.dataset, callbacks=self.callbacks))

    def learn(self, rows: ScaledPlacement, stack: ExitStack) -> FitRun:
        centres = self.seeded(rows, Key(self.seed, "start"))
        towards = self.estimator.shrinkage * (centres.mean(axis=0) - centres)
        result = FitResult((centres + towards).astype(centres.dtype), 0, StopReason.MAX_ITER)
        return measure_run(rows, result, labelled=self.labelled)


class ShrunkenKMeans(KMeansEstimator):
    """First centres of k-means, drawn towards their mean.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    init : str, URL, array, callable or estimator, default "k-means++"
        How to choose the initial centres. auto: k-means++ in memory, k-means|| elsewhere. The URL of a
        saved model is a warm start.
    shrinkage : float in [0, 1), default 0.0
        Share of the way to the mean of all centres.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Distance; cosine is spherical k-means.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Where to run. None: the current Dask client if it can read the rows, else threads of this process.
    callbacks : sequence of callables, default ()
        Callables that receive the events of a fit.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    chain_length : int >= 1, default 10
        Rows that afk-mc2 proposes per centre; more are closer to k-means++.
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = SHRUNKEN

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        shrinkage: float = 0.0,
        metric: str = "euclidean",
        random_state: Any = None,
        engine: Any = None,
        callbacks: Any = (),
        verbose: int = 0,
        chain_length: int = 10,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.shrinkage = shrinkage
        self.metric = metric
        self.random_state = random_state
        self.engine = engine
        self.callbacks = callbacks
        self.verbose = verbose
        self.chain_length = chain_length

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find centres."""
        self.check_parameters()
        fit = self.begin_fit(ShrunkenFit, X, sample_weight)
        self._learn(fit.run(), fit)
        return self
