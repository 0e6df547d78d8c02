"""Settings of variational EM."""

from __future__ import annotations

from dataclasses import dataclass

SHARED_STEPS = 2
"""M-steps that learn one variance for all clusters before each learns its own."""


@dataclass(frozen=True)
class EMSettings:
    """Settings of the fit of a mixture.

    Attributes
    ----------
    covariance_type : {"isotropic", "spherical", "diag"}
    truncation : int
        C', clusters that a row keeps; with all of them, EM is exact.
    n_neighbors : int
        G, the cluster itself among them.
    n_random : int
        Clusters drawn at random for each row in each E-step.
    warmup_steps : int
        E-steps before the first variance is set.
    rule : {"tile", "row", "alternate"}
        Of `Search`, or both in turn.
    floor : float
        Least variance.
    floor_share : float
        Also, for variances by feature: the least one, in variances of that feature over all rows. A
        feature that is constant has `floor`.
    tol : float
        Stop when the free energy changes by less than this for each unit of row weight and feature; 0
        never. So the units of the features do not matter, which the free energy itself depends on.
    max_iter : int
    seed : int
    max_time : float or None
    shared_steps : int
        M-steps that learn one variance before clusters learn their own; 0 for given variances.
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
        """The first iteration whose change of the free energy says anything.

        One with learnt variances behind it: while all clusters share theirs, little may change before
        much does.
        """
        return 2 if self.covariance_type == "isotropic" else self.shared_steps + 2

    def rule_of(self, number: int) -> str:
        """Return where rows look in a pass, the first of which is 0."""
        if self.rule != "alternate":
            return self.rule
        searches = number - (number > self.warmup_steps)  # the pass after them does not search
        return "tile" if searches % 2 else "row"
