"""Windows of batches: centres of mini-batch kernel k-means as weighted sums of means of their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, Points, join_points


@dataclass(frozen=True, eq=False)
class Mean:
    """The weighted mean of the images of some points.

    Attributes
    ----------
    points : Points
    shares : ndarray of shape (m,), float64
        Weights of the points, which sum to one.
    """

    points: Points
    shares: np.ndarray

    def __len__(self) -> int:
        return len(self.points)

    def single(self) -> list[Mean]:
        """Return a mean for each point."""
        return [Mean(self.points.between(i, i + 1), np.ones(1)) for i in range(len(self))]


@dataclass
class Window:
    """One centre: a weighted sum of the means of the last batches.

    Parameters
    ----------
    first : Points
        The point whose image is the initial centre.
    norm : float
        K(x, x) of that point.
    truncation : int or None
        tau: batches are dropped as long as at least tau points remain. None drops nothing.
    normalize : bool
        After the first drop, scale the coefficients so that they sum to one.

    Attributes
    ----------
    means : list of Mean
        Oldest first.
    factors : ndarray of shape (L,)
        Coefficient of each mean.
    products : ndarray of shape (L, L)
        Inner products of the means.
    """

    first: Points
    norm: float
    truncation: int | None
    normalize: bool = True
    means: list[Mean] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.means = [Mean(self.first, np.ones(1))]
        self.factors = np.ones(1)
        self.products = np.array([[self.norm]])
        self._has_first = True

    @classmethod
    def standing(
        cls,
        means: list[Mean],
        factors: np.ndarray,
        products: np.ndarray,
        truncation: int | None,
        *,
        normalize: bool,
        has_first: bool,
    ) -> Window:
        """Return a window with the given attributes."""
        window = cls(means[0].points, 0.0, truncation, normalize)
        window.means, window.factors, window.products = means, factors, products
        window._has_first = has_first
        return window

    @property
    def has_first(self) -> bool:
        """Whether the initial centre is still part of the window."""
        return self._has_first

    @property
    def n_points(self) -> int:
        """Number of rows of batches in the window, without the initial centre."""
        return sum(map(len, self.means)) - self._has_first

    @property
    def coefficients(self) -> np.ndarray:
        """Coefficient of each mean, after normalization, (L,)."""
        total = self.factors.sum()
        if self._has_first or not self.normalize or not total > 0.0:
            return self.factors
        return np.asarray(self.factors / total)

    @property
    def squared_norm(self) -> float:
        """<C, C>."""
        c = self.coefficients
        return float((c[:, None] * self.products * c).sum())

    def move(self, added: Sequence[Mean], factors: np.ndarray, products: np.ndarray) -> None:
        """Move the centre towards a batch, and drop means that are no longer needed.

        Parameters
        ----------
        added : sequence of m Mean
            Of all rows of the batch, or of each.
        factors : ndarray of shape (m,)
            Their coefficients, which sum to alpha in (0, 1].
        products : ndarray of shape (m, L + m)
            Inner products of `added` with the means of the window and with each other.
        """
        size = len(self.means)
        grown = np.empty((size + len(added),) * 2)
        grown[:size, :size] = self.products
        grown[size:], grown[:size, size:] = products, products[:, :size].T
        self.products = grown
        self.factors = np.append(self.factors * (1.0 - factors.sum()), factors)
        self.means.extend(added)
        self._drop()

    def _drop(self) -> None:
        if self.truncation is None:
            return
        oldest, left = int(self._has_first), self.n_points
        first = oldest
        while left - len(self.means[first]) >= self.truncation:
            left -= len(self.means[first])
            first += 1
        if first == oldest:
            return
        self.means = self.means[first:]
        self.factors, self.products = self.factors[first:], self.products[first:, first:]
        self._has_first = False

    def terms(self) -> tuple[Points, np.ndarray]:
        """Return the points of the centre and their coefficients, without points of coefficient zero."""
        pairs = [
            (mean.points, c * mean.shares)
            for mean, c in zip(self.means, self.coefficients, strict=True)
            if c > 0.0
        ]
        return join_points([points for points, _ in pairs]), np.concatenate([c for _, c in pairs])


def sums_over(gram: GramFunction, means: Collection[Mean]) -> GramSums:
    """Return the sums of K over each of several means."""
    sizes = [len(mean) for mean in means]
    return GramSums(
        gram,
        join_points([mean.points for mean in means]),
        np.concatenate([mean.shares for mean in means]),
        np.repeat(np.arange(len(means)), sizes),
        len(means),
    )
