"""How a mixture is learnt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EMSettings:
    """How a mixture is learnt.

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
    tol : float
        Stop when the free energy changes by less than this times itself; 0 never.
    max_iter : int
    seed : int
    max_time : float or None
    """

    covariance_type: str = "isotropic"
    truncation: int = 5
    n_neighbors: int = 5
    n_random: int = 0
    warmup_steps: int = 0
    rule: str = "tile"
    floor: float = 0.0
    tol: float = 1e-4
    max_iter: int = 300
    seed: int = 0
    max_time: float | None = None

    def rule_of(self, number: int) -> str:
        """Return where rows look in a pass, the first of which is 0."""
        if self.rule != "alternate":
            return self.rule
        searches = number - (number > self.warmup_steps)  # the pass after them does not search
        return "tile" if searches % 2 else "row"
