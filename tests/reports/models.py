"""Models to report on."""

from __future__ import annotations

import numpy as np

from daskcluster.models.fitted import KMeansModel


def make_model(k: int, **changes: object) -> KMeansModel:
    values: dict[str, object] = {
        "sizes": np.arange(k),
        "costs": np.ones(k),
        "inertia": float(k),
        "n_rows": 10,
        "n_iter": 2,
        "stop_reason": "tolerance",
        "history": [{"iteration": i, "inertia": 9.0 - i, "seconds": 0.1} for i in (1, 2, 3)],
        "parameters": {"n_clusters": k, "max_time": None, "tol": 1e-4},
        "created_with": {"python": "3"},
    }
    return KMeansModel(np.eye(k, 2), np.arange(k, dtype=float), **{**values, **changes})  # type: ignore[arg-type]
