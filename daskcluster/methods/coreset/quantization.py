"""The quantization error of any centres on any rows, absolute and relative to other centres."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.chunkwise.data_statistics import refuse_large
from daskcluster.data.features import columns_by_name
from daskcluster.data.open import open_source
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement, score_rows
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.methods.coreset.quality import true_costs
from daskcluster.typing import Dataset


def quantization_error(
    X: Any, centres: Any, *, mean: bool = False, sample_weight: Any = None, engine: Any = None
) -> float:
    """Return the weighted sum of squared distances of rows to their nearest centres.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
    centres : array-like of shape (k, d)
    mean : bool
        Return the weighted mean instead.
    sample_weight : array-like of shape (n,), optional
    engine : see `daskcluster.KMeans`

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
    dataset = open_source(X, weights=sample_weight)
    wanted = _checked(centres, dataset, "centres")
    with choose_engine(engine, dataset).place(dataset, footprint=ONE_PASS) as placement:
        found = score_rows(ScaledPlacement(placement), wanted)
    if not mean:
        return found.inertia
    return found.inertia / float(found.cluster_weights(weighted=dataset.weights is not None).sum())


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
    engine : see `daskcluster.KMeans`

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
    dataset = open_source(X, weights=sample_weight)
    sets = [_checked(centres, dataset, "centres")]
    known = isinstance(reference, (int, float, np.number)) and not isinstance(reference, bool)
    if not known:
        sets.append(_checked(reference, dataset, "reference centres"))
    with choose_engine(engine, dataset).place(dataset, footprint=ONE_PASS) as placement:
        found = true_costs(ScaledPlacement(placement), sets)
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
