"""Settings, cost and quality of one fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PROGRAMS = ("k-means++", "greedy k-means++", "AFK-MC2", "var-GMM-S", "LWCS", "vc-GMM")
TOLERANCE = 1e-4
SEARCHES = {"tile": "", "row": ", search by rows", "alternate": ", both searches"}
"""Suffixes of the labels in Table 1."""


@dataclass(frozen=True)
class Setting:
    """One program with its parameters; zero where a program has none of them.

    Attributes
    ----------
    program : str
        One of `PROGRAMS`.
    k, chain, coreset, truncation, n_random, warmup_steps : int
        C, m, N', C' = G, the "+1", and searches before the first variance.
    tol : float
        Relative change of the free energy at which to stop.
    search : str
        Of the mixture.
    """

    program: str
    k: int
    chain: int = 0
    coreset: int = 0
    truncation: int = 0
    n_random: int = 0
    warmup_steps: int = 0
    tol: float = TOLERANCE
    search: str = "tile"

    @property
    def name(self) -> str:
        """Name of the files, without the seed."""
        parts = {
            "C": self.k,
            "m": self.chain,
            "N": self.coreset,
            "q": f"{self.truncation}+{self.n_random}" if self.truncation else 0,
            "w": self.warmup_steps,
        }
        words = [self.program.replace(" ", "-")]
        words += [f"{key}{value}" for key, value in parts.items() if value]
        words += [f"eps{self.tol:.0e}"] if self.tol != TOLERANCE else []
        words += [self.search] if self.search != "tile" else []
        return "_".join(words)

    @property
    def label(self) -> str:
        """Label in Table 1."""
        return f"{self.program}{SEARCHES[self.search]}"


@dataclass(frozen=True)
class Outcome:
    """One fit. Triples are for coreset, seeding and EM.

    Attributes
    ----------
    stage_seconds, stage_processor, stage_distances : sequence of three floats
        Time by the clock, time of all processors together, distances computed.
    n_iter : int
    error : float
        Sum of squared distances of the rows that evaluate.
    nmi : float or None
        Normalised mutual information of their partition and that by k-means++ of the same seed
        (k-means++ itself: of the seed before).
    free_energy : float or None
    components : int or None
        Number of centres.
    """

    stage_seconds: Sequence[float]
    stage_processor: Sequence[float]
    stage_distances: Sequence[float]
    n_iter: int
    error: float
    nmi: float | None = None
    free_energy: float | None = None
    components: int | None = None

    @property
    def seconds(self) -> float:
        return sum(self.stage_seconds)

    @property
    def processor(self) -> float:
        return sum(self.stage_processor)

    @property
    def distances(self) -> float:
        return sum(self.stage_distances)

    @property
    def share(self) -> float:
        """Share of the CPU time for coreset and seeding."""
        return 1.0 - self.stage_processor[2] / self.processor


def relative_error(error: float, reference: float) -> float:
    """Return (error - reference) / reference (eq. 9)."""
    return (error - reference) / reference


def kmeans_free_energy(inertia: float, weight: float, k: int, d: int) -> float:
    """Return the free energy of k-means: of rows with the variance of their own distances.

    ``weight`` times -log C - D/2 log(2 pi e sigma^2), sigma^2 = inertia / (D weight).
    """
    variance = inertia / (d * weight)
    return -weight * (math.log(k) + 0.5 * d * math.log(2.0 * math.pi * math.e * variance))


class FreeEnergyRule:
    """A callback that stops k-means and mixtures by the rule of the paper: |F - F'| / |F| < `tol`.

    The inertia of an iteration of k-means comes out of its sums, so the rule costs nothing. Of mixtures it
    takes the place of their own ``tol``, which does not depend on the units of the features.
    """

    def __init__(self, weight: float, k: int, d: int, tol: float) -> None:
        self._weight, self._k, self._d, self._tol = weight, k, d, tol
        self.free_energy: float | None = None

    def __call__(self, event: Any) -> None:
        from daskcluster.events import EMStepEnded, IterationEnded, StopFit

        if not isinstance(event, IterationEnded):
            return
        if event.inertia <= 0.0:
            raise StopFit
        before = self.free_energy
        if isinstance(event, EMStepEnded):
            found = event.free_energy
        else:
            found = kmeans_free_energy(event.inertia, self._weight, self._k, self._d)
        self.free_energy = found
        if before is not None and abs(found - before) < self._tol * abs(found):
            raise StopFit


def chains_distances(n_rows: int, k: int, chain: int) -> float:
    """Return the distances of AFK-MC2: of all rows to the first centre, and m C^2 / 2 of proposals."""
    return n_rows + 0.5 * chain * k * k


def greedy_candidates(k: int) -> int:
    """Return the number of candidates per step of greedy k-means++."""
    return 2 + int(math.log(k))
