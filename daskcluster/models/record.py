"""Results of jobs: small, picklable records that convert to JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """Fields common to the records of all jobs.

    Attributes
    ----------
    n_rows, n_features : int
    passes, bytes_read : int
        Totals of the job, including the pass for labels.
    seconds : float
    versions : dict
        Versions of daskcluster, Python and the libraries.
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
    """Result of the job `fit`.

    Attributes
    ----------
    model, labels : str
        The URLs that were written.
    algorithm, estimator : str
        The requested name, and the class name of its estimator.
    n_clusters, n_iter : int
    stop_reason, seeding : str
    inertia : float or None
        Weighted sum of squared distances of the rows to their centres; None for mixtures.
    lower_bound : float or None
        Free energy of a mixture; None for other models.
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
    """Result of the job `build_coreset`.

    Attributes
    ----------
    output : str
        The URL that was written.
    size, seed : int
    total_weight, coreset_weight : float
        Weight of all rows, and of the coreset, which has the same expectation.
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
class DuplicatesRecord(Record):
    """Result of the job `dedup`.

    Attributes
    ----------
    output : str
        The URL that was written.
    threshold : float
    metric : str
    n_kept, n_groups : int
        Rows that are kept, and groups of two rows or more.
    n_copies : int
        Rows that equal an earlier row.
    n_pairs : int
        See `daskcluster.methods.duplicates.near_duplicates.NearDuplicates`.
    """

    output: str
    threshold: float
    metric: str
    n_kept: int
    n_groups: int
    n_copies: int
    n_pairs: int


@dataclass(frozen=True)
class PartitionRecord(Record):
    """Result of the job `partition`.

    Attributes
    ----------
    output, centroids : str
        The URLs that were written.
    n_partitions, largest : int
        Number of partitions, and rows of the largest one.
    variation, largest_over_mean : float
        Standard deviation of the sizes over their mean, and the largest size over it.
    metric : str
    """

    output: str
    centroids: str | None
    n_partitions: int
    largest: int
    variation: float
    largest_over_mean: float
    metric: str


@dataclass(frozen=True)
class PredictRecord(Record):
    """Result of the job `predict`; `output` and `posteriors` are the URLs that were written."""

    model: str
    output: str
    posteriors: str | None = None


@dataclass(frozen=True)
class SampleRecord(Record):
    """Result of the job `sample`.

    Attributes
    ----------
    model, output, rows : str
        The URLs that were read and written.
    size, seed : int
    how : str
    levels : list of int
        Numbers of clusters of each level of the model.
    before, after : list of dict
        For each level, the balance of the clusters that have rows, in the source and in the sample; see
        `daskcluster.models.balance.Balance`.
    """

    model: str
    output: str
    rows: str | None
    size: int
    how: str
    seed: int
    levels: list[int]
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


@dataclass(frozen=True)
class SweepRecord(Record):
    """Result of the job `sweep`; its candidates are a table, as of `daskcluster.select_k`.

    Attributes
    ----------
    best_k : int
    criterion : str
        Criterion of `best_k`.
    candidates : list of dict
        One entry per number of clusters, ascending.
    notes : list of str
        Reservations about `best_k`.
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
    """Result of the job `score`; ``score`` is minus the inertia, as in scikit-learn.

    ``metrics`` has the requested measures by name.
    """

    model: str
    inertia: float
    score: float
    metrics: dict[str, float] | None = None
