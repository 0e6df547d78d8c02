"""The cost of any centres on any rows, and the quality of a coreset: estimated against true costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.assign import SCORE, AssignParams
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_large
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.chunkwise.statistics import joined
from daskcluster.data.features import FeatureSpec, columns_by_name, refuse_partial
from daskcluster.data.recipes import for_metric
from daskcluster.data.spec import AS_THEY_ARE, RowsSpec
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.estimators.opening import open_stored
from daskcluster.events import Callback
from daskcluster.invariance import varies_with
from daskcluster.methods.coreset.estimator import dataset_of, rows_and_weights
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.parameters import shared
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import as_seed
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class EstimatedCost:
    """Cost of one set of centres: the weighted sum of squared distances to the nearest centre.

    Attributes
    ----------
    name : str
        Name of the set of centres.
    n_clusters : int
    estimated : float
        On the coreset.
    standard_error : float
        Standard error of the estimate, from the coreset alone. It holds for centres that do not come from
        the coreset; those that were fitted to it look better on it than they are.
    true : float or None
        Cost on all rows, if it was measured.
    """

    name: str
    n_clusters: int
    estimated: float
    standard_error: float
    true: float | None = None

    @property
    def relative_error(self) -> float | None:
        """(estimated - true) / true; None where the true cost was not measured."""
        if self.true is None:
            return None
        if self.true == 0.0:
            return 0.0 if self.estimated == 0.0 else math.inf
        return (self.estimated - self.true) / self.true


@dataclass(frozen=True)
class CoresetQuality:
    """Estimated and true costs of several sets of centres; printed as a table.

    Attributes
    ----------
    size : int
        Rows of the coreset.
    costs : tuple of EstimatedCost
    """

    size: int
    costs: tuple[EstimatedCost, ...]

    @property
    def largest_error(self) -> float | None:
        """The largest relative error, as a share of the true cost; None without true costs."""
        errors = [cost.relative_error for cost in self.costs]
        known = [abs(error) for error in errors if error is not None]
        return max(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "size": self.size,
            "largest_error": self.largest_error,
            "costs": [
                {**asdict(cost), "relative_error": cost.relative_error} for cost in self.costs
            ],
        }

    def __str__(self) -> str:
        from daskcluster.reports.pages import right_aligned

        width = max(len(name) for name in ("centres", *(cost.name for cost in self.costs)))
        lines = [("centres".ljust(width), "k", "estimated", "+-", "true", "off by")]
        for cost in self.costs:
            share = cost.standard_error / cost.estimated if cost.estimated else 0.0
            true = "" if cost.true is None else f"{cost.true:.5g}"
            error = "" if cost.relative_error is None else f"{cost.relative_error:+.2%}"
            figures = str(cost.n_clusters), f"{cost.estimated:.5g}", f"{share:.2%}", true, error
            lines.append((cost.name.ljust(width), *figures))
        return "\n".join(right_aligned(lines))


def estimated_cost(name: str, coreset: Chunk, centres: np.ndarray) -> EstimatedCost:
    """Return the cost of `centres` on a coreset, and the standard error of that estimate.

    The draws of a coreset are independent, and each, times m, is an estimate by itself:
    their mean is the estimate, and their standard deviation over sqrt(m) its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> coreset = Chunk(np.array([[0.0], [1.0], [3.0]]), weights=np.array([2.0, 1.0, 1.0]))
    >>> estimated_cost("zero", coreset, np.zeros((1, 1))).estimated
    10.0
    """
    prepared, terms = PreparedCentres(centres), []
    for block in coreset.blocks():
        labels, distances = np.empty(block.n_rows, np.int32), np.empty(block.n_rows)
        prepared.nearest(block.rows, labels)
        prepared.sqdist_to_assigned(block.rows, labels, distances)
        terms.append(distances if block.weights is None else distances * block.weights)
    found = np.concatenate(terms)
    error = float(found.std(ddof=1)) * math.sqrt(len(found)) if len(found) > 1 else math.inf
    return EstimatedCost(name, len(centres), math.fsum(found), error)


def _costs(
    dataset: Dataset,
    sets: Sequence[np.ndarray],
    engine: Any,
    callbacks: Sequence[Callback] = (),
) -> list[float]:
    """Return the cost of every set of centres on the rows of a dataset, in one pass."""
    options: dict[str, Any] = {"callbacks": callbacks, "footprint": ONE_PASS}
    with choose_engine(engine, dataset).place(dataset, **options) as placement:
        return true_costs(ScaledPlacement(placement), sets)


def true_costs(rows: ScaledPlacement, sets: Sequence[np.ndarray]) -> list[float]:
    """Return the cost of every set of centres on all rows: one pass for all of them."""
    found = rows.reduce(
        joined("costs", *[SCORE] * len(sets)),
        lambda scale: tuple(AssignParams(centres, scale) for centres in sets),
    )
    return [float(each.inertia) for each in found]


@varies_with()
def coreset_quality(
    coreset: Any,
    X: Any = None,
    *,
    centres: Any = None,
    n_clusters: int = 8,
    sample_weight: Any = None,
    metric: str = "euclidean",
    random_state: Any = 0,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> CoresetQuality:
    """Compare the costs that a coreset estimates with those of all rows, for several sets of centres.

    The sets are the mean of the coreset, random rows of it, k-means++ on it, k-means fitted to it,
    and those that are given. Fitted ones show the largest errors, in one direction: a coreset that is
    too small is fitted better than the rows that it represents.

    Parameters
    ----------
    coreset : Dataset, LightweightCoreset, or URL of a saved one
    X : anything `open_dataset` takes, of shape (n, d), optional
        All rows. Without them there are estimates and their standard errors only.
    centres : array-like of shape (k, d), or mapping of str to array-like, optional
        Further centres, by name.
    n_clusters : int, default 8
        Number of clusters of the sets made here.
    sample_weight : array-like of shape (n,), optional
        Weights of `X`.
    metric : {"euclidean", "cosine"}, default "euclidean"
    random_state : int, RandomState, Generator, default 0
        Seed of the sets that are made.
    engine : Engine, dask.distributed.Client, "local" or address, optional
    callbacks : sequence of callables, default ()
        Called with the progress of the pass over `X`.

    Returns
    -------
    CoresetQuality
        Printed as a table; ``costs``, ``largest_error``, ``as_dict()``.

    Notes
    -----
    Cost: one pass over `X` for all sets together, about 3 k distances a row.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> coreset = dc.lightweight_coreset(X, 2000, random_state=0)
    >>> dc.coreset_quality(coreset, X, n_clusters=5).largest_error < 0.1
    True
    """
    few = dataset_of(coreset)
    check_value("coreset_quality", shared.N_CLUSTERS, n_clusters)
    scaling = getattr(few, "scaling", None)
    made = _made(few, min(n_clusters, few.n_rows), metric, random_state)
    sets = {**_named(centres, few, scaling), **made}
    rows, weights = rows_and_weights(few)
    chunk = Chunk(rows, 0, weights, normalize=metric == "cosine")
    costs = [estimated_cost(name, chunk, c) for name, c in sets.items()]
    if X is None:
        return CoresetQuality(few.n_rows, tuple(costs))
    names = getattr(few, "feature_names", None)
    dataset, _ = open_stored(X, RowsSpec(expected=names or ()), weights=sample_weight)
    refuse_partial(dataset, "coreset_quality")
    known = FeatureSpec(few.n_features, names, scaling, owner="the coreset")
    dataset = for_metric(known.align(dataset), metric)
    dtype = compute_dtype(dataset.dtype)
    found = _costs(dataset, [c.astype(dtype) for c in sets.values()], engine, callbacks)
    known_costs = [replace(cost, true=value) for cost, value in zip(costs, found, strict=True)]
    return CoresetQuality(few.n_rows, tuple(known_costs))


def _made(few: Dataset, n_clusters: int, metric: str, random_state: Any) -> dict[str, np.ndarray]:
    """Return centres of different kinds, found on the coreset alone."""
    seed = as_seed(random_state)

    def found(k: int, init: str, max_iter: int) -> np.ndarray:
        kmeans = KMeans(
            k,
            init=init,
            n_init=1,
            max_iter=max_iter,
            metric=metric,
            random_state=seed % 2**32,
            engine=LocalEngine(),
        )
        return kmeans.fit(few).to_model().centres  # on the coreset's scale, if it has one

    return {
        "mean": found(1, "random", 1),
        "random rows": found(n_clusters, "random", 0),
        "k-means++": found(n_clusters, "k-means++", 0),
        "k-means": found(n_clusters, "k-means++", 100),
    }


def _named(centres: Any, few: Dataset, scaling: FeatureScaling | None) -> dict[str, np.ndarray]:
    if centres is None:
        return {}
    given = centres if isinstance(centres, Mapping) else {"given": centres}
    sets = {str(name): _checked(of, few, f"centres {name!r}") for name, of in given.items()}
    if scaling is None:
        return sets
    return {name: np.asarray(scaling.apply(array)) for name, array in sets.items()}


@varies_with()
def quantization_error(
    X: Any, centres: Any, *, mean: bool = False, sample_weight: Any = None, engine: Any = None
) -> float:
    """Return the weighted sum of squared distances of rows to their nearest centres.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    centres : array-like of shape (k, d)
    mean : bool, default False
        Return the weighted mean instead.
    sample_weight : array-like of shape (n,), optional
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Notes
    -----
    Cost: one pass.

    Examples
    --------
    >>> import daskcluster as dc
    >>> dc.quantization_error([[0.0], [1.0], [5.0]], [[0.0], [4.0]])
    2.0
    >>> dc.quantization_error([[0.0], [1.0], [5.0]], [[0.0], [4.0]], sample_weight=[2, 1, 1], mean=True)
    0.5
    """
    dataset, _ = open_stored(X, AS_THEY_ARE, weights=sample_weight)
    refuse_partial(dataset, "quantization_error")
    wanted = _checked(centres, dataset, "centres")
    with choose_engine(engine, dataset).place(dataset, footprint=ONE_PASS) as placement:
        found = score_rows(ScaledPlacement(placement), wanted)
    if not mean:
        return found.inertia
    return found.inertia / float(found.cluster_weights(weighted=dataset.weights is not None).sum())


@varies_with()
def relative_error(
    X: Any, centres: Any, reference: Any, *, sample_weight: Any = None, engine: Any = None
) -> float:
    """Return the relative excess of the quantisation error of `centres` over that of `reference`.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    centres : array-like of shape (k, d), or fitted estimator
    reference : array-like of shape (m, d), fitted estimator, or float
        Other centres, or their quantisation error on the same rows.
    sample_weight : array-like of shape (n,), optional
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    float
        (error - reference error) / reference error; negative where `centres` are better.

    Raises
    ------
    InvalidParameterError
        The error of the reference is not above zero, so no relative error exists.

    Notes
    -----
    Equation 9 of Hirschberger, Forster and Luecke, "Large scale clustering with variational EM for Gaussian
    mixture models", arXiv:1810.00803, where the reference is the best of several fits of k-means.
    Cost: one pass for both sets.

    Examples
    --------
    >>> import daskcluster as dc
    >>> rows = [[0.0], [1.0], [5.0]]
    >>> dc.relative_error(rows, [[0.0], [4.0]], [[0.5], [5.0]])
    3.0
    >>> dc.relative_error(rows, [[0.0], [4.0]], 1.0)
    1.0
    """
    dataset, _ = open_stored(X, AS_THEY_ARE, weights=sample_weight)
    refuse_partial(dataset, "relative_error")
    sets = [_checked(centres, dataset, "centres")]
    known = isinstance(reference, (int, float, np.number)) and not isinstance(reference, bool)
    if not known:
        sets.append(_checked(reference, dataset, "reference centres"))
    found = _costs(dataset, sets, engine)
    error, other = found[0], float(reference) if known else found[1]
    if not other > 0.0:
        raise InvalidParameterError(
            f"the quantisation error of the reference is {other!r}, nothing is relative to it; compare the "
            f"errors themselves ({error!r} here)."
        )
    return (error - other) / other


def _checked(centres: Any, dataset: Dataset, what: str) -> np.ndarray:
    """Return centres in the dtype in which rows are computed, or those of a fitted estimator."""
    given = getattr(centres, "cluster_centers_", getattr(centres, "means_", centres))
    names = getattr(centres, "feature_names_in_", None)
    given = columns_by_name(given, None if names is None else names.tolist(), dataset)
    wanted = np.ascontiguousarray(given, dtype=compute_dtype(dataset.dtype))
    if wanted.ndim != 2 or wanted.shape[1] != dataset.n_features:
        raise InvalidDataError(
            f"{what} of shape {wanted.shape} should be of shape (k, {dataset.n_features})."
        )
    refuse_large(np.abs(wanted).max(axis=0, initial=0.0), wanted.dtype, f"The array of {what}")
    return wanted
