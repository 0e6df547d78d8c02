"""Records and models as short tables, for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.host import format_bytes
from daskcluster.models.balance import largest_first
from daskcluster.models.fitted import Model

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes
    ----------
    rows : sequence of sequences of str
    header : sequence of str
        Empty for a table of names and values; otherwise, cells are numbers.
    note : str
    ends_in_words : bool
        The last column is text.
    """

    rows: Sequence[Sequence[str]]
    header: Sequence[str] = ()
    note: str = ""
    ends_in_words: bool = False


_STOP_REASONS = {
    "converged": "converged: the centres are a fixed point",
    "tolerance": "the centres moved less than tol allows",
    "no_improvement": "the inertia of batches has stopped falling",
    "max_iter": "max_iter reached",
    "max_time": "max_time reached",
    "callback": "stopped by a callback",
}
_NAMES = {
    "estimator": "estimator",
    "metric": "metric",
    "dtype": "dtype",
    "model": "model",
    "labels": "labels",
    "output": "labels",
    "n_rows": "rows",
    "n_features": "features",
    "n_clusters": "clusters",
    "inertia": "inertia",
    "lower_bound": "lower bound",
    "score": "score",
    "mean": "mean squared distance",
    "balance": "balance",
    "levels": "levels",
    "n_iter": "iterations",
    "stop_reason": "ended",
    "seeding": "seeding",
    "passes": "passes",
    "bytes_read": "read",
    "seconds": "time",
}


def format_seconds(seconds: float) -> str:
    """Return a duration as text.

    Examples
    --------
    >>> format_seconds(0.25), format_seconds(75), format_seconds(7300)
    ('0.25 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 59.5:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_rate(rows_per_second: float) -> str:
    """Return a speed as text.

    Examples
    --------
    >>> format_rate(1234567.0)
    '1,230,000 rows/s'
    """
    return f"{float(f'{rows_per_second:.3g}'):,.0f} rows/s"


def short_rate(rows_per_second: float) -> str:
    """Return a speed as a text of at most twelve characters.

    Examples
    --------
    >>> short_rate(1234567.0), short_rate(999_999.0), short_rate(12.0)
    ('1.23M rows/s', '1M rows/s', '12 rows/s')
    """
    rate = float(f"{rows_per_second:.3g}")
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g}{unit} rows/s"
    return f"{rate:.3g} rows/s"


def rows_of_record(record: Mapping[str, Any]) -> Rows:
    """Return the lines that describe a job's record."""
    return [
        (label, format_field(name, record[name]))
        for name, label in _NAMES.items()
        if record.get(name) is not None
    ]


def rows_of_work(record: Mapping[str, Any]) -> Rows:
    """Return the lines that say what a job took."""
    return [
        ("passes", f"{record['passes']}, {format_bytes(record['bytes_read'])} read"),
        ("time", format_seconds(record["seconds"])),
    ]


def format_field(name: str, value: Any) -> str:
    """Return one field of a record or a model as text."""
    if name == "stop_reason":
        return _STOP_REASONS.get(value, str(value))
    if name == "bytes_read":
        return format_bytes(value)
    if name == "seconds":
        return format_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def rows_of_model(model: Model) -> Rows:
    """Return the lines that describe a model."""
    fields = {
        **model.facts(),
        "estimator": model.estimator,
        "n_clusters": model.n_clusters,
        "n_features": model.n_features,
        "n_rows": model.n_rows,
        "n_iter": model.n_iter,
        "stop_reason": model.stop_reason or None,
        "seeding": model.seeding or None,
        "passes": model.passes,
        "bytes_read": model.bytes_read,
    }
    rows = rows_of_record(fields)
    versions = ", ".join(f"{name} {version}" for name, version in model.created_with.items())
    return [*rows, ("made with", versions)] if versions else rows


def cluster_rows(
    sizes: np.ndarray, weights: np.ndarray, costs: np.ndarray
) -> Sequence[tuple[int, int, float, float, float]]:
    """Return ``(cluster, size, weight, share of the weight, mean squared distance)``, largest first.

    Parameters
    ----------
    sizes, weights, costs : ndarray of shape (k,)
    """
    total = float(np.sum(weights))
    return [
        (
            int(cluster),
            int(sizes[cluster]),
            float(weights[cluster]),
            float(weights[cluster]) / total if total > 0 else 0.0,
            float(costs[cluster] / weights[cluster]) if weights[cluster] > 0 else 0.0,
        )
        for cluster in largest_first(weights)
    ]
