"""Every name that ``fit --algorithm NAME`` and ``jobs.fit(algorithm=NAME)`` accept.

An estimator is registered by one entry of `ALGORITHMS`. It is named by module and class, and imported
when it is first used, by whoever uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from daskcluster.errors import InvalidParameterError
from daskcluster.parameters.backward_euler import BACKWARD_EULER
from daskcluster.parameters.coreset import CORESET
from daskcluster.parameters.hierarchical import HIERARCHICAL
from daskcluster.parameters.kernel import KERNEL_KMEANS, MINI_BATCH_KERNEL
from daskcluster.parameters.kmeans import KMEANS
from daskcluster.parameters.minibatch import MINI_BATCH
from daskcluster.parameters.mixture import MIXTURE
from daskcluster.parameters.nested import NESTED
from daskcluster.parameters.streaming import STREAMING
from daskcluster.parameters.table import Parameter
from daskcluster.parameters.variance_reduced import VARIANCE_REDUCED

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Algorithm:
    """What a name of the catalogue stands for.

    Attributes
    ----------
    estimator : str
        ``"module:Class"``. The class takes ``engine`` and ``callbacks`` beside its table.
    table : tuple of Parameter
        All plain parameters of the class.
    about : str
        A few words for the help of ``--algorithm``.
    fixed : mapping
        Constructor arguments that the name decides, and that nobody may give beside it.
    defaults : mapping
        Values of parameters where the name has another default than the class.
    rename : mapping
        From a parameter's name to the constructor's, where they differ:
        ``{"n_clusters": "n_components"}`` for mixtures.
    plan : str
        ``"module:function"`` of what says beforehand what a fit takes (a
        `daskcluster.estimators.plan.MakePlan`); empty if nothing does.
    """

    estimator: str
    table: tuple[Parameter, ...]
    about: str = ""
    fixed: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    rename: Mapping[str, str] = field(default_factory=lambda: _NONE)
    plan: str = ""

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters that may be given, by name, with the defaults that hold under this name."""
        return {
            p.name: p.varied(default=self.defaults.get(p.name, p.default))
            for p in self.table
            if self.argument(p.name) not in self.fixed
        }

    @property
    def class_name(self) -> str:
        return self.estimator.partition(":")[2]

    def argument(self, name: str) -> str:
        """Return what the constructor calls parameter `name`."""
        return self.rename.get(name, name)

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments where `given` are the parameters that were given."""
        chosen = {**self.defaults, **given}
        return {**{self.argument(name): value for name, value in chosen.items()}, **self.fixed}


_EXACT = {
    "auto": "exact k-means, whichever of the next four is fastest as the fit goes on",
    "lloyd": "every row and centre in each iteration",
    "elkan": "a bound for each row and centre",
    "hamerly": "one bound a row",
    "yinyang": "a bound for each row and group of centres",
}

ALGORITHMS: dict[str, Algorithm] = {
    **{
        name: Algorithm(
            "daskcluster.methods.kmeans.estimator:KMeans",
            KMEANS,
            about=about,
            fixed={"algorithm": name},
            plan="daskcluster.methods.kmeans.projection:plan_fit",
        )
        for name, about in _EXACT.items()
    },
    "coreset": Algorithm(
        "daskcluster.methods.coreset.kmeans:CoresetKMeans",
        CORESET,
        about="a small weighted sample, two passes over the rows",
        plan="daskcluster.methods.coreset.projection:plan_fit",
    ),
    "hierarchical": Algorithm(
        "daskcluster.methods.hierarchical.estimator:HierarchicalKMeans",
        HIERARCHICAL,
        about="very many clusters: cells first, clusters within each, then all together",
        plan="daskcluster.methods.hierarchical.projection:plan_fit",
    ),
    "streaming": Algorithm(
        "daskcluster.methods.streaming.estimator:StreamingKMeans",
        STREAMING,
        about="one pass over rows in their order, old ones may be forgotten",
        plan="daskcluster.methods.streaming.projection:plan_fit",
    ),
    "mini-batch": Algorithm(
        "daskcluster.methods.minibatch.estimator:MiniBatchKMeans",
        MINI_BATCH,
        about="a small random batch of rows a step",
        plan="daskcluster.methods.minibatch.projection:plan_fit",
    ),
    "sgd": Algorithm(
        "daskcluster.methods.minibatch.estimator:MiniBatchKMeans",
        MINI_BATCH,
        about="stochastic k-means: every row moves its centre at once",
        fixed={"batch_size": 1, "learning_rate": "count"},
        defaults={"max_no_improvement": None, "reassignment_ratio": 0.0},
        plan="daskcluster.methods.minibatch.projection:plan_fit",
    ),
    "nested": Algorithm(
        "daskcluster.methods.nested.estimator:NestedMiniBatchKMeans",
        NESTED,
        about="mini-batches that double until they are all rows",
        plan="daskcluster.methods.nested.projection:plan_fit",
    ),
    "kernel": Algorithm(
        "daskcluster.methods.kernel.estimator:KernelKMeans",
        KERNEL_KMEANS,
        about="kernel k-means, all rows against all rows",
        plan="daskcluster.methods.kernel.projection:plan_fit",
    ),
    "mini-batch-kernel": Algorithm(
        "daskcluster.methods.kernel.minibatch.estimator:MiniBatchKernelKMeans",
        MINI_BATCH_KERNEL,
        about="kernel k-means by small random batches",
        plan="daskcluster.methods.kernel.projection:plan_minibatch_fit",
    ),
    **{
        name: Algorithm(
            "daskcluster.methods.variance_reduced.estimator:VarianceReducedKMeans",
            VARIANCE_REDUCED,
            about=about,
            fixed={"variant": name},
            plan="daskcluster.methods.variance_reduced.projection:plan_fit",
        )
        for name, about in (
            ("vrkm++", "full passes, and steps of single rows between them"),
            ("vrkm", "the same with a pass for the full gradient, which is zero"),
        )
    },
    "backward-euler": Algorithm(
        "daskcluster.methods.backward_euler.estimator:BackwardEulerKMeans",
        BACKWARD_EULER,
        about="large implicit steps on mini-batches, which pass bad local minima",
        plan="daskcluster.methods.backward_euler.projection:plan_fit",
    ),
    **{
        name: Algorithm(
            "daskcluster.methods.mixture.estimator:VariationalGaussianMixture",
            MIXTURE,
            about=f"a Gaussian mixture of {rows}, by truncated EM",
            fixed=fixed,
            defaults=defaults,
            rename={"n_clusters": "n_components"},
            plan="daskcluster.methods.mixture.projection:plan_fit",
        )
        for name, rows, fixed, defaults in (
            ("var-gmm", "all rows", {"coreset_size": None}, {}),
            ("vc-gmm", "a small weighted sample", {}, {"coreset_size": 10_000}),
        )
    },
}
"""From names to algorithms. The first is the default."""


def find_algorithm(name: str, catalogue: Mapping[str, Algorithm] = ALGORITHMS) -> Algorithm:
    """Return the algorithm called `name` in a catalogue.

    Raises
    ------
    InvalidParameterError
        There is none.

    Examples
    --------
    >>> find_algorithm("elkan").class_name
    'KMeans'
    """
    if name not in catalogue:
        raise InvalidParameterError(
            f"algorithm={name!r} should be one of {', '.join(catalogue)}{_meant(name, catalogue)}."
        )
    return catalogue[name]


def owners(parameter: str, catalogue: Mapping[str, Algorithm] = ALGORITHMS) -> tuple[str, ...]:
    """Return the names of the algorithms that have `parameter`, in the catalogue's order."""
    return tuple(name for name, entry in catalogue.items() if parameter in entry.parameters)


def parameters_by_name(
    catalogue: Mapping[str, Algorithm] = ALGORITHMS,
) -> dict[str, dict[str, Parameter]]:
    """Return every parameter of any algorithm, by name and then by algorithm."""
    found: dict[str, dict[str, Parameter]] = {}
    for algorithm, entry in catalogue.items():
        for name, parameter in entry.parameters.items():
            found.setdefault(name, {})[algorithm] = parameter
    return found


def check_parameters(
    algorithm: str, names: Any, catalogue: Mapping[str, Algorithm] = ALGORITHMS
) -> None:
    """Refuse parameters that `algorithm` does not have.

    Raises
    ------
    InvalidParameterError
        Which says what the algorithm has, and which other ones have the parameter.

    Examples
    --------
    >>> check_parameters("lloyd", ["max_iter", "tol"])
    """
    known = find_algorithm(algorithm, catalogue).parameters
    for name in names:
        if name not in known:
            raise InvalidParameterError(_lacks(algorithm, name, catalogue))


def _lacks(algorithm: str, name: str, catalogue: Mapping[str, Algorithm]) -> str:
    known, others = catalogue[algorithm].parameters, owners(name, catalogue)
    remedy = (
        f"{name!r} is a parameter of {', '.join(others)}"
        if others
        else f"no algorithm has it{_meant(name, known)}"
    )
    return (
        f"algorithm={algorithm!r} has no parameter {name!r}; {remedy}. "
        f"The parameters of {algorithm!r} are {', '.join(known)}."
    )


def _meant(name: str, known: Any) -> str:
    near = get_close_matches(str(name), list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def class_names() -> tuple[str, ...]:
    """Return the names of all classes of the catalogue."""
    return tuple(_paths())


def estimator_path(class_name: str) -> str | None:
    """Return ``"module:Class"`` of an estimator of the catalogue; None if it has no such class.

    Examples
    --------
    >>> estimator_path("KMeans")
    'daskcluster.methods.kmeans.estimator:KMeans'
    """
    return _paths().get(class_name)


def _paths() -> dict[str, str]:
    return {entry.class_name: entry.estimator for entry in ALGORITHMS.values()}
