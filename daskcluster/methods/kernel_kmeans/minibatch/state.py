"""State of a mini-batch kernel k-means fit between two steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from daskcluster.data.dataset import chosen_rows
from daskcluster.engine.engine import Placement
from daskcluster.errors import ModelFormatError
from daskcluster.methods.kernel_kmeans.chunkwise import GramFunction, Points
from daskcluster.methods.kernel_kmeans.fit import given_centres, ready_rows
from daskcluster.methods.kernel_kmeans.minibatch.algorithm import (
    GramBatch,
    KernelSteps,
    Mean,
    MovingGramCentres,
    MovingProducts,
    MovingWindows,
    Window,
)
from daskcluster.methods.minibatch.algorithm import refuse_bad_batch
from daskcluster.methods.minibatch.chunkwise import Batch
from daskcluster.sparse_rows import join_rows
from daskcluster.storage.document import Shapes, check_numbers, stored_as, within
from daskcluster.typing import Dataset

PointsAt = Callable[[np.ndarray], Points]
"""Row numbers -> points that are ready for the kernels."""


@dataclass(frozen=True)
class WindowsState:
    """Centres as windows of the last batches: one window after the other, oldest batch first.

    Attributes
    ----------
    lengths : ndarray of shape (k,), int64
        L, the number of means of each window.
    first : ndarray of shape (k,), int64
        1 where the oldest mean is the initial centre, else 0.
    sizes : ndarray of shape (sum of L,), int64
        Number of points of each mean.
    factors : ndarray of shape (sum of L,)
        Coefficients of the means.
    products : ndarray of shape (sum of L^2,)
        Inner products of the means of each window.
    points : ndarray of shape (m,), int64
        Row numbers of the points.
    shares : ndarray of shape (m,)
        Shares of the points in their means.
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
        """Return the state of moving windows."""
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
        """Refuse arrays that are not windows of `n_rows` rows.

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
            raise ModelFormatError("the lengths of its arrays of windows do not match.")

    def windows(self, at: PointsAt, truncation: int | None, *, normalize: bool) -> list[Window]:
        """Return the windows; arguments as in `MovingWindows.start`."""
        points, ends = at(self.points), np.cumsum(self.sizes)
        means = [
            Mean(points.between(first, last), self.shares[first:last])
            for first, last in zip(ends - self.sizes, ends, strict=True)
        ]
        windows, mean, product = [], 0, 0
        for length, has_first in zip(self.lengths.tolist(), self.first.tolist(), strict=True):
            square = self.products[product : product + length * length]
            windows.append(
                Window(
                    means[mean : mean + length],
                    self.factors[mean : mean + length],
                    square.reshape(length, length),
                    truncation,
                    normalize,
                    bool(has_first),
                )
            )
            mean, product = mean + length, product + length * length
        return windows


@dataclass(frozen=True)
class ProductsState:
    """Centres as inner products with all rows.

    Attributes
    ----------
    squares : ndarray of shape (k,)
        Squared lengths of the centres.
    sizes : ndarray of shape (k,), int64
        Number of points of each centre; the initial one comes first.
    points : ndarray of shape (m,), int64
        Row numbers of the points, one centre after the other.
    factors : ndarray of shape (m,)
        Coefficients of the points.
    products : ndarray of shape (n, k), or None
        Inner products; None if no step follows.
    """

    squares: np.ndarray
    sizes: np.ndarray
    points: np.ndarray
    factors: np.ndarray
    products: np.ndarray | None = None

    @classmethod
    def of(cls, moving: MovingProducts) -> Self:
        """Return the state of moving centres."""
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
        """Refuse arrays that are not centres of `n_rows` rows.

        Raises
        ------
        ModelFormatError
        """
        k, m = len(self.squares), len(self.points)
        check_numbers("points", self.points, n_rows, -k)
        check_numbers("sizes", self.sizes, m + 1, 1)
        if not int(self.sizes.sum()) == m == len(self.factors):
            raise ModelFormatError("the lengths of its arrays of centres do not match.")

    def restored(self, gram: GramFunction, at: PointsAt, placement: Placement) -> MovingProducts:
        """Return the moving centres; arguments as in `MovingProducts.start`."""
        points, factors = at(self.points), self.factors.copy()
        products = np.empty((0, 0)) if self.products is None else self.products
        ends = np.cumsum(self.sizes)
        terms = [
            [
                (points.between(a, b), factors[a:b])
                for a, b in ((first, first + 1), (first + 1, last))
                if b > a
            ]
            for first, last in zip(ends - self.sizes, ends, strict=True)
        ]
        return MovingProducts(gram, terms, self.squares, products, placement)


@dataclass(frozen=True)
class StartState:
    """State of one start between two steps. The seed and the number of steps determine the next batch.

    Attributes
    ----------
    sample : ndarray of shape (s,), int64
        Numbers of the rows that the seeding sampled; they also fix the grid of cost sums.
    steps : KernelSteps
    windows : WindowsState or None
    products : ProductsState or None
        The centres, in one of the two forms.
    """

    sample: np.ndarray
    steps: KernelSteps
    windows: WindowsState | None = None
    products: ProductsState | None = None

    @classmethod
    def of(cls, sample: np.ndarray, steps: KernelSteps, moving: MovingGramCentres) -> Self:
        """Return the state after `steps`, with the centres `moving`."""
        if isinstance(moving, MovingWindows):
            return cls(sample, steps, windows=WindowsState.of(moving))
        assert isinstance(moving, MovingProducts)
        return cls(sample, steps, products=ProductsState.of(moving))

    def ended(self) -> Self:
        """Return the state of an ended start, without the inner products, which only steps need."""
        if self.products is None:
            return self
        return replace(self, products=replace(self.products, products=None))

    @property
    def n_steps(self) -> int:
        return len(self.steps.history)

    @staticmethod
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        return {
            "sample": (None,),
            "steps_seen": (k,),
            **within("windows", WindowsState.shapes(k)),
            **within("products", ProductsState.shapes(n_rows, k)),
        }

    def check(self, n_rows: int, *, truncated: bool) -> None:
        """Refuse what is no state of such a fit.

        Raises
        ------
        ModelFormatError
        """
        check_numbers("sample", self.sample, n_rows)
        centres = self.windows if truncated else self.products
        if centres is None:
            raise ModelFormatError("it has no centres.")
        centres.check(n_rows)


@dataclass(frozen=True)
class BatchKernelState:
    """State of a fit between two steps.

    Attributes
    ----------
    restart : int
        Number of the current start.
    made : StartState or None
        State of the current start; None before its seeding.
    best : StartState or None
        Final state of the best of the previous starts.
    """

    restart: int = field(metadata=stored_as("start"))
    made: StartState | None = None
    best: StartState | None = None

    @staticmethod
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        one = StartState.shapes(n_rows, k)
        return {**within("made", one), **within("best", one)}

    def check(self, n_rows: int, *, truncated: bool) -> None:
        """Refuse what is no state of such a fit.

        Raises
        ------
        ModelFormatError
        """
        for each in (self.made, self.best):
            if each is not None:
                each.check(n_rows, truncated=truncated)
        products = None if self.made is None else self.made.products
        if products is not None and products.products is None:
            raise ModelFormatError("it has no array 'made_products_products'.")


@dataclass(frozen=True)
class NumberedRows:
    """Reads rows by their numbers again, for a resumed fit.

    Parameters
    ----------
    dataset : Dataset
    gram : GramFunction
    dtype : dtype
        Dtype in which rows are computed.
    init : object
        The parameter of the estimator; number -1 - j stands for its j-th given centre.
    n_clusters : int
    """

    dataset: Dataset
    gram: GramFunction
    dtype: Any
    init: Any
    n_clusters: int

    def batch(self, numbers: np.ndarray) -> GramBatch:
        """Return rows in the form of a batch."""
        weights = self.dataset.weights
        weights = None if weights is None else np.asarray(weights, np.float64)[numbers]
        batch = Batch(chosen_rows(self.dataset, numbers), np.arange(len(numbers)), weights)
        refuse_bad_batch(batch, lambda position: int(numbers[position]), "")
        return GramBatch.of(batch, numbers, self.gram, self.dtype)

    def points(self, numbers: np.ndarray) -> Points:
        """Return rows, and given centres, as points."""
        if self.gram.is_precomputed:
            return Points(None, numbers)
        inside = numbers >= 0
        n_inside = int(inside.sum())
        parts = (
            [ready_rows(chosen_rows(self.dataset, numbers[inside]), self.gram)] if n_inside else []
        )
        if n_inside < len(numbers):
            given = given_centres(self.init, self.dataset, self.gram, self.n_clusters)
            parts += [point.rows for point in given if point.rows is not None]
        # The j-th given centre, number -1 - j, comes j places after the rows that were read.
        places = np.where(inside, np.cumsum(inside) - 1, n_inside - 1 - numbers)
        return Points(join_rows(parts)[places], numbers)
