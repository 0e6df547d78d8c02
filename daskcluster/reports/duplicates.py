"""The report on near-duplicates: groups with the nearest pairs first, and sizes before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.reports.charts import BLUE, Chart, plot
from daskcluster.reports.pages import Pages, Rows, Section, Table

MOST_GROUPS = 200
"""Groups that are listed."""
MOST_ROWS = 6
"""Near-duplicates that are listed of each."""
_BINS = 40


@dataclass(frozen=True)
class _Groups:
    """Groups of two rows or more, those with the nearest pairs first.

    Attributes
    ----------
    removed : ndarray of shape (m,), int64
        Their rows that are not kept, group by group, the nearest to the kept row first.
    starts : ndarray of shape (g + 1,), int64
        Where each group begins in `removed`.
    keepers : ndarray of shape (g,), int64
        The kept row of each.
    """

    removed: np.ndarray
    starts: np.ndarray
    keepers: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each group, int64 (g,)."""
        return np.diff(self.starts) + 1


@dataclass(frozen=True)
class DuplicatesReport(Pages):
    """A report on groups of near-duplicates.

    Attributes
    ----------
    title : str
    group : ndarray of shape (n,), int64
    kept : ndarray of shape (n,), bool
    measured : ndarray of shape (n,), float64
        Similarity or distance of each row to the kept row of its group.
    measure : {"similarity", "distance"}
    ids : callable (ndarray of int64) -> mapping of int to str
        Returns the ids of rows by their numbers, ascending; empty if rows have none.
    facts : rows of texts
        Extra lines of the summary.

    Notes
    -----
    Cost: sorts the rows that are not kept.

    Examples
    --------
    >>> group, kept = np.array([0, 0, 2]), np.array([True, False, True])
    >>> report = DuplicatesReport("rows", group, kept, np.array([1.0, 0.97, 1.0]))
    >>> report.as_dict()["groups"]
    [{'kept': '0', 'rows': 2, 'nearest': 0.97, 'farthest': 0.97, 'near_duplicates': ['1']}]
    """

    title: str
    group: np.ndarray
    kept: np.ndarray
    measured: np.ndarray
    measure: str = "similarity"
    ids: Callable[[np.ndarray], Mapping[int, str]] = lambda rows: {}
    facts: Rows = field(default_factory=list)

    @cached_property
    def _groups(self) -> _Groups:
        removed = np.flatnonzero(~self.kept)
        sign = -1.0 if self.measure == "similarity" else 1.0
        far, groups = sign * self.measured[removed], self.group[removed]
        order = np.lexsort((removed, far, groups))
        removed, far, groups = removed[order], far[order], groups[order]
        edges = np.flatnonzero(np.diff(groups, prepend=-1, append=-1))
        # Groups with the nearest pairs first.
        turns = np.argsort(far[edges[:-1]], kind="stable")
        sizes = np.diff(edges)[turns]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        at = np.repeat(edges[:-1][turns] - starts[:-1], sizes) + np.arange(len(removed))
        keeper = np.zeros(len(self.group), np.int64)
        which = np.flatnonzero(self.kept)
        keeper[self.group[which]] = which
        return _Groups(removed[at], starts, keeper[groups[edges[:-1][turns]]])

    def sections(self) -> list[Section]:
        """Return all sections that are not empty."""
        sizes: list[Table | Chart] = []
        if len(self._groups.keepers):
            sizes = [self._chart(), self._sizes()]
        found = [
            Section("Before and after", [Table(self._summary())]),
            Section("Groups, nearest pairs first", self._listed()),
            Section("Sizes of groups", sizes),
        ]
        return [section for section in found if section.parts]

    def _summary(self) -> Rows:
        n, n_kept = len(self.kept), int(self.kept.sum())
        sizes = self._groups.sizes
        largest = [("largest group", f"{sizes.max():,} rows")] if len(sizes) else []
        return [
            ("rows before", f"{n:,}"),
            ("rows after", f"{n_kept:,} ({n_kept / max(1, n):.2%})"),
            ("removed", f"{n - n_kept:,} ({(n - n_kept) / max(1, n):.2%})"),
            ("groups", f"{len(sizes):,} of two rows or more"),
            *largest,
            *self.facts,
        ]

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        """The groups that are listed, as plain values."""
        found, records = self._groups, []
        shown = range(min(MOST_GROUPS, len(found.keepers)))
        members = [found.removed[found.starts[i] : found.starts[i + 1]] for i in shown]
        listed = [found.keepers[: len(shown)], *(part[:MOST_ROWS] for part in members)]
        ids = self.ids(np.unique(np.concatenate(listed))) if members else {}
        for keeper, part in zip(found.keepers.tolist(), members, strict=False):
            each = part[:MOST_ROWS].tolist()
            records.append(
                {
                    "kept": ids.get(keeper, str(keeper)),
                    "rows": len(part) + 1,
                    "nearest": float(self.measured[part[0]]),
                    "farthest": float(self.measured[part[-1]]),
                    "near_duplicates": [ids.get(row, str(row)) for row in each],
                }
            )
        return records

    def _listed(self) -> list[Table | Chart]:
        if not self._records:
            return []
        rows = [
            (
                one["kept"],
                f"{one['rows']:,}",
                f"{one['nearest']:.6g}",
                f"{one['farthest']:.6g}",
                _names(one["near_duplicates"], one["rows"] - 1),
            )
            for one in self._records
        ]
        rest = len(self._groups.keepers) - len(rows)
        note = f"Nearest and farthest: {self.measure} of a removed row to the kept one."
        note += f" {rest:,} more groups are not listed." if rest else ""
        header = ("kept row", "rows", "nearest", "farthest", "removed rows, nearest first")
        return [Table(rows, header, note, ends_in_words=True)]

    def _bins(self) -> list[tuple[str, int, int]]:
        """Return range of sizes, groups and rows; sizes from 5 on by powers of two."""
        sizes = self._groups.sizes
        bins = np.where(sizes <= 4, sizes, np.ceil(np.log2(np.maximum(sizes, 1))) + 2).astype(int)
        found = []
        for one in np.unique(bins).tolist():
            here = sizes[bins == one]
            last = one if one <= 4 else 2 ** (one - 2)
            name = str(one) if one <= 4 else f"{last // 2 + 1:,} to {last:,}"
            found.append((name, len(here), int(here.sum())))
        return found

    def _sizes(self) -> Table:
        rows = [
            (name, f"{many:,}", f"{total:,}", f"{many:,}", f"{total - many:,}")
            for name, many, total in self._bins()
        ]
        alone = len(self.kept) - int(self._groups.sizes.sum())
        rows.insert(0, ("1", f"{alone:,}", f"{alone:,}", f"{alone:,}", "0"))
        return Table(
            rows, ("rows of a group", "groups", "rows before", "rows after", "removed rows")
        )

    def _chart(self) -> Chart:
        values = self.measured[self._groups.removed]

        def paint(axes: Any) -> None:
            axes.hist(values, bins=_BINS, color=BLUE)
            axes.set_xlabel(f"{self.measure} of a removed row to the kept one")
            axes.set_ylabel("rows")

        return plot(f"histogram of the {self.measure} of removed rows to kept ones", 2.4, paint)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures of the report as plain JSON values."""
        return {
            "title": self.title,
            "n_rows": len(self.kept),
            "n_kept": int(self.kept.sum()),
            "n_groups": len(self._groups.keepers),
            "summary": dict(self._summary()),
            "sizes": [
                {"size": name, "groups": many, "rows": total} for name, many, total in self._bins()
            ],
            "groups": self._records,
        }


def _names(ids: list[str], many: int) -> str:
    rest = many - len(ids)
    return ", ".join(ids) + (f" and {rest:,} more" if rest else "")
