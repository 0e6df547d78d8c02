"""Every name that ``fit --algorithm NAME`` and ``jobs.fit(algorithm=NAME)`` accept.

A method declares its names beside its parameters, in its ``parameters.py``. Nothing heavy is imported here:
an estimator is named by module and class.

Another package adds its own entries to `ALGORITHMS` when it is imported. ``DASKCLUSTER_PRELOAD=package``
imports it for the command line, and for every other process that reads the catalogue.
"""

from __future__ import annotations

import os
from importlib import import_module

from daskcluster.errors import InvalidParameterError
from daskcluster.methods.backward_euler import parameters as backward_euler
from daskcluster.methods.coreset import parameters as coreset
from daskcluster.methods.hierarchical import parameters as hierarchical
from daskcluster.methods.kernel import parameters as kernel
from daskcluster.methods.kmeans import parameters as kmeans
from daskcluster.methods.minibatch import parameters as minibatch
from daskcluster.methods.mixture import parameters as mixture
from daskcluster.methods.nested import parameters as nested
from daskcluster.methods.streaming import parameters as streaming
from daskcluster.methods.variance_reduced import parameters as variance_reduced
from daskcluster.parameters.algorithm import Catalogue

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


_preload(os.environ.get("DASKCLUSTER_PRELOAD", ""))
