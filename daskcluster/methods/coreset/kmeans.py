"""CoresetKMeans: k-means on a lightweight coreset, two passes over the rows for any k."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from daskcluster.engine.local import home_engine
from daskcluster.estimators.base import in_declared_order
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.inputs import check_kept_rows
from daskcluster.events import (
    Event,
    FitEnded,
    FitStarted,
    PassEnded,
    PassProgress,
    PassStarted,
    publish,
)
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.coreset.estimator import (
    LightweightCoreset,
    check_coreset_size,
)
from daskcluster.methods.coreset.parameters import CORESET
from daskcluster.methods.coreset.quality import CoresetQuality, coreset_quality
from daskcluster.methods.kmeans.estimator import KMeans, KMeansEstimator
from daskcluster.parameters.parameter import Parameter
from daskcluster.randomness import Key
from daskcluster.storage.location import Location

_OF_THE_CORESET = (FitStarted, PassStarted, PassProgress, PassEnded)
"""Events of the fit within the fit: passes are those over the rows."""
_OWN = frozenset({"coreset_size", "random_state", "engine", "callbacks", "checkpoint"})


@dataclass(frozen=True)
class _Attached:
    """Folders next to the commits, for the commits of the coreset and of its k-means."""

    inner: str


@dataclass(frozen=True)
class _State:
    """State that a fit itself stores."""

    attached: _Attached


@varies_with(order=DRAWN)
@in_declared_order
@dataclass(eq=False, repr=False, kw_only=True)
class CoresetKMeans(KMeansEstimator):
    """K-means of a lightweight coreset of the rows, for data too large for many passes.

    A coreset is drawn in two passes (`daskcluster.LightweightCoreset`), then clustered in memory by
    weighted `daskcluster.KMeans`. Centres are the same to the bit on any engine and for any chunking.

    Parameters
    ----------
    n_clusters : int >= 1, default 8
        Number of clusters.
    coreset_size : int >= 1, default 10000
        Rows of the coreset, at least `n_clusters`; a few hundred for each cluster are a good start. With
        as many as there are rows, all of them are clustered.
    init : str, URL, array, callable or estimator, default "auto"
        The same as in `KMeans`, among the rows of the coreset.
    n_init : int >= 1 or "auto", default "auto"
        Restarts; the one with the lowest inertia wins. auto: 1, but 10 for random rows in memory.
    max_iter : int >= 0, default 300
        Maximum number of centre updates; 0 keeps the initial centres.
    tol : float >= 0, default 0.0001
        Stop when the centres' squared movement is at most this times the mean feature variance; 0 runs
        until nothing moves.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Metric of the fit on the coreset, see `daskcluster.KMeans`.
    random_state : int >= 0, RandomState or Generator, optional
        Seed; the same seed gives the same result to the bit.
    engine : Engine, dask.distributed.Client, "local" or address, optional
        Draws the coreset; it is clustered in this process.
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    verbose : int >= 0 or bool, default 0
        Above 0: show progress (`ProgressBar`) on stdout.
    max_time : float > 0, optional
        Time limit in seconds; the iteration that exceeds it is the last.
    validation : str, array-like of shape (m, d) or Dataset, optional
        The same as in `daskcluster.KMeans`.
    chain_length : int >= 1, default 10
        Length of the chains of the fit on the coreset.
    checkpoint : str or path, optional
        Save progress at this URL; continue with resume.
    checkpoint_every : int >= 1, default 10
        The same as in `daskcluster.KMeans`, for the fit on the coreset; see
        `daskcluster.LightweightCoreset` for what is kept before.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, d)
    inertia_ : float
        Weighted sum of squared distances on the coreset: the estimate of that of all rows, which `score`
        and `quality` measure.
    labels_ : ndarray of shape (n,), int32, or Labels
        Computed from the rows when asked for, one pass: an array for rows given in memory, else a handle.
    coreset_ : Dataset
        Rows and weights that were clustered, on the scale of the fit, if it had one; left out of pickles.
    cluster_sizes_, cluster_weights_, cluster_costs_ : ndarrays of shape (k,)
        Rows of the coreset, and the estimated weight and inertia of each cluster.
    n_iter_, passes_, bytes_read_ : int
        Centre updates on the coreset; passes over the rows; decoded bytes fetched from the store.
    stop_reason_, seeding_, history_, n_features_in_, feature_names_in_
        As in `daskcluster.KMeans`.

    Notes
    -----
    Cost: two passes over the rows, one distance a row in each; everything else in memory on `coreset_size`
    rows. No labelling pass.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(9000, 2)) + 20 * rng.integers(0, 3, (9000, 1))
    >>> model = dc.CoresetKMeans(3, coreset_size=600, random_state=0).fit(X)
    >>> sorted(int(round(c / 10)) for c in model.cluster_centers_[:, 0]), model.passes_
    ([0, 2, 4], 2)
    >>> bool(0.8 < model.inertia_ / -model.score(X) < 1.2)
    True
    """

    _parameters: ClassVar[tuple[Parameter, ...]] = CORESET

    coreset_size: int = 10_000
    init: Any = "auto"
    n_init: int | str = "auto"
    max_iter: int = 300
    tol: float = 1e-4

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, resume: bool = False
    ) -> Self:
        """Draw a coreset of `X` and find its centres; see `daskcluster.KMeans.fit`."""
        self.check_parameters()
        fit = self.begin_fit(Fit, X, sample_weight, resume=resume)
        fit.started("coreset")
        place, seed, left = _folder(fit), fit.seed, None
        drawn = LightweightCoreset(
            self.coreset_size,
            random_state=seed,
            engine=fit.engine,
            callbacks=fit.callbacks,
            checkpoint=None if place is None else place.child("coreset"),
        ).draw(fit.dataset, resume=fit.resumes)
        check_kept_rows(drawn.coreset_.n_rows, fit.dataset.n_rows, self.n_clusters)
        if self.max_time is not None:
            # Without time left, one iteration is still made.
            left = max(1e-9, fit.time_left() or 0.0)

        def forward(event: Event) -> None:
            """Publish an event of the fit on the coreset as one of the fit on the rows."""
            if isinstance(event, FitEnded):
                passes, read = drawn.passes_, drawn.bytes_read_
                event = replace(event, passes=passes, bytes_read=read, seconds=fit.seconds)
            if not isinstance(event, _OF_THE_CORESET):
                publish(fit.callbacks, event)

        own = {name: of for name, of in self.get_params(deep=False).items() if name not in _OWN}
        kmeans = KMeans(**own).set_params(
            verbose=0,
            random_state=int(Key(seed, "k-means of a coreset").generator().integers(2**31)),
            engine=home_engine(fit.engine),
            callbacks=(forward,),
            max_time=left,
            checkpoint=None if place is None else place.child("kmeans"),
        )
        kmeans.fit(drawn.coreset_, resume=fit.resumes)
        for name in ("_centres", "_search", "inertia_", "n_iter_", "stop_reason_", "history_"):
            setattr(self, name, getattr(kmeans, name))
        for name in ("seeding_", "cluster_sizes_", "cluster_weights_", "cluster_costs_"):
            setattr(self, name, getattr(kmeans, name))
        for name in ("coreset_", "n_rows_", "passes_", "bytes_read_"):
            setattr(self, name, getattr(drawn, name))
        self.learn_labels(fit.dataset, fit.engine, in_memory=fit.labelled)
        return self

    def quality(
        self, X: Any = None, sample_weight: Any = None, *, random_state: Any = 0
    ) -> CoresetQuality:
        """Compare estimated with true costs, of these centres and others; see `coreset_quality`.

        Without `X` there are no true costs, only the standard errors of the estimates.
        """
        check_is_fitted(self)
        return coreset_quality(
            self.coreset_,
            X,
            centres={"fitted": self.cluster_centers_},
            n_clusters=self.n_clusters,
            sample_weight=sample_weight,
            metric=self.metric,
            random_state=random_state,
            engine=self.engine,
        )

    def check_parameters(self) -> None:
        super().check_parameters()
        check_coreset_size(self.coreset_size, "cluster", self.n_clusters)


def _folder(fit: Fit) -> Location | None:
    """Return the folder of the commits of the coreset and its k-means; None without checkpoints."""
    commits = fit.checkpoints.commits
    if commits is None:
        return None
    state = fit.resumed(_State, {})
    if state is None:
        state = _State(_Attached(commits.folder.new_attachment("inner")))
        kept = state
        fit.keep(lambda: kept, now=True)
    return commits.folder.attachment(state.attached.inner)
