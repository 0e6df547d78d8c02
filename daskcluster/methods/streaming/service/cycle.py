"""What one look at the source led to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daskcluster.methods.streaming.service.sorting import Finding


@dataclass(frozen=True)
class Cycle:
    """What one look at the source led to.

    Attributes
    ----------
    rows_seen, new_rows, objects, new_objects : int
        Of the stream, and of this cycle; `objects` are entries of the ledger.
    model_version : int or None
        The rows that the latest model has seen.
    model : str or None
        Its URL.
    findings : tuple of Finding
    drifts : tuple of dict
    drift : dict
        The last leaf's error, its baseline and their ratio, and the weight of its rows in each cluster,
        ``counts``.
    remembered : float
        The weight that all rows have left.
    n_clusters : int or None
    algorithm : str
    seconds : float
    """

    rows_seen: int
    new_rows: int
    objects: int
    new_objects: int
    model_version: int | None
    model: str | None
    findings: tuple[Finding, ...]
    drifts: tuple[dict[str, Any], ...]
    drift: dict[str, Any]
    remembered: float
    n_clusters: int | None
    algorithm: str
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the cycle as plain JSON values."""
        values = {name: value for name, value in vars(self).items() if name != "findings"}
        findings = [
            {"what": str(finding.oddity), "name": finding.name, "text": finding.text}
            for finding in self.findings
        ]
        return {**values, "drifts": list(self.drifts), "findings": findings}
