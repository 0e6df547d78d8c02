"""First centres that a caller has: an array of them, or a model.

Tasks that run on workers import it, so it does without scikit-learn: 140 MB with all that comes along.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskcluster.chunkwise.survey import refuse_large
from daskcluster.errors import InvalidParameterError, ModelFormatError
from daskcluster.models.persist import load_document
from daskcluster.parameters.shared import METHODS
from daskcluster.typing import Dataset


def checked_centres(init: Any, n_clusters: int, dataset: Dataset, dtype: Any) -> np.ndarray:
    """Return initial centres (k, d) in `dtype`, after scikit-learn's checks of their shape."""
    if hasattr(init, "toarray"):
        init = init.toarray()  # rows of sparse data, as a callable may pick them
    centres = np.array(init, dtype=dtype, order="C", copy=True)
    if centres.ndim != 2 or centres.shape[0] != n_clusters:
        raise InvalidParameterError(
            f"The shape of the initial centers {centres.shape} does not match the number of clusters "
            f"{n_clusters}."
        )
    if centres.shape[1] != dataset.n_features:
        raise InvalidParameterError(
            f"The shape of the initial centers {centres.shape} does not match the number of features "
            f"of the data {dataset.n_features}."
        )
    if not np.isfinite(centres).all():
        raise InvalidParameterError(
            "The initial centers contain NaN or infinity; they must be finite."
        )
    refuse_large(np.abs(centres).max(axis=0), centres.dtype, "The array of initial centers")
    return centres


def model_centres(init: Any) -> np.ndarray:
    """Return the centres (k, d) of a fitted estimator, or of the model saved at a URL."""
    if hasattr(init, "cluster_centers_"):
        return np.asarray(init.cluster_centers_)
    try:
        return load_document(init).centres_of_data
    except (ModelFormatError, FileNotFoundError) as error:
        raise InvalidParameterError(
            f"init={init!r} should be one of {', '.join(METHODS)}, an array of centres, a callable, a "
            f"fitted estimator, or the URL of a saved model, which it is not: {error}"
        ) from error
