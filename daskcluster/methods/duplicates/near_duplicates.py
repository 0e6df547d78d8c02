"""`near_duplicates`: groups of rows that are nearly the same, which row of each to keep, and a report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from daskcluster.data.identity import data_identity
from daskcluster.data.label_files import LabelArray, open_labels
from daskcluster.data.shuffle_passes import check_scratch, kept_bytes, scratch_of
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.estimators.examples import ids_of_rows
from daskcluster.estimators.work import RowResults, Work, check_work
from daskcluster.events import Callback
from daskcluster.fingerprint import fingerprint
from daskcluster.host import format_bytes
from daskcluster.invariance import FIRST, varies_with
from daskcluster.methods.duplicates.chunkwise import Rule
from daskcluster.methods.duplicates.kernels import assign_keepers
from daskcluster.methods.duplicates.parameters import NEAR_DUPLICATES, RULES
from daskcluster.methods.duplicates.search import DuplicateSearch, DuplicatesPlan
from daskcluster.reports.charts import BLUE, Chart, plot
from daskcluster.reports.pages import Pages, Rows, Section, Table, format_seconds
from daskcluster.storage.location import locate
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class NearDuplicates(RowResults):
    """Groups of near-duplicates; rows without any are groups of their own.

    Attributes
    ----------
    group : ndarray of shape (n,), int64
        The first row of the group of each row.
    kept : ndarray of shape (n,), bool
        One row of each group is kept: ``X[kept]`` has no near-duplicates, but for ``"components"`` may lack
        rows that are no near-duplicate of the kept one.
    similarity : ndarray of shape (n,), float64
        Cosine similarity to the kept row of the group; the distance to it for Euclidean rows.
    metric : str
    threshold : float
    n_pairs : int
        Pairs that were needed; with ``groups="covered"``, all pairs of different rows.
    n_copies : int
        Rows that equal an earlier row.
    passes, bytes_read : int
        Passes over the rows, and decoded bytes fetched from the store.
    seconds : float
    """

    group: np.ndarray
    kept: np.ndarray
    similarity: np.ndarray
    metric: str
    threshold: float
    n_pairs: int
    n_copies: int
    passes: int
    bytes_read: int
    seconds: float
    dataset: Dataset = field(repr=False)

    @property
    def n_kept(self) -> int:
        return int(self.kept.sum())

    @property
    def n_groups(self) -> int:
        """Number of groups of two rows or more."""
        return int((np.bincount(self.group, minlength=1) > 1).sum())

    def __repr__(self) -> str:
        removed = len(self.kept) - self.n_kept
        return f"NearDuplicates({removed:,} of {len(self.kept):,} rows in {self.n_groups:,} groups)"

    @property
    def measure(self) -> str:
        """The measure that `similarity` holds: "similarity", or "distance" for Euclidean rows."""
        return "similarity" if self.metric == "cosine" else "distance"

    def report(self, title: str = "Near-duplicates") -> DuplicatesReport:
        """Return a report: groups with the nearest pairs first, and sizes before and after.

        Notebooks show it; its ``save("duplicates.html")`` writes it, also as .png, .md or .json.
        """
        facts = [
            ("copies", f"{self.n_copies:,} rows equal an earlier one"),
            ("metric", self.metric),
            ("threshold", f"{self.measure} {self.threshold:g}"),
            ("passes", f"{self.passes}, {format_bytes(self.bytes_read)} read"),
            ("time", format_seconds(self.seconds)),
        ]
        return DuplicatesReport(
            title, self.group, self.kept, self.similarity, self.measure,
            partial(ids_of_rows, self.dataset), facts,
        )  # fmt: skip

    def columns(self) -> dict[str, np.ndarray]:
        """Return group, kept and similarity (or distance) of every row."""
        return {"group": self.group, "kept": self.kept, self.measure: self.similarity}


@varies_with(order=FIRST)
def near_duplicates(
    source: Any,
    threshold: float = 0.95,
    *,
    metric: str = "cosine",
    keep: Any = "first",
    groups: str = "components",
    random_state: Any = 0,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Any = None,
    resume: bool = False,
    scratch: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> NearDuplicates:
    """Find all pairs of rows that are closer than a threshold, group them, and choose a row of each group.

    The pairs are exact: none is missing, whatever the cells, and none is beyond the threshold. Groups are
    the same for any chunks, threads and workers.

    Parameters
    ----------
    source : Dataset, or anything `open_dataset` takes
        Dense rows (n, d).
    threshold : float, default 0.95
        Rows are near-duplicates from this cosine similarity on, in (0, 1], or up to this Euclidean
        distance, at least 0. Both are computed in float64 from the rows as stored. Equal rows are
        near-duplicates; a row of zeros has the similarity 0 to all others.
    metric : {"cosine", "euclidean"}, default "cosine"
    keep : {"first", "nearest", "farthest"}, array of shape (n,) or str, default "first"
        The row of each group that is kept: the first one, the one nearest to the centre of its cell or the
        farthest (as SemDeDup does), or the one with the largest score of an array or of a 1-D Zarr array
        at a URL. The first row of equals.
    groups : {"components", "covered"}, default "components"
        components: rows that a chain of near-duplicates connects are a group. covered: all rows of a group
        are near-duplicates of the kept one. Rows are visited as `keep` prefers them; each that no kept row
        covers is kept.
    random_state : int, RandomState, Generator, default 0
        Seed of the centres of cells. No pair depends on it, but ``keep="nearest"`` and ``"farthest"`` do.
    engine : Engine, dask.distributed.Client, "local" or address, optional
    callbacks : sequence of callables, default ()
        Called with `PassStarted`, `PassProgress` and `PassEnded`.
    checkpoint : str, optional
        Folder or URL for labels, sorted rows and finished pairs, so that the search can be resumed. Workers
        of a cluster on other hosts need one that all of them reach. Its content is removed at the end.
    resume : bool, default False
        Resume the search at `checkpoint`, if there is one.
    scratch : str, optional
        Local folder for temporary files; the system's by default.
    storage_options : dict, optional
        For all URLs.

    Returns
    -------
    NearDuplicates

    Raises
    ------
    InvalidParameterError, WrongTypeError
        A parameter is out of range.
    InvalidDataError
        Sparse rows, rows with NaN or infinity, or not one score for every row.
    CheckpointError
        The checkpoint is of another search, or damaged.
    DataNotReachableError
        Workers cannot reach the scratch folder.
    DiskSpaceError
        The scratch disk is too small.
    MemoryLimitError
        The limit of a `LocalEngine` is too small.

    Notes
    -----
    Cost: three passes over the source, of which the first takes a sample: centres, cells, and sorting. Then
    each row is compared with the cells that the triangle inequality leaves, by products of 8-bit integers.
    Scratch takes about three times the bytes of float16 rows. Memory is a bound that depends neither on
    the largest cell nor on the number of pairs of equal rows: two blocks of at most 8,192 rows for each
    thread, and 112 bytes a row in the process that calls, as well as 16 bytes a pair (of components: at
    most one pair for each row of two blocks that meet). `daskcluster dedup --dry-run` shows it.

    SemDeDup (Abbas et al., "SemDeDup: Data-efficient learning at web-scale through semantic deduplication",
    2023) compares rows within clusters only, and so misses pairs that a border separates.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(100, 32))
    >>> X[60] = X[7] + 0.01
    >>> found = dc.near_duplicates(X, threshold=0.95)
    >>> found, np.flatnonzero(~found.kept).tolist(), int(found.group[60])
    (NearDuplicates(1 of 100 rows in 1 groups), [60], 7)
    >>> clean = X[found.kept]
    """
    with searching(source, locals()) as found:
        return found


def plan_search(dataset: Dataset, given: Mapping[str, Any]) -> DuplicatesPlan:
    """Return the plan of a search, by the arguments of `near_duplicates`.

    Raises
    ------
    DaskClusterError
        What the search would raise before its first pass, but for its scores and the memory of its engine.
    """
    what = "Near-duplicates are found among"
    check_work("near_duplicates", NEAR_DUPLICATES, given, dataset, what)
    threshold = given["threshold"]
    if given["metric"] == "cosine" and not 0.0 < threshold <= 1.0:
        raise InvalidParameterError(
            f"threshold={threshold} should be a cosine similarity in (0, 1]; for a distance, give "
            "metric='euclidean'."
        )
    plan = DuplicatesPlan.of(dataset)
    folder = _local_folder(given["scratch"])
    on_the_way = 0 if dataset.in_memory else plan.bytes_sorted
    if given["resume"]:
        on_the_way = max(0, on_the_way - kept_bytes(scratch_of(folder, _name(dataset, given))))
    stays = plan.bytes_scratch if given["checkpoint"] is None else 0
    check_scratch(folder, on_the_way + stays)
    return plan


def _name(dataset: Dataset, given: Mapping[str, Any]) -> str:
    """Return a name of a search for its rows on their way: searches may share a checkpoint's folder."""
    if given["checkpoint"] is None:
        return ""
    asked = given["metric"], float(given["threshold"]), given["groups"], data_identity(dataset)
    return f"{locate(given['checkpoint']).url} {fingerprint(*asked)}"


@contextmanager
def searching(source: Any, given: Mapping[str, Any]) -> Iterator[NearDuplicates]:
    """Yield what `near_duplicates` returns for its arguments.

    The state at its ``checkpoint`` stays if the block raises or dies.
    """
    keep, metric = given["keep"], given["metric"]

    def facts() -> dict[str, Any]:
        return {"threshold": float(given["threshold"]), "groups": given["groups"]}

    with Work.begin(source, given, plan_search, "the search", facts) as work:
        rule, forest = (
            Rule(metric == "cosine", facts()["threshold"]),
            given["groups"] == "components",
        )
        scores, n = None, work.dataset.n_rows
        if not (isinstance(keep, str) and keep in RULES):
            scores = open_scores(keep, n, given["storage_options"]).read(0, n)
            if scores.dtype.kind not in "biuf":
                raise InvalidDataError(f"keep has scores of dtype {scores.dtype}; give numbers.")
            scores = np.asarray(scores, np.float64)
        search = DuplicateSearch(work, rule, forest)
        with search.on_scratch(_local_folder(given["scratch"]), _name(work.dataset, given)):
            pairs = search.pairs()
            if isinstance(keep, str) and keep in ("nearest", "farthest"):
                scores = search.sorted.distances * (1.0 if keep == "farthest" else -1.0)
            group_rows = connected_groups if forest else covered_groups
            group, keeper = group_rows(pairs, search.sorted.leaders, scores)
            numbers = np.arange(n)
            similarity = np.full(n, 1.0 if rule.cosine else 0.0)
            others = np.flatnonzero(keeper != numbers)
            similarity[others] = search.measured(others, keeper[others])
            n_copies = int((search.sorted.leaders != numbers).sum())
            yield NearDuplicates(
                group, keeper == numbers, similarity, metric, facts()["threshold"], len(pairs), n_copies,
                dataset=work.dataset, **work.spent(),
            )  # fmt: skip


def open_scores(keep: Any, n_rows: int, storage_options: Mapping[str, Any] | None) -> LabelArray:
    """Open the scores of rows; nothing is read yet."""
    named = isinstance(keep, (str, os.PathLike))
    labels = open_labels(keep, "keep", storage_options=storage_options if named else None)
    if labels.n_rows != n_rows:
        raise InvalidDataError(
            f"keep has {labels.n_rows:,} scores for {n_rows:,} rows; give one for every row."
        )
    return labels


def _local_folder(scratch: Any) -> str:
    folder = tempfile.gettempdir() if scratch is None else os.path.abspath(os.fspath(scratch))
    if not os.path.isdir(folder):
        raise InvalidParameterError(
            f"scratch={folder!r} should be a folder of this host; make it, or name another one."
        )
    return folder


# -- groups from pairs --------------------------------------------------------------------------------


Groups = tuple[np.ndarray, np.ndarray]
"""For every row, the first row of its group (itself if it has no near-duplicate), and the row of the group
that is kept; both int64 (n,)."""


def connected_groups(pairs: np.ndarray, leaders: np.ndarray, scores: np.ndarray | None) -> Groups:
    """Return the connected components of pairs.

    Parameters
    ----------
    pairs : ndarray of shape (m, 2), int64
    leaders : ndarray of shape (n,), int64
        The first row that equals each row.
    scores : ndarray of shape (n,), float64, or None
        The row with the largest score is kept, the first one of equals; None keeps the first row.

    Examples
    --------
    >>> group, keeper = connected_groups(np.array([[0, 3], [3, 1]]), np.arange(5), np.arange(5.0))
    >>> group.tolist(), keeper.tolist()
    ([0, 0, 2, 0, 4], [3, 3, 2, 3, 4])
    """
    n = len(leaders)
    copies = np.flatnonzero(leaders != np.arange(n))
    rows = np.concatenate([pairs[:, 0], copies])
    columns = np.concatenate([pairs[:, 1], leaders[copies]])
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(n, n))
    labels = connected_components(graph, directed=False)[1]
    _, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    group = first[labels].astype(np.int64)
    if scores is None:
        return group, group
    keeper = np.arange(n)
    several = np.flatnonzero(sizes[labels] > 1)
    best = _best(several, group[several], scores)
    keeper[several] = best[np.searchsorted(group[best], group[several])]
    return group, keeper


def _best(rows: np.ndarray, group: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the best row of each group, by ascending group."""
    ordered = rows[np.lexsort((rows, -scores[rows], group))]
    kinds = np.sort(group)
    is_first = np.ones(len(rows), bool)
    is_first[1:] = kinds[1:] != kinds[:-1]
    return np.asarray(ordered[is_first])


def covered_groups(pairs: np.ndarray, leaders: np.ndarray, scores: np.ndarray | None) -> Groups:
    """Return groups in which every row is a near-duplicate of the kept one.

    Rows are visited by descending score; a row that is no near-duplicate of a kept row is kept, and covers
    the rows close to it that no earlier one covers.

    Parameters
    ----------
    pairs, leaders, scores
        As for `connected_groups`; all pairs.

    Examples
    --------
    >>> group, keeper = covered_groups(np.array([[0, 1], [1, 2]]), np.arange(3), None)
    >>> keeper.tolist()
    [0, 0, 2]
    """
    n = len(leaders)
    scores = np.zeros(n) if scores is None else scores
    # Equal rows are covered by the same rows: one of them stands for all, the best one.
    best = np.arange(n)
    which = np.unique(leaders)
    best[which] = _best(np.arange(n), leaders, scores)
    order = which[np.lexsort((best[which], -scores[best[which]]))]
    both = np.concatenate([pairs, pairs[:, ::-1]])
    graph = coo_array((np.ones(len(both), np.int8), (both[:, 0], both[:, 1])), shape=(n, n)).tocsr()
    kept = np.empty(n, np.int64)
    assign_keepers(graph.indptr.astype(np.int64), graph.indices.astype(np.int64), order, kept)
    keeper = best[kept[leaders]]
    group = np.full(n, n)
    np.minimum.at(group, keeper, np.arange(n))
    return group[keeper], keeper


MOST_GROUPS = 200
"""Groups that are listed."""
MOST_BORDERLINE = 20
"""Removed rows that are listed as farthest from the kept ones."""
MOST_ROWS = 6
"""Near-duplicates that are listed of each."""
_BINS = 40


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
    def _groups(self) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Groups of two rows or more, those with the nearest pairs first.

        Listed groups have their rows that are not kept, the nearest to the kept row first, and their kept
        row. The last array has the number of rows of every group.
        """
        removed = np.flatnonzero(~self.kept)
        sign = -1.0 if self.measure == "similarity" else 1.0
        far, groups = sign * self.measured[removed], self.group[removed]
        order = np.lexsort((removed, far, groups))
        removed, far, groups = removed[order], far[order], groups[order]
        edges = np.flatnonzero(np.diff(groups, prepend=-1, append=-1))
        turns = np.argsort(far[edges[:-1]], kind="stable")
        listed = turns[:MOST_GROUPS]
        members = [removed[edges[i] : edges[i + 1]] for i in listed]
        return members, self._keepers[groups[edges[:-1][listed]]], np.diff(edges)[turns] + 1

    @cached_property
    def _keepers(self) -> np.ndarray:
        """The kept row of each group, by the number of the group."""
        found, which = np.zeros(len(self.group), np.int64), np.flatnonzero(self.kept)
        found[self.group[which]] = which
        return found

    def _borderline(self) -> list[Table | Chart]:
        """Return the removed rows that are farthest from the kept ones."""
        removed = np.flatnonzero(~self.kept)
        far = self.measured[removed] * (1.0 if self.measure == "similarity" else -1.0)
        removed = removed[np.argsort(far, kind="stable")[:MOST_BORDERLINE]]
        if not len(removed):
            return []
        kept = self._keepers[self.group[removed]]
        ids = self.ids(np.unique(np.concatenate([removed, kept])))
        rows = [
            (ids.get(row, str(row)), ids.get(other, str(other)), f"{self.measured[row]:.6g}")
            for row, other in zip(removed.tolist(), kept.tolist(), strict=True)
        ]
        note = "If these are no duplicates, take a stricter threshold."
        return [Table(rows, ("removed row", "kept row", self.measure), note)]

    def sections(self) -> list[Section]:
        """Return all sections that are not empty."""
        sizes: list[Table | Chart] = []
        if self._groups[0]:
            sizes = [self._chart(), self._sizes()]
        found = [
            Section("Before and after", [Table(self._summary())]),
            Section("Groups, nearest pairs first", self._listed()),
            Section("Borderline: removed rows farthest from the kept ones", self._borderline()),
            Section("Sizes of groups", sizes),
        ]
        return [section for section in found if section.parts]

    def _summary(self) -> Rows:
        n, n_kept = len(self.kept), int(self.kept.sum())
        sizes = self._groups[2]
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
        members, keepers, _ = self._groups
        listed = [keepers, *(part[:MOST_ROWS] for part in members)]
        ids = self.ids(np.unique(np.concatenate(listed))) if members else {}
        records = []
        for keeper, part in zip(keepers.tolist(), members, strict=True):
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
        rows = []
        for one in self._records:
            removed = ", ".join(one["near_duplicates"])
            if more := one["rows"] - 1 - len(one["near_duplicates"]):
                removed += f" and {more:,} more"
            away = f"{one['nearest']:.6g}", f"{one['farthest']:.6g}"
            rows.append((one["kept"], f"{one['rows']:,}", *away, removed))
        rest = len(self._groups[2]) - len(rows)
        note = f"Nearest and farthest: {self.measure} of a removed row to the kept one."
        note += f" {rest:,} more groups are not listed." if rest else ""
        header = ("kept row", "rows", "nearest", "farthest", "removed rows, nearest first")
        return [Table(rows, header, note, ends_in_words=True)]

    def _bins(self) -> list[tuple[str, int, int]]:
        """Return range of sizes, groups and rows; sizes from 5 on by powers of two."""
        sizes = self._groups[2]
        bins = np.where(sizes <= 4, sizes, np.frexp(sizes - 1)[1] + 2)
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
        alone = len(self.kept) - int(self._groups[2].sum())
        rows.insert(0, ("1", f"{alone:,}", f"{alone:,}", f"{alone:,}", "0"))
        return Table(
            rows, ("rows of a group", "groups", "rows before", "rows after", "removed rows")
        )

    def _chart(self) -> Chart:
        values = self.measured[~self.kept]

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
            "n_groups": len(self._groups[2]),
            "summary": dict(self._summary()),
            "sizes": [
                {"size": name, "groups": many, "rows": total} for name, many, total in self._bins()
            ],
            "groups": self._records,
        }
