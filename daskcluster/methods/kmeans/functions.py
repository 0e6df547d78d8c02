"""Functions without an estimator: seeding on its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.data.open import open_source
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.methods.kmeans.initial import candidate_reducer
from daskcluster.parameters import shared
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import as_seed
from daskcluster.seeding.methods import afk_mc2 as _afk_mc2
from daskcluster.seeding.methods import kmeans_parallel as _kmeans_parallel
from daskcluster.seeding.methods import kmeans_plusplus as _kmeans_plusplus
from daskcluster.typing import Dataset


def kmeans_plusplus(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    n_local_trials: int | None = None,
    engine: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose centres by greedy k-means++ (Arthur and Vassilvitskii 2007).

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    n_clusters : int
    sample_weight : array-like of shape (n,), optional
    random_state : int, RandomState, Generator or None
    n_local_trials : int, optional
        Candidates a step; default 2 + floor(log k).
    engine : see `daskcluster.KMeans`

    Returns
    -------
    centers : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        Rows that the centres are.

    Notes
    -----
    Cost: k + 1 passes, 8 bytes of state a row.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> centers, indices = dc.kmeans_plusplus(X, 2, random_state=0)
    >>> bool((X[indices] == centers).all()), len(set((indices // 2).tolist()))
    (True, 2)
    """
    dataset = _dataset(X, sample_weight, n_clusters)
    if n_local_trials is not None and n_local_trials < 1:
        raise InvalidParameterError(
            f"n_local_trials={n_local_trials} should be >= 1; leave it out for 2 + log(k)."
        )
    with choose_engine(engine, dataset).place(dataset) as placement:
        rows = ScaledPlacement(placement)
        return _kmeans_plusplus(
            rows, n_clusters, as_seed(random_state), n_local_trials=n_local_trials
        )


def kmeans_parallel(
    X: Any,
    n_clusters: int,
    *,
    sample_weight: Any = None,
    random_state: Any = None,
    oversampling: float = 2.0,
    n_rounds: int = 5,
    engine: Any = None,
) -> np.ndarray:
    """Choose centres by k-means|| (Bahmani et al. 2012) in ``n_rounds + 1`` passes.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    n_clusters : int
    sample_weight : array-like of shape (n,), optional
    random_state : int, RandomState, Generator or None
    oversampling : float
        Rows drawn a round, in units of k.
    n_rounds : int
    engine : see `daskcluster.KMeans`

    Returns
    -------
    ndarray of shape (k, d)

    Notes
    -----
    Cost: ``n_rounds + 1`` passes, 4 bytes of state a row.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> dc.kmeans_parallel(X, 2, random_state=0).shape
    (2, 2)
    """
    dataset = _dataset(X, sample_weight, n_clusters)
    if not oversampling > 0 or n_rounds < 1:
        raise InvalidParameterError(
            f"oversampling={oversampling} should be > 0 and n_rounds={n_rounds} >= 1."
        )
    seed = as_seed(random_state)
    with choose_engine(engine, dataset).place(dataset) as placement:
        rows = ScaledPlacement(placement)
        return _kmeans_parallel(
            rows,
            n_clusters,
            seed,
            reduce_candidates=candidate_reducer(seed, rows),
            oversampling=oversampling,
            n_rounds=n_rounds,
        )


def afk_mc2(
    X: Any,
    n_clusters: int,
    *,
    chain_length: int = 10,
    sample_weight: Any = None,
    random_state: Any = None,
    engine: Any = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose centres by AFK-MC2 (Bachem et al. 2016): k-means++ by Markov chains, in two passes.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    n_clusters : int
    chain_length : int
        Rows proposed for each centre. Longer chains come closer to k-means++ without candidates.
    sample_weight : array-like of shape (n,), optional
    random_state : int, RandomState, Generator or None
    engine : see `daskcluster.KMeans`

    Returns
    -------
    centers : ndarray of shape (k, d)
    indices : ndarray of shape (k,)
        Rows that the centres are.

    Notes
    -----
    Cost: two passes, and more only where few rows are distinct; n + m k^2 / 2 distances for chains of
    length m, and their k m rows in memory.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> centers, indices = dc.afk_mc2(X, 2, random_state=0)
    >>> bool((X[indices] == centers).all()), len(set((indices // 2).tolist()))
    (True, 2)
    """
    dataset = _dataset(X, sample_weight, n_clusters)
    check_value("afk_mc2", shared.CHAIN_LENGTH, chain_length)
    with choose_engine(engine, dataset).place(dataset) as placement:
        rows = ScaledPlacement(placement)
        return _afk_mc2(rows, n_clusters, as_seed(random_state), chain_length=chain_length)


def _dataset(X: Any, sample_weight: Any, n_clusters: int) -> Dataset:
    dataset = open_source(X, weights=sample_weight)
    if not 1 <= n_clusters <= dataset.n_rows:
        raise InvalidParameterError(
            f"n_samples={dataset.n_rows} should be >= n_clusters={n_clusters} >= 1."
        )
    return dataset
