"""Results of jobs: small, picklable records that convert to JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """Common part of the records of jobs.

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
    """Record of a `fit`.

    Attributes
    ----------
    model, labels : str
        The URLs that were written.
    algorithm, estimator : str
        The name that was asked for, and the class that it stands for.
    n_clusters, n_iter : int
    stop_reason, seeding : str
    inertia : float or None
        Weighted sum of squared distances of the rows to their centres; None for a mixture.
    lower_bound : float or None
        Free energy of a mixture; None for centres.
    """

    model: str
    labels: str | None
    algorithm: str
    estimator: str
    n_clusters: int
    n_iter: int
    stop_reason: str
    seeding: str
    inertia: float | None = None
    lower_bound: float | None = None


@dataclass(frozen=True)
class CoresetRecord(Record):
    """Record of a `build_coreset`.

    Attributes
    ----------
    output : str
        The URL that was written.
    size, seed : int
    total_weight, coreset_weight : float
        Of all rows, and of the coreset, whose expectation is the same.
    quality : dict or None
        See `daskcluster.methods.coreset.quality.CoresetQuality.as_dict`.
    """

    output: str
    size: int
    seed: int
    total_weight: float
    coreset_weight: float
    quality: dict[str, Any] | None = None


@dataclass(frozen=True)
class PredictRecord(Record):
    """Record of a `predict`: `output` and `posteriors` are the URLs that were written."""

    model: str
    output: str
    posteriors: str | None = None


@dataclass(frozen=True)
class SweepRecord(Record):
    """Record of a `sweep`; `daskcluster.reports.k_selection.KSelection.of` makes a table and curves of it.

    Attributes
    ----------
    best_k : int
    criterion : str
        By which it is the best.
    candidates : list of dict
        One for each number of clusters, ascending.
    notes : list of str
        What speaks against `best_k`.
    coreset_size, n_seeds : int
    output : str or None
        The URL that was written.
    """

    best_k: int
    criterion: str
    candidates: list[dict[str, Any]]
    notes: list[str]
    coreset_size: int
    n_seeds: int
    output: str | None = None


@dataclass(frozen=True)
class ScoreRecord(Record):
    """Record of a `score`; ``score`` is minus the inertia, as in scikit-learn.

    ``metrics`` has the measures that were asked for, by name.
    """

    model: str
    inertia: float
    score: float
    metrics: dict[str, float] | None = None
