"""Names of algorithms, and the estimator and arguments that each stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from daskcluster.errors import InvalidParameterError
from daskcluster.parameters.parameter import Parameter

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Algorithm:
    """An entry of the catalogue: the estimator behind a name, and its parameters.

    Attributes
    ----------
    estimator : str
        ``"module:Class"``, imported when it is first used.
    table : tuple of Parameter
        All parameters of the class, as it declares them itself.
    about : str
        A few words for the help of ``--algorithm``.
    fixed : mapping
        Constructor arguments that the name fixes; callers must not pass them.
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
        """The plain parameters that may be given, by name, with the defaults that hold under this name."""
        names = {argument: name for name, argument in self.rename.items()}
        found = (
            (names.get(p.name, p.name), p)
            for p in self.table
            if p.is_plain and p.name not in self.fixed
        )
        return {
            name: p.varied(name=name, default=self.defaults.get(name, p.default))
            for name, p in found
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


class Catalogue(dict[str, Algorithm]):
    """Algorithms by name. The first is the default.

    Examples
    --------
    >>> catalogue = Catalogue(fast=Algorithm("module:Fast", (Parameter("size", int, 1, "Rows."),)))
    >>> catalogue.find("fast").class_name
    'Fast'
    >>> catalogue.check("fast", ["size"])
    """

    def find(self, name: str) -> Algorithm:
        """Return the algorithm called `name`.

        Raises
        ------
        InvalidParameterError
            There is none.
        """
        if name not in self:
            raise InvalidParameterError(
                f"algorithm={name!r} should be one of {', '.join(self)}{_meant(name, self)}."
            )
        return self[name]

    def owners(self, parameter: str) -> tuple[str, ...]:
        """Return the names of the algorithms that have `parameter`."""
        return tuple(name for name, entry in self.items() if parameter in entry.parameters)

    def parameters(self) -> dict[str, dict[str, Parameter]]:
        """Return every parameter of any algorithm, by name and then by algorithm."""
        found: dict[str, dict[str, Parameter]] = {}
        for algorithm, entry in self.items():
            for name, parameter in entry.parameters.items():
                found.setdefault(name, {})[algorithm] = parameter
        return found

    def check(self, algorithm: str, names: Iterable[str]) -> None:
        """Refuse parameters that `algorithm` does not have.

        Raises
        ------
        InvalidParameterError
            Which says what the algorithm has, and which other ones have the parameter.
        """
        known = self.find(algorithm).parameters
        for name in names:
            if name not in known:
                raise InvalidParameterError(self._lacks(algorithm, name))

    def _lacks(self, algorithm: str, name: str) -> str:
        known, others = self[algorithm].parameters, self.owners(name)
        remedy = (
            f"{name!r} is a parameter of {', '.join(others)}"
            if others
            else f"no algorithm has it{_meant(name, known)}"
        )
        return (
            f"algorithm={algorithm!r} has no parameter {name!r}; {remedy}. "
            f"The parameters of {algorithm!r} are {', '.join(known)}."
        )


def _meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(str(name), list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


MEASURES = {
    "calinski-harabasz": "scatter between clusters over that within; larger is better; one pass",
    "davies-bouldin": "sizes of clusters over their distances; smaller is better; two passes",
    "silhouette": "of a sample of rows, within it; in [-1, 1]; one pass",
    "simplified-silhouette": "of all rows, by distances to means; in [-1, 1]; two passes",
}


def check_measures(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` if all are known.

    Raises
    ------
    InvalidParameterError

    Examples
    --------
    >>> check_measures(["silhouette"])
    ('silhouette',)
    """
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name not in MEASURES:
            raise InvalidParameterError(f"metrics={name!r} should be among {', '.join(MEASURES)}.")
    return given
