"""What a mini-batch kernel fit commits: steps made, centres, and the rows that its seeding looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.methods.kernel.minibatch.algorithm import KernelSteps
from daskcluster.methods.kernel.minibatch.algorithm_state import ProductsState, WindowsState
from daskcluster.methods.kernel.minibatch.recursion import MovingProducts
from daskcluster.methods.kernel.moving import MovingGramCentres, MovingWindows
from daskcluster.storage.state import Shapes, check_numbers, within


@dataclass(frozen=True)
class StartState:
    """Where one start is, between two steps. Batches follow from the seed and the number of steps.

    Attributes
    ----------
    sample : ndarray of shape (s,), int64
        Numbers of the rows that the seeding looked at, which also say on what grid costs are added up.
    steps : KernelSteps
    windows : WindowsState or None
    products : ProductsState or None
        The centres, as one of the two.
    """

    sample: np.ndarray
    steps: KernelSteps
    windows: WindowsState | None = None
    products: ProductsState | None = None

    @classmethod
    def of(cls, sample: np.ndarray, steps: KernelSteps, moving: MovingGramCentres) -> Self:
        """Return where centres are that have made `steps`."""
        if isinstance(moving, MovingWindows):
            return cls(sample, steps, windows=WindowsState.of(moving))
        assert isinstance(moving, MovingProducts)
        return cls(sample, steps, products=ProductsState.of(moving))

    def ended(self) -> Self:
        """Return the same of a start after which no step follows: what only steps need is left out."""
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
            raise ModelFormatError("it lacks its centres.")
        centres.check(n_rows)


@dataclass(frozen=True)
class BatchKernelState:
    """Where a fit is, between two steps.

    Attributes
    ----------
    start : int
        Which start is under way.
    made : StartState or None
        What has come of it; None: nothing yet.
    best : StartState or None
        The end of the best of the starts before.
    """

    start: int
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
            raise ModelFormatError("it lacks 'made_products_products'.")
