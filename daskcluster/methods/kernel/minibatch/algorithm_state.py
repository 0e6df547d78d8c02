"""What a mini-batch kernel fit commits of its centres: numbers of rows, and what stands beside them.

The rows themselves are read again. Numbers below zero are those of points that are no rows: first centres
that were given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from daskcluster.engine.engine import Placement
from daskcluster.errors import ModelFormatError
from daskcluster.methods.kernel.chunkwise.gram import GramFunction, Points
from daskcluster.methods.kernel.minibatch.recursion import MovingProducts
from daskcluster.methods.kernel.moving import MovingWindows
from daskcluster.methods.kernel.window import Mean, Window
from daskcluster.storage.state import Shapes, check_numbers

PointsAt = Callable[[np.ndarray], Points]
"""From numbers of rows to points that are ready for the kernels."""


@dataclass(frozen=True)
class WindowsState:
    """Centres that are windows of the last batches, one after the other, oldest batch first.

    Attributes
    ----------
    lengths : ndarray of shape (k,), int64
        L, the means of each window.
    first : ndarray of shape (k,), int64
        1 where the oldest of them is the first centre, else 0.
    sizes : ndarray of shape (sum of L,), int64
        Points of each mean.
    factors : ndarray of shape (sum of L,)
        Coefficients of the means.
    products : ndarray of shape (sum of L^2,)
        Inner products of the means of each window.
    points : ndarray of shape (m,), int64
        Their numbers.
    shares : ndarray of shape (m,)
        Of the points in their means.
    """

    lengths: np.ndarray
    first: np.ndarray
    sizes: np.ndarray
    factors: np.ndarray
    products: np.ndarray
    points: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, moving: MovingWindows) -> Self:
        """Return where the windows are."""
        windows = moving.windows
        means = [mean for window in windows for mean in window.means]
        return cls(
            np.array([len(window.means) for window in windows]),
            np.array([int(window.has_first) for window in windows]),
            np.array([len(mean) for mean in means]),
            np.concatenate([window.factors for window in windows]),
            np.concatenate([window.products.ravel() for window in windows]),
            np.concatenate([mean.points.indices for mean in means]),
            np.concatenate([mean.shares for mean in means]),
        )

    @staticmethod
    def shapes(k: int) -> Shapes:
        """Return the shapes of the arrays."""
        free = ("sizes", "factors", "products", "points", "shares")
        return {"lengths": (k,), "first": (k,), **dict.fromkeys(free, (None,))}

    def check(self, n_rows: int) -> None:
        """Refuse what are no windows of so many rows.

        Raises
        ------
        ModelFormatError
        """
        k, m, most = len(self.lengths), len(self.points), 1 << 31
        check_numbers("points", self.points, n_rows, -k)
        check_numbers("lengths", self.lengths, min(most, len(self.sizes) + 1), 1)
        check_numbers("sizes", self.sizes, m + 1, 1)
        check_numbers("first", self.first, 2)
        whole = int(self.lengths.sum()) == len(self.sizes) == len(self.factors)
        inner = int((self.lengths**2).sum()) == len(self.products)
        if not (whole and inner and int(self.sizes.sum()) == m == len(self.shares)):
            raise ModelFormatError("its arrays of windows do not belong together.")

    def restored(
        self,
        gram: GramFunction,
        at: PointsAt,
        truncation: int,
        *,
        normalize: bool,
        n_threads: int = 1,
    ) -> MovingWindows:
        """Return the windows; arguments as of `MovingWindows.start`."""
        points, ends = at(self.points), np.cumsum(self.sizes)
        means = [
            Mean(_cut(points, first, last), self.shares[first:last])
            for first, last in zip(ends - self.sizes, ends, strict=True)
        ]
        windows, mean, product = [], 0, 0
        for length, has_first in zip(self.lengths.tolist(), self.first.tolist(), strict=True):
            square = self.products[product : product + length * length]
            windows.append(
                Window.standing(
                    means[mean : mean + length],
                    self.factors[mean : mean + length],
                    square.reshape(length, length),
                    truncation,
                    normalize=normalize,
                    has_first=bool(has_first),
                )
            )
            mean, product = mean + length, product + length * length
        return MovingWindows(gram, windows, n_threads)


@dataclass(frozen=True)
class ProductsState:
    """Centres known by their inner products with all rows.

    Attributes
    ----------
    squares : ndarray of shape (k,)
    sizes : ndarray of shape (k,), int64
        Points of each centre, the one that it started from first.
    points : ndarray of shape (m,), int64
        Their numbers, one centre after the other.
    factors : ndarray of shape (m,)
        Their coefficients.
    products : ndarray of shape (n, k), or None
        None where no step follows.
    """

    squares: np.ndarray
    sizes: np.ndarray
    points: np.ndarray
    factors: np.ndarray
    products: np.ndarray | None = None

    @classmethod
    def of(cls, moving: MovingProducts) -> Self:
        """Return where the centres are."""
        terms = [term for centre in moving.terms for term in centre]
        return cls(
            moving.squares.copy(),
            np.array([sum(len(points) for points, _ in centre) for centre in moving.terms]),
            np.concatenate([points.indices for points, _ in terms]),
            np.concatenate([factors for _, factors in terms]),
            moving.products,
        )

    @staticmethod
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        free: Shapes = {"points": (None,), "factors": (None,)}
        return {"squares": (k,), "sizes": (k,), "products": (n_rows, k), **free}

    def check(self, n_rows: int) -> None:
        """Refuse what are no centres of so many rows.

        Raises
        ------
        ModelFormatError
        """
        k, m = len(self.squares), len(self.points)
        check_numbers("points", self.points, n_rows, -k)
        check_numbers("sizes", self.sizes, m + 1, 1)
        if not int(self.sizes.sum()) == m == len(self.factors):
            raise ModelFormatError("its arrays of centres do not belong together.")

    def restored(self, gram: GramFunction, at: PointsAt, placement: Placement) -> MovingProducts:
        """Return the centres; arguments as of `MovingProducts.start`."""
        points, factors = at(self.points), self.factors.copy()
        products = np.empty((0, 0)) if self.products is None else self.products
        ends = np.cumsum(self.sizes)
        terms = [
            [
                (_cut(points, a, b), factors[a:b])
                for a, b in ((first, first + 1), (first + 1, last))
                if b > a
            ]
            for first, last in zip(ends - self.sizes, ends, strict=True)
        ]
        return MovingProducts(gram, terms, self.squares, products, placement)


def _cut(points: Points, first: int, last: int) -> Points:
    rows = None if points.rows is None else points.rows[first:last]
    return Points(rows, points.indices[first:last])
