"""Centres as an index of Faiss: a coarse quantizer, or a server of nearest centres."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskcluster.errors import InvalidParameterError, MissingExtraError


def faiss_index(estimator: Any) -> Any:
    """Return a flat index of the centres; of inner products for the cosine metric."""
    check_is_fitted(estimator)
    if estimator.scaling_ is not None:
        raise InvalidParameterError(
            "an index knows no scale, and the fit was made on one; take to_sklearn(), which scales first."
        )
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            'an index needs Faiss; install it with: pip install "daskcluster[faiss]".'
        ) from error
    centres = np.ascontiguousarray(estimator.cluster_centers_, np.float32)
    kind = faiss.IndexFlatIP if estimator.metric == "cosine" else faiss.IndexFlatL2
    index = kind(centres.shape[1])
    index.add(centres)
    return index
