"""Fits whose energy is followed: what a fit took until each of several moments, and how good it was there.

The energy is the mean squared distance of validation rows to their nearest centres.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rows:
    """One set.

    Attributes
    ----------
    name, source : str
        What it is called in tables and files; where it comes from.
    rows, validation : ndarray or scipy CSR array of shape (n, d), float32
    batch : int
        Rows of a mini-batch, and of the first nested one.
    k : int
    """

    name: str
    source: str
    rows: Any
    validation: Any
    batch: int
    k: int

    @property
    def n(self) -> int:
        return int(self.rows.shape[0])

    @property
    def is_sparse(self) -> bool:
        return not isinstance(self.rows, np.ndarray)

    @property
    def shape(self) -> str:
        n, d = self.rows.shape
        return f"{n:,} + {self.validation.shape[0]:,}, {d:,}, {self.k}"

    def first_centres(self, seed: int) -> np.ndarray:
        """Return `k` distinct random rows as dense float32."""
        order = np.random.default_rng(seed).permutation(self.n)[: 20 * self.k]
        drawn = self.rows[order]
        dense = drawn if isinstance(drawn, np.ndarray) else drawn.toarray()
        # Equal centres would leave clusters empty, which each program treats differently.
        first: dict[bytes, int] = {}
        for i, row in enumerate(dense):
            first.setdefault(row.tobytes(), i)
        if len(first) < self.k:
            raise ValueError(
                f"expected k={self.k} distinct rows in {self.name}, found {len(first)} among {len(dense)}."
            )
        chosen = list(first.values())[: self.k]
        return np.ascontiguousarray(dense[chosen], dtype=np.float32)


@dataclass(frozen=True)
class Run:
    """A fit at several times; the first is the start, with no cost.

    Attributes
    ----------
    seconds, distances, energies : list of float
        At each time: seconds and distances so far, and the energy of the validation rows.
    iterations : list of int
        Centre updates so far.
    fit_seconds : float
        Seconds of the whole call, including the work after the last update.
    ended : bool
        The program stopped by its own rule, not by a limit.
    digest : str
        Digest of the last centres; empty for other programs than ours.
    """

    seconds: list[float]
    distances: list[float]
    energies: list[float]
    iterations: list[int]
    fit_seconds: float
    ended: bool
    digest: str = ""

    @property
    def end(self) -> float:
        """Energy of the last centres."""
        return self.energies[-1]

    def time_to(self, energy: float) -> float | None:
        """Return the seconds until the energy was at most `energy`, None if it never was."""
        pairs = zip(self.seconds, self.energies, strict=True)
        return next((seconds for seconds, found in pairs if found <= energy), None)

    def energy_at(self, budget: np.ndarray, axis: str = "seconds") -> np.ndarray:
        """Return the energy at the last time within `budget`."""
        spent = np.asarray(getattr(self, axis))
        return np.asarray(self.energies)[np.searchsorted(spent, budget, side="right") - 1]


def moments(last: int, growth: float = 1.15) -> list[int]:
    """Return the iterations to evaluate, at growing distances, and the last one.

    Examples
    --------
    >>> moments(20, 1.5)
    [1, 2, 3, 5, 8, 12, 18, 20]
    """
    found = [1]
    while found[-1] < last:
        found.append(min(last, max(found[-1] + 1, int(np.ceil(found[-1] * growth)))))
    return found


def lowest(runs: Mapping[str, Sequence[Run]]) -> float:
    """Return the lowest energy of any run at any time."""
    return min(min(run.energies) for found in runs.values() for run in found)
