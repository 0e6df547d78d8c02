"""Whether a coreset is large enough: estimated against true costs of several sets of centres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.data.open import open_dataset
from daskcluster.data.row_transforms import for_metric
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError
from daskcluster.estimators.opening import scaled_like
from daskcluster.events import Callback
from daskcluster.methods.coreset.estimator import dataset_of
from daskcluster.methods.coreset.merged import rows_and_weights
from daskcluster.methods.coreset.relative_error import (
    CoresetQuality,
    compared,
    estimated_cost,
    true_costs,
)
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.parameters import shared
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import as_seed
from daskcluster.typing import Dataset


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
    too small is fitted better than the rows that it stands for.

    Parameters
    ----------
    coreset : Dataset, LightweightCoreset, or URL of a saved one
    X : anything `open_dataset` takes, of shape (n, d), optional
        All rows. Without them there are estimates and their standard errors only.
    centres : array-like of shape (k, d), or mapping of str to array-like, optional
        Further centres, by name.
    n_clusters : int
        Of the sets that are made.
    sample_weight : array-like of shape (n,), optional
        Weights of `X`.
    metric : {"euclidean", "cosine"}
    random_state : int, RandomState, Generator or None
        Of the sets that are made.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Hear the progress of the pass over `X`.

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
        return compared(costs, None, few.n_rows)
    dataset = scaled_like(open_dataset(X, weights=sample_weight), scaling)
    dataset = for_metric(dataset, metric)
    _check_features(dataset, few)
    dtype = compute_dtype(dataset.dtype)
    with choose_engine(engine, dataset).place(dataset, callbacks=callbacks) as placement:
        found = true_costs(ScaledPlacement(placement), [c.astype(dtype) for c in sets.values()])
    return compared(costs, found, few.n_rows)


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
    sets = {}
    for name, values in given.items():
        array = np.ascontiguousarray(values, dtype=compute_dtype(few.dtype))
        if array.ndim != 2 or array.shape[1] != few.n_features:
            raise InvalidDataError(
                f"centres {name!r} of shape {array.shape} should be of shape (k, {few.n_features})."
            )
        sets[str(name)] = array if scaling is None else np.asarray(scaling.apply(array))
    return sets


def _check_features(dataset: Dataset, few: Dataset) -> None:
    if dataset.n_features != few.n_features:
        raise InvalidDataError(
            f"X has {dataset.n_features} features, but the coreset has {few.n_features}; give the rows "
            "that it was drawn from."
        )
