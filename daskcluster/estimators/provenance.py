"""Details of a fit that are stored in its model: seeding, passes, history, parameters."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from daskcluster.estimators.base import BY_REFERENCE
from daskcluster.models.fitted import FittedModel, created_with

E = TypeVar("E", bound=BaseEstimator)

_LEARNT = ("n_iter", "stop_reason", "seeding", "passes", "bytes_read", "n_rows")

_OF_ONE_CALL = ("checkpoint", "checkpoint_every")
"""Parameters of a single call, which are not stored in the model."""


def provenance(estimator: Any) -> dict[str, Any]:
    """Return the fields of a `FittedModel` other than its centres, from a fitted estimator."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        **{name: getattr(estimator, f"{name}_") for name in _LEARNT},
        "history": tuple(estimator.history_),
        "parameters": _plain_parameters(estimator),
        "feature_names": None if names is None else tuple(map(str, names)),
        "created_with": created_with(),
        "estimator": registered_name(type(estimator)),
        "scaling": getattr(estimator, "scaling_", None),
        "decoded": getattr(estimator, "_decoded", None),
        "missing": getattr(estimator, "_missing", "error"),
        "search": getattr(estimator, "_search", None),
    }


def registered_name(estimator: type) -> str:
    """Return the name of `estimator`, or of its nearest base class that declares parameters."""
    declares = (base for base in estimator.__mro__ if vars(base).get("_parameters"))
    return next(declares, estimator).__name__


def from_provenance(kind: type[E], model: FittedModel, **arguments: Any) -> E:
    """Return an estimator of class `kind` with the parameters and fit details of `model`.

    Parameters
    ----------
    kind : type
        Class of the estimator.
    model : FittedModel
    **arguments : object
        Constructor arguments that replace recorded parameters.
    """
    names = kind(**arguments).get_params(deep=False)
    # Engine and checkpoint are never taken from a file: an untrusted file could name a scheduler, which
    # would receive rows and return pickles.
    names = set(names) - {*BY_REFERENCE, *_OF_ONE_CALL}
    plain = {
        name: value
        for name, value in model.parameters.items()
        if name in names and _is_plain(value) and not str(value).startswith("<")
    }
    estimator: Any = kind(**{**plain, **arguments})
    for name in _LEARNT:
        setattr(estimator, f"{name}_", getattr(model, name))
    estimator.history_ = list(model.history)
    estimator.n_features_in_ = model.n_features
    vars(estimator).update(_decoded=model.decoded, _missing=model.missing)
    if model.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(model.feature_names, dtype=object)
    return estimator


def _plain_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the parameters as plain JSON values; others are replaced by the name of their type."""
    found: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in (*BY_REFERENCE, *_OF_ONE_CALL):
            continue
        if isinstance(value, np.generic):
            value = value.item()
        found[name] = value if _is_plain(value) else f"<{type(value).__name__}>"
    return found


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
