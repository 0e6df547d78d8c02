"""How well clusters are separated: silhouettes of a sample, in words, and a map of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, squareform

from daskcluster.chunkwise.examples import Sample
from daskcluster.metrics.agreement import DISSOLVED, Stability
from daskcluster.metrics.separation import distance_totals, silhouettes_of_totals
from daskcluster.models.balance import largest
from daskcluster.reports.charts import BLUE, GREY, MOST_NUMBERED, WIDTH, Chart, plane, plot
from daskcluster.reports.tables import Table
from daskcluster.sparse_rows import Rows, SparseRows, dense_rows

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

_NEAR = 0.15
"""Half the width of the bands in which rows are counted, as a share of the distance of two centres."""
_CLEAR, _NO_BORDER = 0.25, 0.8
"""Densities at the border of two normal distributions whose means are 4 and 2.7 deviations apart."""


def in_words(density: float) -> str:
    """Return what the density at the border of two clusters says.

    Examples
    --------
    >>> in_words(0.1), in_words(0.5), in_words(1.2)
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
        c, words = len(self.clusters), [in_words(density) for density in self.borders]
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
            words = in_words(density)
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


def _borders(rows: Rows, own: np.ndarray, centres: np.ndarray, near: np.ndarray) -> np.ndarray:
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
        border = sum(int((np.abs(place - 0.5) < _NEAR).sum()) for place in places)
        middle = min(int((np.abs(place) < _NEAR).sum()) for place in places)
        found[one] = border / max(middle, 1)
    return found


def map_of_rows(rows: Rows, labels: np.ndarray, weights: np.ndarray) -> Chart | None:
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
