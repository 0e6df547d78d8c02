"""The catalogue of algorithms: every name that ``fit --algorithm`` and `jobs.fit` accept.

A method declares its names with its parameters, in its ``parameters.py``. Nothing heavy is imported here:
an estimator is named by module and class.

Another package adds its own entries to `ALGORITHMS` when it is imported. ``DASKCLUSTER_PRELOAD=package``
imports it for the command line, and for every other process that reads the catalogue.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from daskcluster.errors import InvalidParameterError
from daskcluster.methods.backward_euler import parameters as backward_euler
from daskcluster.methods.coreset import parameters as coreset
from daskcluster.methods.hierarchical import parameters as hierarchical
from daskcluster.methods.kernel_kmeans import parameters as kernel
from daskcluster.methods.kmeans import parameters as kmeans
from daskcluster.methods.minibatch import parameters as minibatch
from daskcluster.methods.mixture import parameters as mixture
from daskcluster.methods.nested import parameters as nested
from daskcluster.methods.streaming import parameters as streaming
from daskcluster.methods.variance_reduced import parameters as variance_reduced
from daskcluster.parameters.algorithm import Catalogue

if TYPE_CHECKING:
    from daskcluster.estimators.plan import MakePlan, Plan
    from daskcluster.typing import Dataset

_METHODS = (
    kmeans, coreset, hierarchical, streaming, minibatch, nested, kernel, variance_reduced, backward_euler,
    mixture,
)  # fmt: skip

ALGORITHMS = Catalogue(
    {name: each for method in _METHODS for name, each in method.ALGORITHMS.items()}
)
"""All algorithms, in the order of help."""


def estimator_path(class_name: str) -> str | None:
    """Return ``"module:Class"`` of an estimator of the catalogue; None if it has no such class.

    Examples
    --------
    >>> estimator_path("KMeans")
    'daskcluster.methods.kmeans.estimator:KMeans'
    """
    return _paths().get(class_name)


def class_names() -> tuple[str, ...]:
    """Return the names of all classes of the catalogue."""
    return tuple(_paths())


def _paths() -> dict[str, str]:
    return {entry.class_name: entry.estimator for entry in ALGORITHMS.values()}


def _preload(modules: str) -> None:
    for name in filter(None, modules.split(",")):
        try:
            import_module(name)
        except ImportError as error:
            raise InvalidParameterError(
                f"DASKCLUSTER_PRELOAD={modules!r} should name modules that can be imported, separated by "
                f"commas: {error}; install the package, or unset the variable."
            ) from error


def plan_of(dataset: Dataset, algorithm: str, given: Mapping[str, Any]) -> Plan | None:
    """Return the plan of a fit; None if the algorithm has none.

    Parameters
    ----------
    dataset : Dataset
    algorithm : str
        A name of the catalogue.
    given : mapping
        The parameters that were given.

    Raises
    ------
    DaskClusterError
        What the fit would raise before it starts.
    """
    from daskcluster.parameters.checks import (
        check_arguments,  # imports numpy, which help does without
    )

    entry = ALGORITHMS.find(algorithm)
    if not entry.plan:
        return None
    check_arguments(entry, given)
    defaults = {name: parameter.default for name, parameter in entry.parameters.items()}
    make_plan: MakePlan = resolve_name(entry.plan)
    return make_plan(dataset, entry.arguments({**defaults, **given}))


# At the end: a module that is imported here may import this one.
_preload(os.environ.get("DASKCLUSTER_PRELOAD", ""))
