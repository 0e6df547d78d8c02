"""The checkpoint of a hierarchical fit: its cells, the centres found so far, and the final refinement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.events import StopReason
from daskcluster.storage.state import Shapes, check_numbers


@dataclass(frozen=True)
class HierarchicalState:
    """State of a fit between groups of cells, or between iterations of all centres.

    Attributes
    ----------
    coarse : ndarray of shape (c, d)
        Centres of the cells.
    sizes, quotas : ndarray of shape (c,), int64
        Rows of each cell, and its number of clusters.
    n_cells : int
        Number of cells, from the first one on, whose centres are found.
    centres : ndarray of shape (m, d), or None
        Their centres, one cell after the other; all k once all cells are done. None before the first.
    history : sequence of dict
        Iterations of all centres together.
    reason : StopReason or None
        Reason why the loop ended, if it did.
    rounds : int
        Rounds of resampling that followed.
    """

    coarse: np.ndarray
    sizes: np.ndarray
    quotas: np.ndarray
    n_cells: int = 0
    centres: np.ndarray | None = None
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None
    rounds: int = 0

    @property
    def sizes_left(self) -> np.ndarray:
        """Rows of the cells that are not done."""
        return self.sizes[self.n_cells :]

    def joined(self, n_cells: int, centres: np.ndarray) -> Self:
        """Return the state with the centres (m, d) of the next cells, those before `n_cells`."""
        both = centres if self.centres is None else np.concatenate([self.centres, centres])
        return replace(self, n_cells=n_cells, centres=both if len(both) else None)

    def filled(self, k: int) -> Self:
        """Return the state with k centres: if fewer rows differ, the first centre is repeated."""
        assert self.centres is not None
        missing = k - len(self.centres)
        again = np.repeat(self.centres[:1], missing, axis=0)
        return replace(self, centres=np.concatenate([self.centres, again]))

    @staticmethod
    def shapes(n_features: int) -> Shapes:
        """Return the shapes of the arrays."""
        rows: Shapes = dict.fromkeys(("coarse", "centres"), (None, n_features))
        return {**rows, **dict.fromkeys(("sizes", "quotas"), (None,))}

    def check(self, n_rows: int, k: int) -> None:
        """Refuse cells that do not belong to that many rows and clusters.

        Raises
        ------
        ModelFormatError
        """
        check_numbers("sizes", self.sizes, n_rows + 1)
        check_numbers("quotas", self.quotas, k + 1)
        c = len(self.coarse)
        whole = int(self.sizes.sum()) == n_rows and int(self.quotas.sum()) <= k
        if not (whole and len(self.sizes) == len(self.quotas) == c and 0 <= self.n_cells <= c):
            raise ModelFormatError("its cells are not those of these rows.")
        n_centres = 0 if self.centres is None else len(self.centres)
        if n_centres > k or (self.n_cells == c and n_centres < k):
            raise ModelFormatError(f"its {n_centres} centres are not those of {k} clusters.")
