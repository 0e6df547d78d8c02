"""Settings of variational EM."""

from __future__ import annotations

from dataclasses import dataclass

SHARED_STEPS = 2
"""Initial M-steps that learn one variance for all clusters; later ones learn one per cluster."""


MATRICES = ("tied", "full")
"""Covariance types with matrices: one that all clusters share, or one per cluster."""

SAMPLE_ROWS = 2048
"""Rows of the sample that gives the first means; three times as many hardly give better ones."""


@dataclass(frozen=True)
class EMSettings:
    """Settings of a fit by EM.

    Attributes
    ----------
    covariance_type : {"isotropic", "spherical", "diag", "tied", "full"}
    truncation : int
        C', the size of a row's candidate set; with all clusters, EM is exact.
    n_neighbors : int
        G, including the cluster itself.
    n_random : int
        Clusters drawn at random for each row in each E-step.
    warmup_steps : int
        E-steps before the first variance is set.
    rule : {"tile", "row", "alternate"}
        As in `Search`; ``"alternate"`` takes both in turn.
    floor : float
        Minimum variance.
    floor_share : float
        Minimum variance of a feature, as a fraction of its variance over all rows; for variances by
        feature and for matrices. Constant features have `floor` instead.
    tol : float
        Stop when the free energy, divided by total row weight and number of features, changes by less
        than this; 0 never stops. A change of the free energy, unlike its value, does not depend on the
        units of the features.
    max_iter : int
    seed : int
    max_time : float or None
    shared_steps : int
        M-steps that learn one variance for all clusters before each learns its own.
    """

    covariance_type: str = "isotropic"
    truncation: int = 5
    n_neighbors: int = 5
    n_random: int = 0
    warmup_steps: int = 0
    rule: str = "tile"
    floor: float = 0.0
    floor_share: float = 0.0
    tol: float = 1e-4
    max_iter: int = 300
    seed: int = 0
    max_time: float | None = None
    shared_steps: int = SHARED_STEPS

    @property
    def first_tested_iteration(self) -> int:
        """First iteration at which `tol` is tested.

        Until clusters have learnt their own variances, a small change of the free energy may precede a
        large one.
        """
        return 2 if self.covariance_type == "isotropic" else self.shared_steps + 2

    def rule_of(self, number: int) -> str:
        """Return the search rule of pass `number`, counted from 0."""
        if self.rule != "alternate":
            return self.rule
        searches = number - (number > self.warmup_steps)  # the pass after them does not search
        return "tile" if searches % 2 else "row"
