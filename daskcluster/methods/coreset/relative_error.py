"""How far the costs that a coreset estimates are from those of all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import AssignParams
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.costs import COSTS
from daskcluster.engine.scaled import ScaledPlacement


@dataclass(frozen=True)
class EstimatedCost:
    """The cost of one set of centres, the weighted sum of squared distances to the nearest.

    Attributes
    ----------
    name : str
        Which centres.
    n_clusters : int
    estimated : float
        On the coreset.
    standard_error : float
        Of the estimate, from the coreset alone. It holds for centres that do not come from the
        coreset; those that were fitted to it look better on it than they are.
    true : float or None
        On all rows, where they were measured.
    """

    name: str
    n_clusters: int
    estimated: float
    standard_error: float
    true: float | None = None

    @property
    def relative_error(self) -> float | None:
        """(estimated - true) / true; None where the true cost was not measured."""
        if self.true is None:
            return None
        if self.true == 0.0:
            return 0.0 if self.estimated == 0.0 else math.inf
        return (self.estimated - self.true) / self.true


@dataclass(frozen=True)
class CoresetQuality:
    """Estimated and true costs of several sets of centres; printed as a table.

    Attributes
    ----------
    size : int
        Rows of the coreset.
    costs : tuple of EstimatedCost
    """

    size: int
    costs: tuple[EstimatedCost, ...]

    @property
    def largest_error(self) -> float | None:
        """The largest relative error, as a share of the true cost; None without true costs."""
        errors = [cost.relative_error for cost in self.costs]
        known = [abs(error) for error in errors if error is not None]
        return max(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "size": self.size,
            "largest_error": self.largest_error,
            "costs": [
                {**asdict(cost), "relative_error": cost.relative_error} for cost in self.costs
            ],
        }

    def __str__(self) -> str:
        head = ("centres", "k", "estimated", "+-", "true", "off by")
        lines = [head, *(_cells(cost) for cost in self.costs)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def _cells(cost: EstimatedCost) -> tuple[str, ...]:
    share = cost.standard_error / cost.estimated if cost.estimated else 0.0
    error = cost.relative_error
    return (
        cost.name,
        str(cost.n_clusters),
        f"{cost.estimated:.5g}",
        f"{share:.2%}",
        "" if cost.true is None else f"{cost.true:.5g}",
        "" if error is None else f"{error:+.2%}",
    )


def estimated_cost(name: str, coreset: Chunk, centres: np.ndarray) -> EstimatedCost:
    """Return the cost of `centres` on a coreset, and the standard error of that estimate.

    The draws of a coreset are independent, and each of them, times m, is an estimate of its own:
    their mean is the estimate, and their standard deviation over sqrt(m) its standard error.

    Examples
    --------
    >>> import numpy as np
    >>> coreset = Chunk(np.array([[0.0], [1.0], [3.0]]), weights=np.array([2.0, 1.0, 1.0]))
    >>> estimated_cost("zero", coreset, np.zeros((1, 1))).estimated
    10.0
    """
    prepared, terms = PreparedCentres(centres), []
    for block in coreset.blocks():
        labels, distances = np.empty(block.n_rows, np.int32), np.empty(block.n_rows)
        prepared.nearest(block.rows, labels)
        prepared.sqdist_to_assigned(block.rows, labels, distances)
        terms.append(distances if block.weights is None else distances * block.weights)
    found = np.concatenate(terms)
    error = float(found.std(ddof=1)) * math.sqrt(len(found)) if len(found) > 1 else math.inf
    return EstimatedCost(name, len(centres), math.fsum(found), error)


def true_costs(rows: ScaledPlacement, sets: Sequence[np.ndarray]) -> list[float]:
    """Return the cost of every set of centres on all rows: one pass for all of them."""
    found = rows.reduce(
        COSTS,
        lambda scale: tuple(AssignParams(centres, scale) for centres in sets),
    )
    return [float(each.inertia) for each in found]


def compared(
    costs: Sequence[EstimatedCost], true: Sequence[float] | None, size: int
) -> CoresetQuality:
    """Return the report of costs, with the true ones where they are known."""
    if true is None:
        return CoresetQuality(size, tuple(costs))
    pairs: list[EstimatedCost] = []
    for cost, value in zip(costs, true, strict=True):
        facts: Mapping[str, Any] = {**asdict(cost), "true": value}
        pairs.append(EstimatedCost(**facts))
    return CoresetQuality(size, tuple(pairs))
