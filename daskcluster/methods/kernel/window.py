"""A centre of mini-batch kernel k-means as a sliding window of batches (Algorithm 2).

The centre is ``sum over l of a_l prod over z > l of (1 - a_z) cm(B_l)``, cm(B_l) the mean of the images of
the cluster's rows in batch l, plus the first centre with what is left of it while no batch has been
dropped (the products of the paper's equation (1) are printed with other indices; those of its section 4.1
are used here). <cm(B_l), cm(B_m)> is computed once, when the later of both batches comes, so that the norm
of a centre costs no Gram values at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from daskcluster.methods.kernel.chunkwise.gram import GramFunction, GramSums, Points, join_points


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of the images of some points.

    Attributes
    ----------
    points : Points
    shares : ndarray of shape (m,), float64
        Of each point; they add up to one.
    """

    points: Points
    shares: np.ndarray

    def __len__(self) -> int:
        return len(self.points)


@dataclass
class Window:
    """One centre.

    Parameters
    ----------
    first : Points
        One point, where the centre starts.
    norm : float
        K of it with itself.
    truncation : int or None
        tau: fewer points than that are never left by dropping a batch. None drops nothing.
    normalize : bool
        Once something was dropped, scale coefficients so that they add up to one.

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
        """Return a window as it stood; the arguments are its attributes."""
        window = cls(means[0].points, 0.0, truncation, normalize)
        window.means, window.factors, window.products = means, factors, products
        window._has_first = has_first
        return window

    @property
    def has_first(self) -> bool:
        """The first centre is still part of it."""
        return self._has_first

    @property
    def n_points(self) -> int:
        """Rows of batches in the window; the first centre does not count."""
        return sum(map(len, self.means)) - self._has_first

    @property
    def coefficients(self) -> np.ndarray:
        """Of each mean, (L,)."""
        total = self.factors.sum()
        if self._has_first or not self.normalize or not total > 0.0:
            return self.factors
        return np.asarray(self.factors / total)

    @property
    def squared_norm(self) -> float:
        """<C, C>."""
        c = self.coefficients
        return float((c[:, None] * self.products * c).sum())

    def sums(self, gram: GramFunction, mean: Mean) -> GramSums:
        """Return the sums of K over each mean of the window, and over `mean`."""
        means = [*self.means, mean]
        sizes = [len(each) for each in means]
        return GramSums(
            gram,
            join_points([each.points for each in means]),
            np.concatenate([each.shares for each in means]),
            np.repeat(np.arange(len(means)), sizes),
            len(means),
        )

    def move(self, mean: Mean, alpha: float, products: np.ndarray) -> None:
        """Go towards `mean` by `alpha`, and drop batches that are not needed any more.

        Parameters
        ----------
        mean : Mean
        alpha : float
            In (0, 1].
        products : ndarray of shape (L + 1,)
            Inner products of `mean` with the means of the window and with itself.
        """
        size = len(self.means)
        grown = np.empty((size + 1, size + 1))
        grown[:size, :size] = self.products
        grown[size], grown[:, size] = products, products
        self.products = grown
        self.factors = np.append(self.factors * (1.0 - alpha), alpha)
        self.means.append(mean)
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
        """Return the points of the centre and their coefficients, without those that are zero."""
        pairs = [
            (mean.points, c * mean.shares)
            for mean, c in zip(self.means, self.coefficients, strict=True)
            if c > 0.0
        ]
        return join_points([points for points, _ in pairs]), np.concatenate([c for _, c in pairs])


def joined(gram: GramFunction, centres: list[tuple[Points, np.ndarray]]) -> GramSums:
    """Return the sums of centres, each given by its points and their coefficients."""
    sizes = [len(points) for points, _ in centres]
    return GramSums(
        gram,
        join_points([points for points, _ in centres]),
        np.concatenate([factors for _, factors in centres]),
        np.repeat(np.arange(len(centres)), sizes),
        len(centres),
    )
