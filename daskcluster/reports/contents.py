"""The contents of a report, the same for every format: tables, charts, and how clusters are separated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, squareform

from daskcluster import sparse_rows
from daskcluster.chunkwise.assign import ScoreStatistics
from daskcluster.chunkwise.examples import ClusterExamples, RankedRows, Sample
from daskcluster.chunkwise.feature_scaling import undone
from daskcluster.metrics.agreement import DISSOLVED, Stability
from daskcluster.metrics.separation import distance_totals, silhouettes_of_totals
from daskcluster.models.balance import largest, largest_first
from daskcluster.models.fitted import KMeansModel, Model
from daskcluster.reports import charts
from daskcluster.reports.charts import (
    BLUE,
    GREY,
    MOST_NUMBERED,
    WIDTH,
    Chart,
    plane,
    plot,
)
from daskcluster.reports.pages import (
    Pages,
    Rows,
    Section,
    Table,
    format_field,
    rows_of_model,
)
from daskcluster.sparse_rows import SparseRows, dense_rows

MOST_COMPARED = 500
"""Most clusters whose silhouettes are computed."""
_MOST_MERGED = 100
_LEAST_GAIN = 0.05
"""A rise of the mean silhouette below this is no reason to merge clusters."""
_MOST_POINTS = 3_000
_MOST_VALUES = 1 << 24
_QUANTILES = 60
_MOST_SHOWN = 30
_COLOURED = 20

_NEAR_LINE = 0.15
"""Half the width of the bands in which rows are counted, as a share of the distance of two centres."""
_CLEAR, _NO_BORDER = 0.25, 0.8
"""Densities at the border of two normal distributions whose means are 4 and 2.7 deviations apart."""


def border_in_words(density: float) -> str:
    """Return what the density at the border of two clusters says.

    Examples
    --------
    >>> border_in_words(0.1), border_in_words(0.5), border_in_words(1.2)
    ('well separated', 'overlapping', 'no border')
    """
    if density < _CLEAR:
        return "well separated"
    return "overlapping" if density < _NO_BORDER else "no border"


_HEADER = (
    "cluster",
    "sampled rows",
    "silhouette",
    "stability",
    "density at the border",
    "in words",
)
_NOTE = (
    "Silhouette: how much nearer rows are to their own cluster than to the next one, from -1 to 1; it "
    "falls with the number of features. Stability: the mean Jaccard index of the cluster and the most "
    "similar one of each other seed; below 0.5, the cluster is found by chance. Density at the border: "
    "how dense rows are half way to the nearest other centre, as a share of the density at the centres."
)


@dataclass(frozen=True)
class Separation:
    """Silhouettes of a sample of rows.

    Attributes
    ----------
    clusters : ndarray of shape (c,)
        Clusters with rows in the sample, ascending.
    counts : ndarray of shape (c,)
        Rows of each in the sample.
    own : ndarray of shape (m,)
        Place in `clusters` of each row.
    totals : ndarray of shape (m, c)
        Sums of distances, see `daskcluster.metrics.separation.distance_totals`.
    borders : ndarray of shape (c,)
        Density of rows at the border of each cluster and the one nearest to it, as a share of that at the
        centre of the sparser one. Unlike silhouettes, it does not depend on the number of features.
    neighbours : ndarray of shape (c,)
        Which cluster is nearest to each, by the distance of the centres.
    """

    clusters: np.ndarray
    counts: np.ndarray
    own: np.ndarray
    totals: np.ndarray
    borders: np.ndarray
    neighbours: np.ndarray

    @classmethod
    def of(cls, sample: Sample, centres: np.ndarray) -> Separation | None:
        """Return the separation of a sample.

        None for rows with weights or missing values, and unless there are 2 to 500 clusters and more rows.
        """
        rows = sample.rows
        clusters, own = np.unique(sample.labels, return_inverse=True)
        finite = np.isfinite(rows.data if isinstance(rows, SparseRows) else rows).all()
        if sample.weighted or not finite:
            return None
        if not 2 <= len(clusters) <= min(MOST_COMPARED, len(own) - 1):
            return None
        totals = distance_totals(rows, own, sample.metric)
        middle = np.asarray(centres[clusters], np.float64)
        squares = cdist(middle, middle, "sqeuclidean")
        np.fill_diagonal(squares, np.inf)
        near = squares.argmin(axis=1)
        borders = _borders(rows, own, middle, near)
        return cls(clusters, np.bincount(own), own, totals, borders, clusters[near])

    @cached_property
    def silhouettes(self) -> np.ndarray:
        """Silhouette of every row of the sample, (m,)."""
        return silhouettes_of_totals(self.totals, self.own, self.counts)

    @property
    def mean(self) -> float:
        return float(self.silhouettes.mean())

    @cached_property
    def by_cluster(self) -> np.ndarray:
        """Mean silhouette of each of `clusters`, (c,)."""
        return np.asarray(np.bincount(self.own, self.silhouettes) / self.counts)

    @cached_property
    def merged(self) -> tuple[int, float] | None:
        """Number of clusters, and mean silhouette, after merges that raise it; None if none does.

        Clusters merge by average linkage of the sample's rows, which needs no more than `totals`. The
        number is the largest local maximum that gains two thirds of what the best one gains.
        """
        c = len(self.clusters)
        if not 3 <= c <= _MOST_MERGED:
            return None
        sums = np.zeros((c, c))
        np.add.at(sums, self.own, self.totals)
        between = sums / (self.counts[:, None] * self.counts)
        between = (between + between.T) / 2.0
        np.fill_diagonal(between, 0.0)
        tree = linkage(squareform(between, checks=False), "average")
        tried = []
        for n_clusters in range(c - 1, 1, -1):
            groups = fcluster(tree, n_clusters, "maxclust") - 1  # ties may merge more
            if groups.max() == 0:
                break
            onto = np.zeros((c, int(groups.max()) + 1))
            onto[np.arange(c), groups] = 1.0
            counts = (self.counts @ onto).astype(np.int64)
            found = silhouettes_of_totals(self.totals @ onto, groups[self.own], counts).mean()
            tried.append((len(counts), float(found)))
        gain = max((found for _, found in tried), default=-1.0) - self.mean
        if gain < _LEAST_GAIN:
            return None
        values = np.array([self.mean, *(found for _, found in tried), -1.0])
        peaks = (values[1:-1] > values[:-2]) & (values[1:-1] >= values[2:])
        enough = values[1:-1] >= self.mean + 2.0 / 3.0 * gain
        return tried[int(np.argmax(peaks & enough))]

    def verdict(self, stability: Stability | None) -> str:
        """Return in a few sentences how well the clusters are separated, and whether they are stable."""
        c, words = len(self.clusters), [border_in_words(density) for density in self.borders]
        clear, open_ = words.count("well separated"), words.count("no border")
        over, verb = c - clear - open_, "is" if clear == 1 else "are"
        parts = [
            f"{clear} of {c} clusters {verb} well separated from the nearest other one",
            f"{over} overlap{'s' * (over == 1)} with it" if over else "",
            f"{open_} {'has' if open_ == 1 else 'have'} no border with it" if open_ else "",
        ]
        text = ", ".join(part for part in parts if part) + "."
        if clear == c:
            text = f"All {c} clusters are well separated."
        if open_ and self.merged is not None:
            fewer, silhouette = self.merged
            text += (
                f" k = {c} may be too large: merged to {fewer}, the mean silhouette rises from "
                f"{self.mean:.2f} to {silhouette:.2f}."
            )
        if stability is not None and stability.agreement < DISSOLVED:
            text += " Other seeds find other clusters: raise n_init, and do not rely on those that differ."
        return text

    def table(self, weights: np.ndarray, stability: Stability | None) -> Table:
        """Return the figures of the largest clusters."""
        rows = []
        for place in self._shown(weights):
            cluster, density = int(self.clusters[place]), float(self.borders[place])
            stable = "" if stability is None else f"{stability.by_cluster[cluster]:.2f}"
            words = border_in_words(density)
            if words != "well separated":
                words += f" with {self.neighbours[place]}"
            figures = (f"{self.by_cluster[place]:.2f}", stable, f"{density:.2f}")
            rows.append((str(cluster), f"{self.counts[place]:,}", *figures, words))
        return Table(rows, _HEADER, _NOTE, ends_in_words=True)

    def _shown(self, weights: np.ndarray) -> list[int]:
        """Return the places of the largest clusters."""
        places = {int(cluster): place for place, cluster in enumerate(self.clusters)}
        return [places[j] for j in largest(weights, _MOST_SHOWN) if j in places]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "silhouette": self.mean,
            "clusters": self.clusters.tolist(),
            "sampled": self.counts.tolist(),
            "silhouettes": self.by_cluster.tolist(),
            "densities_at_border": self.borders.tolist(),
            "nearest_clusters": self.neighbours.tolist(),
        }

    def chart(self, weights: np.ndarray) -> Chart:
        """Return the silhouettes of the largest clusters, each sorted."""
        places = self._shown(weights)

        def paint(axes: Any) -> None:
            for height, place in enumerate(places):
                values = self.silhouettes[self.own == place]
                share = np.linspace(0.0, 1.0, _QUANTILES)
                curve = np.quantile(values, share)
                axes.fill_betweenx(height + 0.8 * share - 0.4, 0.0, curve, color=BLUE, linewidth=0)
            axes.axvline(self.mean, color="#d55e00", linewidth=1)
            axes.set_yticks(range(len(places)), [str(self.clusters[place]) for place in places])
            axes.invert_yaxis()
            axes.set_ylabel("cluster")
            axes.set_xlabel(
                f"silhouettes of its rows, sorted; the line is their mean, {self.mean:.2f}"
            )

        text = "silhouettes of the sampled rows of each cluster, sorted"
        return plot(text, min(WIDTH, 1.0 + 0.24 * len(places)), paint)


def quality(
    sample: Sample, found: Separation | None, stability: Stability | None
) -> list[Table | Chart]:
    """Return in words and figures how well clusters are separated, and how stable they are."""
    of_rows = f"all {sample.n_rows:,} rows"
    if len(sample.labels) < sample.n_rows:
        of_rows = f"a sample of {len(sample.labels):,} of {sample.n_rows:,} rows"
    facts = []
    if found is not None:
        facts.append(("in words", found.verdict(stability)))
        facts.append(("mean silhouette", f"{found.mean:.3f}, of {of_rows}"))
    if stability is not None:
        text = f"{stability.agreement:.3f}: the mean adjusted Rand index of the clusters and those that "
        text += f"k-means finds from {stability.n_others} other seeds in {stability.n_rows:,} of the rows"
        facts.append(("stability over seeds", text))
    return [Table(facts)] if facts else []


def _borders(
    rows: sparse_rows.Rows, own: np.ndarray, centres: np.ndarray, near: np.ndarray
) -> np.ndarray:
    """Return the density at the border of each cluster and its nearest one, (c,); see `Separation`."""
    found = np.zeros(len(centres))
    for one, other in enumerate(near):
        line = centres[other] - centres[one]
        length = float(line @ line)
        places = []
        for cluster, from_end in ((one, False), (other, True)):
            # Where the rows project on the line from one centre, at 0, to the other, at 1.
            part: Any = rows[np.flatnonzero(own == cluster)]
            if isinstance(part, SparseRows):
                part = sparse.csr_array((part.data, part.indices, part.offsets), shape=part.shape)
            else:
                part = np.asarray(part, np.float64)
            at = (np.asarray(part @ line) - float(centres[one] @ line)) / (length or 1.0)
            places.append(1.0 - at if from_end else at)
        border = sum(int((np.abs(place - 0.5) < _NEAR_LINE).sum()) for place in places)
        middle = min(int((np.abs(place) < _NEAR_LINE).sum()) for place in places)
        found[one] = border / max(middle, 1)
    return found


def map_of_rows(rows: sparse_rows.Rows, labels: np.ndarray, weights: np.ndarray) -> Chart | None:
    """Return sampled rows in the plane of their main axes, in the colours of the largest clusters."""
    most = min(_MOST_POINTS, max(2, _MOST_VALUES // rows.shape[1]), len(rows))
    if len(rows) < 2 or rows.shape[1] < 2:
        return None
    # Every so many rows of the sample are a sample.
    at = np.arange(most) * len(rows) // most
    labels = labels[at]
    points, shares = plane(dense_rows(rows[at]), np.ones(most))
    coloured = largest(weights, _COLOURED)

    def paint(axes: Any) -> None:
        from matplotlib import colormaps

        name = "tab20" if len(coloured) > 10 else "tab10"
        palette = [colormaps[name](place) for place in range(len(coloured))]
        rest = ~np.isin(labels, coloured)
        dots: Mapping[str, Any] = {"s": 8, "linewidths": 0, "alpha": 0.7, "rasterized": True}
        axes.scatter(*points[rest].T, color=GREY, **dots)
        for cluster, colour in zip(coloured, palette, strict=True):
            axes.scatter(*points[labels == cluster].T, color=[colour], **dots)
        for cluster in largest(weights, MOST_NUMBERED):
            if (labels == cluster).any():
                x, y = np.median(points[labels == cluster], axis=0)
                box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.75, "lw": 0}
                axes.annotate(str(cluster), (x, y), ha="center", va="center", fontsize=7, bbox=box)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(f"first main axis, {shares[0]:.0%} of the variance of the rows")
        axes.set_ylabel(f"second, {shares[1]:.0%}")

    return plot("sampled rows in the plane of their two main axes, coloured by cluster", 4.8, paint)


MOST_PROFILES = 30
"""Number of largest clusters whose profiles are shown."""
_SHOWN = 3
_NEAR = 0.25
"""A difference below a quarter of a standard deviation is not worth a word."""


def differences(centres: np.ndarray, weights: np.ndarray, within: float = 0.0) -> np.ndarray:
    """Return how far each centre lies from the mean of all rows, in standard deviations.

    Parameters
    ----------
    centres : ndarray of shape (k, d)
        On the scale of the fit.
    weights : ndarray of shape (k,)
    within : float
        Variance of a feature within clusters, the same for all, as k-means has it. So a feature in which
        centres hardly differ sets no cluster apart.

    Returns
    -------
    ndarray of shape (k, d), float64
        Zero for features that all centres share.

    Examples
    --------
    >>> differences(np.array([[0.0, 7.0], [2.0, 7.0]]), np.ones(2)).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    share = np.asarray(weights, np.float64)
    share = share / share.sum() if share.sum() > 0 else np.full(len(centres), 1 / len(centres))
    gaps = np.asarray(centres, np.float64) - share @ np.asarray(centres, np.float64)
    width = np.sqrt(share @ (gaps * gaps) + within)
    return np.divide(gaps, width, out=np.zeros_like(gaps), where=width > 0)


def in_words(row: np.ndarray, names: tuple[str, ...], values: np.ndarray) -> str:
    """Return the largest differences of one cluster, with the values of its centre.

    Examples
    --------
    >>> names = "height", "age", "income"
    >>> in_words(np.array([0.1, -0.8, 2.06]), names, np.array([1.7, 31.25, 90_030.4]))
    'income 90,030 (+2.1), age 31.25 (-0.8)'
    """
    order = np.argsort(-np.abs(row), kind="stable")[:_SHOWN]
    shown = [
        f"{names[j]} {digits(values[j])} ({row[j]:+.1f})" for j in order if abs(row[j]) >= _NEAR
    ]
    return ", ".join(shown) or "like the average row"


def digits(value: float) -> str:
    """Return a value with four digits, or all of its integer part up to a billion.

    Examples
    --------
    >>> [digits(value) for value in (90_030.4, 0.01234, -3.0, 1e12)]
    ['90,030', '0.01234', '-3', '1e+12']
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


MOST_CLUSTERS = 200
"""Rows of the table of clusters; charts show all of them."""
MOST_EXAMPLES = 20
"""Number of largest clusters whose nearest and farthest rows are shown."""
_SHOWN_VALUES = 8


@dataclass(frozen=True)
class Clusters:
    """Size, weight and cost of every cluster on some rows.

    Attributes
    ----------
    sizes, weights, costs : ndarray of shape (k,)
        The weights are the sizes, if rows have no weights.
    title : str
    facts : rows of texts
        Text next to the charts, e.g. the inertia on these rows.
    examples : ClusterExamples, optional
        Nearest and farthest rows; None if the centres are not points in the space of the rows.
    sample : Sample, optional
        Sample of the rows, to show how well clusters are separated.
    stability : Stability, optional
        Stability of clusters over seeds.
    """

    sizes: np.ndarray
    weights: np.ndarray
    costs: np.ndarray
    title: str = "Clusters in these rows"
    facts: Rows = field(default_factory=list)
    examples: ClusterExamples | None = None
    sample: Sample | None = None
    stability: Stability | None = None

    @classmethod
    def of(cls, scores: ScoreStatistics, *, weighted: bool) -> Clusters:
        """Return the clusters of rows with these scores."""
        facts = [("rows", f"{scores.sizes.sum():,}"), ("inertia", f"{scores.inertia:,.10g}")]
        weights, costs = scores.cluster_weights(weighted=weighted), scores.costs.sum(axis=0)
        return cls(scores.sizes, weights, costs, facts=facts)


@dataclass(frozen=True)
class Report(Pages):
    """A report on a model.

    Attributes
    ----------
    model : Model
    title : str
        Usually the model's URL.
    data : Clusters, optional
        The model's clusters on other rows than those of the fit.
    facts : rows of texts
        Extra lines of the summary.
    """

    model: Model
    title: str
    data: Clusters | None = None
    facts: Rows = field(default_factory=list)

    def sections(self) -> list[Section]:
        """Return all sections that are not empty."""
        model = self.model
        convergence = _present(charts.convergence(model.history, model.n_rows))
        given = [(name, format_field(name, value)) for name, value in model.parameters.items()]
        found = [
            Section("What sets the clusters apart", self._profiles()),
            Section("How well the clusters are separated", self._quality()),
            Section("Centres", self._centres()),
            *self._of_rows(),
            Section("Summary of the fit", [Table([*rows_of_model(model), *self.facts])]),
            Section("Convergence", convergence, technical=True),
            Section("Parameters", [Table(given)] if given else [], technical=True),
        ]
        return [section for section in found if section.parts]

    def _fitted(self) -> Clusters | None:
        # Components of a mixture share rows, so they have no sizes and costs.
        if not isinstance(self.model, KMeansModel):
            return None
        model = self.model
        # An imported model has none.
        if model.inertia > 0 and model.sizes.any() and not model.costs.any():
            return None
        return Clusters(model.sizes, model.weights, model.costs, "Clusters in the fit")

    def _profiles(self) -> list[Table | Chart]:
        """Return sizes, and what sets each cluster apart by the names of its features."""
        clusters, model = self.data or self._fitted(), self.model
        if clusters is None or model.n_clusters < 2:
            return []
        numbered = tuple(f"feature {j}" for j in range(model.n_features))
        names = getattr(model, "feature_names", None) or numbered
        weights = clusters.weights
        total = float(np.sum(weights))
        within = float(np.sum(clusters.costs)) / total / model.n_features if total > 0 else 0.0
        found, centres = differences(model.centres, weights, within), model.centres_of_data
        shown = largest(weights, MOST_PROFILES)
        rows = [
            (
                str(cluster),
                f"{int(clusters.sizes[cluster]):,}",
                f"{weights[cluster] / total:.1%}",
                in_words(found[cluster], names, centres[cluster]),
            )
            for cluster in shown
        ]
        rest = int((weights > 0).sum()) - len(shown)
        note = (
            "The centre in the units of the data, and its distance from the mean of all rows in standard "
            "deviations, largest first."
        )
        note += f" {rest:,} smaller clusters are not listed." if rest > 0 else ""
        header = ("cluster", "rows", "share", "what sets it apart")
        return [Table(rows, header, note, ends_in_words=True)]

    @cached_property
    def separation(self) -> Separation | None:
        """How well clusters are separated on a sample of the data; None without one."""
        if self.data is None or self.data.sample is None:
            return None
        return Separation.of(self.data.sample, self.model.centres)

    def _quality(self) -> list[Table | Chart]:
        if self.data is None or self.data.sample is None:
            return []
        sample, weights, stability = self.data.sample, self.data.weights, self.data.stability
        found = self.separation
        parts = quality(sample, found, stability)
        parts += _present(map_of_rows(sample.rows, sample.labels, weights))
        if found is not None:
            parts += [found.chart(weights), found.table(weights, stability)]
        return parts

    def _centres(self) -> list[Table | Chart]:
        if self.data is not None and self.data.sample is not None:
            return []  # the map of rows shows where the centres are
        clusters = self.data or self._fitted()
        weights = np.ones(self.model.n_clusters) if clusters is None else clusters.weights
        return _present(charts.map_of_centres(self.model.centres, weights))

    def _of_rows(self) -> list[Section]:
        """Return the figures of the clusters, in the fit and in the data, and example rows."""
        found = [one for one in (self._fitted(), self.data) if one is not None]
        # Those of the data come first; the same figures of the fit are folded.
        sections = [
            Section(one.title, _of_clusters(one), technical=one is not found[-1])
            for one in reversed(found)
        ]
        if self.data is not None and self.data.examples is not None:
            examples = self.data.examples
            shown = {i: undone(self.model.scaling, row) for i, row in examples.rows.items()}
            parts = _examples(self.data, replace(examples, rows=shown))
            sections.append(Section("Nearest and farthest rows", parts))
        return sections

    def as_dict(self) -> dict[str, Any]:
        """Return the figures of the report as plain JSON values."""
        model, clusters = self.model, [self._fitted(), self.data]
        return {
            "title": self.title,
            "summary": dict([*rows_of_model(model), *self.facts]),
            "parameters": dict(model.parameters),
            "history": [dict(record) for record in model.history],
            "clusters": {one.title: _numbers_of(one) for one in clusters if one is not None},
            "separation": None if self.separation is None else self.separation.as_dict(),
        }


def _present(*parts: Chart | None) -> list[Table | Chart]:
    return [part for part in parts if part is not None]


def _of_clusters(found: Clusters) -> list[Table | Chart]:
    weights, total = found.weights, float(np.sum(found.weights))
    means = np.divide(found.costs, weights, out=np.zeros(len(weights)), where=weights > 0)
    rest = len(weights) - MOST_CLUSTERS
    listed = Table(
        [
            (
                str(cluster),
                f"{found.sizes[cluster]:,}",
                f"{weights[cluster]:,.10g}",
                f"{weights[cluster] / total if total > 0 else 0.0:.2%}",
                f"{means[cluster]:,.6g}",
            )
            for cluster in largest_first(weights)[:MOST_CLUSTERS]
        ],
        header=("cluster", "rows", "weight", "share", "mean squared distance"),
        note=f"{rest:,} smaller clusters are not listed." if rest > 0 else "",
    )
    facts: list[Table | Chart] = [Table(found.facts)] if found.facts else []
    return [*facts, charts.sizes(found.weights), listed]


def _examples(clusters: Clusters, examples: ClusterExamples) -> list[Table | Chart]:
    shown = largest(clusters.weights, MOST_EXAMPLES)
    ends = (("nearest", examples.found.nearest), ("farthest", examples.found.farthest))
    tables: list[Table | Chart] = []
    for name, ranked in ends:
        lines = []
        for cluster in shown:
            indices, away = ranked.of(cluster)
            values = examples.rows.get(int(indices[0])) if len(indices) else None
            ids = ", ".join(examples.ids.get(int(i), f"{i:,}") for i in indices)
            begins = "" if values is None else ", ".join(map(digits, values[:_SHOWN_VALUES]))
            lines.append((str(cluster), ids, ", ".join(f"{one:.4g}" for one in away), begins))
        header = ("cluster", f"{name} rows", "their distances", f"the {name} row begins")
        tables.append(Table(lines, header))
    return tables


def _numbers_of(found: Clusters) -> dict[str, Any]:
    values: dict[str, Any] = {
        "sizes": found.sizes.tolist(),
        "weights": np.asarray(found.weights).tolist(),
        "costs": np.asarray(found.costs).tolist(),
    }
    if found.stability is not None:
        values["stability"] = {
            "agreement": found.stability.agreement,
            "by_cluster": [None if np.isnan(v) else v for v in found.stability.by_cluster.tolist()],
        }
    if found.examples is not None:
        for name in ("nearest", "farthest"):
            ranked: RankedRows = getattr(found.examples.found, name)
            values[name] = {
                "cluster": ranked.labels.tolist(),
                "row": ranked.rows.tolist(),
                "squared_distance": ranked.sqdist.tolist(),
            }
    return values
