"""Small records of what jobs did: picklable, and plain enough for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """What every job says of its work.

    Attributes
    ----------
    n_rows, n_features : int
    passes, bytes_read : int
        Over the whole job, the labelling pass included.
    seconds : float
    versions : dict
        Of daskcluster, Python and the libraries.
    """

    n_rows: int
    n_features: int
    passes: int
    bytes_read: int
    seconds: float
    versions: dict[str, str] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class FitRecord(Record):
    """What `fit` did: `model` and `labels` are the URLs that were written."""

    model: str
    labels: str | None
    n_clusters: int
    inertia: float
    n_iter: int
    stop_reason: str
    seeding: str


@dataclass(frozen=True)
class PredictRecord(Record):
    """What `predict` did: `output` is the URL that was written."""

    model: str
    output: str


@dataclass(frozen=True)
class ScoreRecord(Record):
    """What `score` found; ``score`` is minus the inertia, as scikit-learn has it."""

    model: str
    inertia: float
    score: float
