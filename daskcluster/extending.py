"""Registrations, and the classes that they take, for packages that extend daskcluster.

An extension works as soon as its module is imported. For the command line and for workers, set
``DASKCLUSTER_PRELOAD=package.module``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what an extension does not use is not imported
    from daskcluster.data.dataset import RowDataset
    from daskcluster.data.row_files import RowFormat
    from daskcluster.data.sources import Source
    from daskcluster.data.spec import RowsSpec
    from daskcluster.jobs.spec import JobSpec, Output
    from daskcluster.methods.kmeans.chunkwise.kind import BoundKind
    from daskcluster.methods.kmeans.estimator import KMeansEstimator
    from daskcluster.methods.kmeans.initial import Seeding
    from daskcluster.parameters import Algorithm, Parameter

__all__ = [
    "Algorithm",
    "BoundKind",
    "JobSpec",
    "KMeansEstimator",
    "Output",
    "Parameter",
    "RowDataset",
    "RowFormat",
    "RowsSpec",
    "Seeding",
    "Source",
    "register_algorithm",
    "register_bounds",
    "register_gram",
    "register_job",
    "register_seeding",
    "register_source",
]

_CLASSES = {
    "Algorithm": "daskcluster.parameters",
    "BoundKind": "daskcluster.methods.kmeans.chunkwise.kind",
    "JobSpec": "daskcluster.jobs.spec",
    "KMeansEstimator": "daskcluster.methods.kmeans.estimator",
    "Output": "daskcluster.jobs.spec",
    "Parameter": "daskcluster.parameters",
    "RowDataset": "daskcluster.data.dataset",
    "RowFormat": "daskcluster.data.row_files",
    "RowsSpec": "daskcluster.data.spec",
    "Seeding": "daskcluster.methods.kmeans.initial",
    "Source": "daskcluster.data.sources",
}


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module 'daskcluster.extending' has no attribute {name!r}")
    return getattr(import_module(_CLASSES[name]), name)


def register_algorithm(name: str, algorithm: Algorithm) -> None:
    """Add an estimator to the catalogue: ``fit --algorithm`` and `daskcluster.jobs.fit` take its name.

    Registering another one under the same name replaces it.

    Parameters
    ----------
    name : str
    algorithm : Algorithm

    Examples
    --------
    >>> from daskcluster.extending import Algorithm
    >>> from daskcluster.methods.catalogue import ALGORITHMS
    >>> register_algorithm("fast", Algorithm("package.module:Fast", (), "one pass"))
    >>> ALGORITHMS.pop("fast").class_name
    'Fast'
    """
    from daskcluster.methods.catalogue import ALGORITHMS

    ALGORITHMS[name] = algorithm


def register_bounds(kind: BoundKind, about: str) -> None:
    """Register another kind of bounds as ``KMeans(algorithm=kind.name)``.

    Parameters
    ----------
    kind : BoundKind
        If its state does not fit into memory, the existing kinds take its place.
    about : str
        A few words for help.
    """
    from daskcluster.methods.kmeans.bounds import BOUNDS
    from daskcluster.methods.kmeans.parameters import EXACT

    others = {name: each for name, each in BOUNDS.items() if name != kind.name}
    BOUNDS.clear()
    BOUNDS.update({kind.name: kind, **others})
    EXACT[kind.name] = about


def register_gram(name: str, function: Callable[[Any, Any], Any]) -> None:
    """Register a Gram function, so that ``kernel=name`` uses it in estimators and on the command line.

    Saved models store the name and find the function again when they are loaded. The function of a
    callable kernel, in contrast, is not saved.

    Parameters
    ----------
    name : str
    function : callable (X, Y) -> ndarray of shape (len(X), len(Y))
        A function of a module that workers can import: symmetric, positive semi-definite, finite. CSR
        rows are passed as `scipy.sparse.csr_array`.

    Notes
    -----
    Cost: the function is called with blocks of rows and all points of the centres.

    Examples
    --------
    >>> import daskcluster as dc
    >>> from daskcluster.methods.kernel_kmeans.chunkwise import FUNCTIONS
    >>> from daskcluster.methods.kernel_kmeans.parameters import KERNELS
    >>> register_gram("histogram", lambda X, Y: 1.0 + X @ Y.T)
    >>> fitted = dc.KernelKMeans(2, kernel="histogram", random_state=0).fit([[0.0], [1.0], [9.0]])
    >>> fitted.labels_.tolist() in ([0, 0, 1], [1, 1, 0])
    True
    >>> del FUNCTIONS["histogram"], KERNELS["histogram"]
    """
    from daskcluster.methods.kernel_kmeans.chunkwise import FUNCTIONS
    from daskcluster.methods.kernel_kmeans.parameters import KERNELS

    FUNCTIONS[name] = function
    KERNELS[name] = None


def register_job(spec: JobSpec) -> None:
    """Add a job: its command, its dry run, and `daskcluster.jobs.submit` follow.

    Registering another one under the same name replaces it. ``DASKCLUSTER_PRELOAD=module`` registers it on
    the command line and on workers.

    Parameters
    ----------
    spec : JobSpec

    Examples
    --------
    >>> from daskcluster.jobs.spec import JOBS, JobSpec
    >>> register_job(JobSpec(name="count", function="counting:count", help="Count the rows of SOURCE."))
    >>> JOBS.pop("count").function_name
    'count'
    """
    from daskcluster.jobs.spec import JOBS

    JOBS[spec.name] = spec


def register_seeding(seeding: Seeding) -> None:
    """Add a way to choose initial centres: every ``init=`` takes its name.

    Registering another one under the same name replaces it.

    Parameters
    ----------
    seeding : Seeding

    Examples
    --------
    >>> import daskcluster as dc
    >>> from daskcluster.methods.kmeans.initial import SEEDINGS, Seeding
    >>> from daskcluster.parameters.shared import METHODS
    >>> from daskcluster.seeding.methods import take_centres
    >>> def first_rows(rows, n_clusters, seed, chain_length):
    ...     return take_centres(rows, range(n_clusters))
    >>> register_seeding(Seeding("first rows", first_rows))
    >>> dc.KMeans(2, init="first rows", max_iter=0).fit([[0.0], [1.0], [9.0]]).cluster_centers_.ravel()
    array([0., 1.])
    >>> METHODS.remove(SEEDINGS.pop("first rows").name)
    """
    from daskcluster.methods.kmeans.initial import SEEDINGS
    from daskcluster.parameters.shared import METHODS

    if seeding.name not in METHODS:
        METHODS.append(seeding.name)
    SEEDINGS[seeding.name] = seeding


def register_source(source: Source) -> None:
    """Let `daskcluster.open_dataset`, fits and the command line take one more kind of source.

    It is asked before all others. Registering another one under the same name replaces it.

    Parameters
    ----------
    source : Source
        The dataset that it opens is best a `daskcluster.data.dataset.RowDataset`, which asks for little.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.memory import ArrayDataset
    >>> from daskcluster.data.open import open_source
    >>> from daskcluster.data.sources import SOURCES, Source
    >>> def takes(given):
    ...     return getattr(given, "scheme", "") == "ones"
    >>> register_source(Source("ones", takes, lambda given, spec: ArrayDataset(np.ones((9, 2)))))
    >>> open_source("ones://nine").n_rows
    9
    >>> del SOURCES[0]
    """
    from daskcluster.data.sources import SOURCES

    SOURCES[:] = [source, *(each for each in SOURCES if each.name != source.name)]
