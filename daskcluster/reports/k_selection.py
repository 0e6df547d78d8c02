"""The result of `select_k`: table, plot and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np

from daskcluster.errors import MissingExtraError
from daskcluster.extras import install_command


@dataclass(frozen=True)
class KCandidate:
    """One number of clusters, with the best of its fits on the coreset.

    Attributes
    ----------
    k : int
    inertia : float or None
        Estimated weighted sum of squared distances of all rows; None for mixtures.
    spread : float
        Excess of the worst seed over the best, as a share of the best.
    silhouette : float or None
        Simplified silhouette on the coreset; None for one cluster and for mixtures.
    log_likelihood, bic : float or None
        Mean log-density of the coreset's rows, and the BIC with the coreset's effective number of rows;
        None for k-means.
    true_inertia, true_log_likelihood : float or None
        The same on all rows, if measured.
    """

    k: int
    inertia: float | None = None
    spread: float = 0.0
    silhouette: float | None = None
    log_likelihood: float | None = None
    bic: float | None = None
    true_inertia: float | None = None
    true_log_likelihood: float | None = None

    @property
    def error(self) -> float | None:
        """(estimated - true) / true inertia; None if not measured."""
        if self.inertia is None or not self.true_inertia:
            return None
        return self.inertia / self.true_inertia - 1.0


_COLUMNS = {
    "k": "{:d}",
    "inertia": "{:.5g}",
    "spread": "{:.1%}",
    "silhouette": "{:.3f}",
    "log_likelihood": "{:.5g}",
    "bic": "{:.6g}",
    "true_inertia": "{:.5g}",
    "true_log_likelihood": "{:.5g}",
    "error": "{:+.2%}",
}


@dataclass(frozen=True)
class KSelection:
    """Fits for several numbers of clusters, and the best one; printed as a table.

    Attributes
    ----------
    best_k : int
    criterion : str
        Criterion of `best_k`.
    candidates : tuple of KCandidate
        Ascending in k.
    notes : tuple of str
        Reservations about `best_k`: a range that is too small, no clear knee, a misleading coreset.
    centres : dict of int to ndarray
        The best centres (k, d) of every k, as a first guess for a fit on all rows.
    coreset_size, n_seeds, n_rows, n_features, passes, bytes_read : int
    seconds : float

    Notes
    -----
    Cost: memory for the best centres of every k; methods use no rows.
    """

    best_k: int
    criterion: str
    candidates: tuple[KCandidate, ...]
    notes: tuple[str, ...] = ()
    centres: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    coreset_size: int = 0
    n_seeds: int = 1
    n_rows: int = 0
    n_features: int = 0
    passes: int = 0
    bytes_read: int = 0
    seconds: float = 0.0

    @property
    def best(self) -> KCandidate:
        """The candidate of `best_k`."""
        return next(each for each in self.candidates if each.k == self.best_k)

    def table(self) -> list[dict[str, Any]]:
        """Return one dict per k, e.g. for ``pandas.DataFrame``; unknown values are left out."""
        rows = [{**asdict(each), "error": each.error} for each in self.candidates]
        known = [name for name in _COLUMNS if any(row[name] is not None for row in rows)]
        return [{name: row[name] for name in known} for row in rows]

    def texts(self) -> tuple[list[str], list[list[str]]]:
        """Return the table as texts: column names, and rows."""
        rows = self.table()
        head = list(rows[0])
        cells = [
            ["" if row[name] is None else _COLUMNS[name].format(row[name]) for name in head]
            for row in rows
        ]
        return [name.replace("_", " ") for name in head], cells

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the centres as plain JSON values."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "centres"}
        return {**plain, "candidates": self.table(), "notes": list(self.notes)}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the result from `as_dict`, without centres.

        Parameters
        ----------
        record : mapping
            From `as_dict`, or from `daskcluster.models.record.SweepRecord`.

        Examples
        --------
        >>> found = KSelection(3, "knee", (KCandidate(2, 9.0), KCandidate(3, 1.0)))
        >>> KSelection.of(found.as_dict()) == found
        True
        """
        known = {f.name: record[f.name] for f in fields(cls) if f.name in record}
        candidates = (
            KCandidate(**{name: value for name, value in row.items() if name != "error"})
            for row in record["candidates"]
        )
        return cls(**{**known, "candidates": tuple(candidates), "notes": tuple(record["notes"])})

    def __str__(self) -> str:
        head, rows = self.texts()
        lines = [["", *head], *(["*" if row[0] == str(self.best_k) else "", *row] for row in rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        texts = [
            " ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([*texts, f"best k={self.best_k} by {self.criterion}", *self.notes])

    def plot(self, axes: Any = None) -> Any:
        """Draw the curves: inertia with its knee and silhouette, or BIC. Needs matplotlib.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        MissingExtraError
            matplotlib is not installed.
        """
        if axes is None:
            try:
                from matplotlib.figure import Figure
            except ImportError as error:
                raise MissingExtraError(
                    f"plots need matplotlib; install it with: {install_command('plots')}."
                ) from error
            # Without pyplot, a figure needs no display and is not kept alive.
            axes = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
        ks = [each.k for each in self.candidates]
        name = "bic" if self.criterion == "bic" else "inertia"
        values = [getattr(each, name) for each in self.candidates]
        axes.plot(ks, values, "o-", ms=3, color="#1f6feb", label=f"{name} on the coreset")
        true = [(each.k, each.true_inertia) for each in self.candidates if each.true_inertia]
        if true:
            axes.plot(
                *zip(*true, strict=True), "s", mfc="none", color="#b35900", label="on all rows"
            )
        if name == "inertia":
            axes.set_xscale("log")
            axes.set_yscale("log")
        axes.axvline(self.best_k, color="#8a929c", ls=":", label=f"k = {self.best_k}")
        axes.set_xlabel("clusters")
        axes.set_ylabel(name)
        silhouettes = [each.silhouette for each in self.candidates]
        if any(value is not None for value in silhouettes):
            other = axes.twinx()
            known = [(k, s) for k, s in zip(ks, silhouettes, strict=True) if s is not None]
            other.plot(*zip(*known, strict=True), "-", lw=1, color="#3d8f5f")
            other.set_ylabel("simplified silhouette", color="#3d8f5f")
        axes.legend(loc="best", fontsize="small")
        return axes


def range_notes(ks: Sequence[int], best: int, criterion: str, *, clear: bool = True) -> list[str]:
    """Return notes for a best k at an end of the range, or for no clear knee.

    Examples
    --------
    >>> range_notes([2, 3, 4], 4, "silhouette")
    ['silhouette is best at k=4, the largest that was tried; the range may be too small: raise k_max.']
    """
    if not clear:
        return [
            f"no knee is clear between k={ks[0]} and k={ks[-1]}: no number of clusters stands out, or it "
            "lies outside; raise k_max, or use criterion='silhouette'."
        ]
    # A knee needs a point on each side.
    first, last = (ks[1], ks[-2]) if criterion == "knee" and len(ks) > 2 else (ks[0], ks[-1])
    if best >= last:
        what = "the largest that was tried" if best == ks[-1] else "next to the largest tried"
        return [
            f"{criterion} is best at k={best}, {what}; the range may be too small: raise k_max."
        ]
    if best <= first and ks[0] > 1:
        what = "the smallest that was tried" if best == ks[0] else "next to the smallest tried"
        return [
            f"{criterion} is best at k={best}, {what}; the range may be too small: lower k_min."
        ]
    return []
