"""The balance of cluster sizes, and the largest clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Balance:
    """Summary figures of cluster sizes.

    Attributes
    ----------
    n_clusters, empty : int
        Number of clusters, and of clusters without rows.
    smallest, largest : int
    median, mean : float
        Rows per cluster.
    variation : float
        Coefficient of variation: standard deviation over mean.
    gini : float
        Gini coefficient: 0 if all clusters have the same size, near 1 if one has all rows.
    """

    n_clusters: int
    empty: int
    smallest: int
    median: float
    mean: float
    largest: int
    variation: float
    gini: float

    @classmethod
    def of(cls, sizes: np.ndarray) -> Balance:
        """Return the balance of clusters of these sizes, (k,).

        Examples
        --------
        >>> import numpy as np
        >>> found = Balance.of(np.array([4, 4, 4, 4]))
        >>> found.median, found.variation, found.gini
        (4.0, 0.0, 0.0)
        >>> Balance.of(np.array([0, 0, 0, 8])).gini
        0.75
        """
        ordered = np.sort(np.asarray(sizes, np.int64))
        k, total = len(ordered), int(ordered.sum())
        mean = total / k
        ranks = 2.0 * np.arange(1, k + 1) - k - 1.0
        return cls(
            n_clusters=k,
            empty=int((ordered == 0).sum()),
            smallest=int(ordered[0]),
            median=float(np.median(ordered)),
            mean=mean,
            largest=int(ordered[-1]),
            variation=float(ordered.std() / mean) if total else 0.0,
            gini=float((ranks * ordered).sum() / (k * total)) if total else 0.0,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.n_clusters:,} clusters of {self.smallest:,} to {self.largest:,} rows, median "
            f"{self.median:g}, variation {self.variation:.3g}, Gini {self.gini:.3g}, "
            f"{self.empty:,} empty"
        )


def largest_first(weights: np.ndarray) -> np.ndarray:
    """Return the numbers of all clusters by decreasing weight, ties by number.

    Examples
    --------
    >>> import numpy as np
    >>> largest_first(np.array([1.0, 5.0, 0.0, 5.0]))
    array([1, 3, 0, 2])
    """
    return np.argsort(-np.asarray(weights), kind="stable")


def largest(weights: np.ndarray, most: int) -> list[int]:
    """Return the numbers of the `most` heaviest clusters with positive weight, heaviest first.

    Examples
    --------
    >>> import numpy as np
    >>> largest(np.array([1.0, 5.0, 0.0, 5.0]), most=4)
    [1, 3, 0]
    """
    return [int(j) for j in largest_first(weights)[:most] if weights[j] > 0]
