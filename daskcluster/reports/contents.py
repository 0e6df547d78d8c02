"""The contents of a report: sections of tables and charts, the same for every format."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from daskcluster.chunkwise.examples import ClusterExamples, RankedRows, Sample
from daskcluster.chunkwise.feature_scaling import undone
from daskcluster.host import format_bytes
from daskcluster.metrics.agreement import Stability
from daskcluster.models.balance import largest
from daskcluster.models.fitted import KMeansModel, Model
from daskcluster.reports import charts
from daskcluster.reports.charts import WIDTH, Chart, Shape, numbers
from daskcluster.reports.pages import Pages, Section
from daskcluster.reports.separation import Separation, map_of_rows, quality
from daskcluster.reports.tables import (
    Rows,
    Table,
    cluster_rows,
    format_field,
    format_seconds,
    rows_of_model,
)

MOST_PROFILES = 30
"""Number of largest clusters whose profiles are shown."""
MOST_FEATURES = 24
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


def in_words(row: np.ndarray, names: tuple[str, ...]) -> str:
    """Return the largest differences of one cluster, e.g. ``"income +2.1, age -0.8"``.

    Examples
    --------
    >>> in_words(np.array([0.1, -0.8, 2.06]), ("height", "age", "income"))
    'income +2.1, age -0.8'
    """
    order = np.argsort(-np.abs(row), kind="stable")[:_SHOWN]
    shown = [f"{names[j]} {row[j]:+.1f}" for j in order if abs(row[j]) >= _NEAR]
    return ", ".join(shown) or "like the average row"


def telling(found: np.ndarray, weights: np.ndarray, most: int = MOST_FEATURES) -> np.ndarray:
    """Return the features that differ most between clusters, in their own order."""
    reach = np.abs(found[np.asarray(weights) > 0]).max(axis=0, initial=0.0)
    return np.sort(np.argsort(-reach, kind="stable")[:most])


def profiles(found: np.ndarray, weights: np.ndarray, names: tuple[str, ...]) -> Chart | None:
    """Return a heat map of the `differences` of the largest clusters; None for a single one."""
    shown = sorted(largest(weights, MOST_PROFILES))
    if len(shown) < 2:
        return None
    features = telling(found, weights)
    part = found[shown][:, features]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        limit = max(1.0, float(np.abs(part).max()))
        image = axes.imshow(part, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        axes.set_xticks(
            range(len(features)), [names[j][:18] for j in features], rotation=60, ha="right"
        )
        axes.set_yticks(range(len(shown)), [str(cluster) for cluster in shown])
        axes.set_ylabel("cluster")
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.set_label("deviations")

    height = min(WIDTH, 1.8 + 0.22 * len(shown))
    return Chart("heat map of clusters and the features that tell them apart", height, draw)


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
    title : str
    sizes, weights, costs : ndarray of shape (k,)
    facts : rows of texts
        Text next to the charts, e.g. the inertia on these rows.
    examples : ClusterExamples, optional
        Nearest and farthest rows.
    sample : Sample, optional
        Of the rows, to show how well clusters are separated.
    stability : Stability, optional
        Of clusters over seeds.
    """

    title: str
    sizes: np.ndarray
    weights: np.ndarray
    costs: np.ndarray
    facts: Rows = field(default_factory=list)
    examples: ClusterExamples | None = None
    sample: Sample | None = None
    stability: Stability | None = None


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
    image_shape : tuple, optional
        Shape of rows that are images.
    """

    model: Model
    title: str
    data: Clusters | None = None
    facts: Rows = field(default_factory=list)
    image_shape: Shape | None = None

    def sections(self) -> list[Section]:
        """Return all sections that are not empty."""
        model = self.model
        convergence = _present(charts.convergence(model.history, model.n_rows))
        found = [
            Section("What sets the clusters apart", self._profiles()),
            Section("How well the clusters are separated", self._quality()),
            Section("Centres", self._centres()),
            *self._clusters(),
            Section("Summary of the fit", [Table([*rows_of_model(model), *self.facts])]),
            Section("Convergence", convergence, technical=True),
            Section("Where time and bytes went", _effort(model), technical=True),
            Section("Parameters", _parameters(model), technical=True),
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
        return Clusters("Clusters in the fit", model.sizes, model.weights, model.costs)

    def _profiles(self) -> list[Table | Chart]:
        """Return sizes, and what sets each cluster apart by the names of its features."""
        clusters, model = self.data or self._fitted(), self.model
        if clusters is None or self.image_shape is not None or model.n_clusters < 2:
            return []
        numbered = tuple(f"feature {j}" for j in range(model.n_features))
        names = getattr(model, "feature_names", None) or numbered
        weights = clusters.weights
        total = float(np.sum(weights))
        within = float(np.sum(clusters.costs)) / total / model.n_features if total > 0 else 0.0
        found = differences(model.centres, weights, within)
        shown = largest(weights, MOST_PROFILES)
        rows = [
            (
                str(cluster),
                f"{int(clusters.sizes[cluster]):,}",
                f"{weights[cluster] / total:.1%}",
                in_words(found[cluster], names),
            )
            for cluster in shown
        ]
        rest = int((weights > 0).sum()) - len(shown)
        note = "Differences of the centre from the mean of all rows, in standard deviations, largest first."
        note += f" {rest:,} smaller clusters are not listed." if rest > 0 else ""
        header = ("cluster", "rows", "share", "what sets it apart")
        table = Table(rows, header, note, ends_in_words=True)
        return [table, *_present(profiles(found, weights, names))]

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
        clusters = self.data or self._fitted()
        weights = np.ones(self.model.n_clusters) if clusters is None else clusters.weights
        # The map of rows shows where the centres are.
        is_mapped = self.data is not None and self.data.sample is not None
        parts = [] if is_mapped else _present(charts.map_of_centres(self.model.centres, weights))
        if self.image_shape is not None:
            parts.append(
                charts.pictures_of_centres(self.model.centres_of_data, weights, self.image_shape)
            )
        return parts

    def _clusters(self) -> list[Section]:
        found = [one for one in (self._fitted(), self.data) if one is not None]
        # Those of the data come first; the same figures of the fit are folded.
        sections = [
            Section(one.title, _of_clusters(one), technical=one is not found[-1])
            for one in reversed(found)
        ]
        if self.data is not None and self.data.examples is not None:
            shape = self.image_shape
            examples = self.data.examples
            shown = {i: undone(self.model.scaling, row) for i, row in examples.rows.items()}
            parts = _examples(self.data, replace(examples, rows=shown), shape)
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


def _effort(model: Model) -> list[Table | Chart]:
    parts = _present(charts.effort(model.history, model.n_rows))
    seconds = sum(numbers(model.history, "seconds"))
    read = sum(numbers(model.history, "bytes_read"))
    rows = []
    if seconds:
        mean = seconds / len(model.history)
        rows.append(("iterations", f"{format_seconds(seconds)}, {format_seconds(mean)} each"))
    if model.bytes_read:
        others = format_bytes(max(0, model.bytes_read - round(read)))
        rows.append(("read in iterations", format_bytes(round(read))))
        rows.append(("read by seeding and the last pass", others))
    return [*parts, Table(rows)] if rows else parts


def _of_clusters(found: Clusters) -> list[Table | Chart]:
    rows = cluster_rows(found.sizes, found.weights, found.costs)
    rest = len(rows) - MOST_CLUSTERS
    listed = Table(
        [
            (str(cluster), f"{size:,}", f"{weight:,.10g}", f"{share:.2%}", f"{cost:,.6g}")
            for cluster, size, weight, share, cost in rows[:MOST_CLUSTERS]
        ],
        header=("cluster", "rows", "weight", "share", "mean squared distance"),
        note=f"{rest:,} smaller clusters are not listed." if rest > 0 else "",
    )
    facts: list[Table | Chart] = [Table(found.facts)] if found.facts else []
    seen = _present(charts.sizes(found.weights), charts.spread(found.weights, found.costs))
    if found.examples is not None:
        seen += _present(charts.distances(found.examples.found.histogram))
    return [*facts, *seen, listed]


def _examples(
    clusters: Clusters, examples: ClusterExamples, shape: Shape | None
) -> list[Table | Chart]:
    shown = largest(clusters.weights, MOST_EXAMPLES)
    ends = (("nearest", examples.found.nearest), ("farthest", examples.found.farthest))
    if shape is not None:
        charts_of_ends: list[Table | Chart] = []
        for name, ranked in ends:
            found = [ranked.of(cluster)[0].tolist() for cluster in shown]
            pictures = [
                examples.rows[rows[place]] if place < len(rows) else None
                for place in range(examples.found.most)
                for rows in found
            ]
            text = f"the {name} rows of clusters {', '.join(map(str, shown))}"
            charts_of_ends.append(charts.gallery(pictures, shape, len(shown), text))
        return charts_of_ends
    return [
        Table(
            [_example(cluster, ranked, examples) for cluster in shown],
            header=("cluster", f"{name} rows", "their distances", f"the {name} row begins"),
        )
        for name, ranked in ends
    ]


def _example(
    cluster: int, ranked: RankedRows, examples: ClusterExamples
) -> tuple[str, str, str, str]:
    indices, away = ranked.of(cluster)
    values = examples.rows.get(int(indices[0])) if len(indices) else None
    begins = "" if values is None else ", ".join(f"{v:.4g}" for v in values[:_SHOWN_VALUES])
    return (
        str(cluster),
        ", ".join(examples.ids.get(int(i), f"{i:,}") for i in indices),
        ", ".join(f"{one:.4g}" for one in away),
        begins,
    )


def _parameters(model: Model) -> list[Table | Chart]:
    rows = [(name, format_field(name, value)) for name, value in model.parameters.items()]
    return [Table(rows)] if rows else []


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
