"""What a fit will take, by the name of its algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from daskcluster.estimators.plan import MakePlan, Plan
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.parameters.checks import check_arguments
from daskcluster.typing import Dataset


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
    entry = ALGORITHMS.find(algorithm)
    if not entry.plan:
        return None
    check_arguments(entry, given)
    defaults = {name: parameter.default for name, parameter in entry.parameters.items()}
    make_plan: MakePlan = resolve_name(entry.plan)
    return make_plan(dataset, entry.arguments({**defaults, **given}))
