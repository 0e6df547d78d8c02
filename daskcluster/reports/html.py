"""A page about a model: one file, no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from daskcluster.models.kinds import Model
from daskcluster.models.kmeans import KMeansModel
from daskcluster.reports.chart import bar_chart, line_chart
from daskcluster.reports.tables import Rows, cluster_rows, format_field, rows_of_model

MOST_CLUSTERS = 200
"""Rows of the table of clusters; charts show all of them."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c2430; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .2rem .9rem .2rem 0; text-align: left; border-bottom: 1px solid #e3e7ec }
td.n, th.n { text-align: right }
svg { width: 100%; max-width: 42rem; height: auto; font-size: 11px; fill: #4a5563 }
.line { fill: none; stroke: #1f6feb; stroke-width: 2 } .dot { fill: #1f6feb } .bar { fill: #1f6feb }
.grid { stroke: #e3e7ec }
"""


@dataclass(frozen=True)
class Clusters:
    """Size, weight and cost of every cluster on some rows.

    Attributes
    ----------
    title : str
    sizes, weights, costs : ndarray of shape (k,)
    facts : rows of texts
        Beside the charts, e.g. the inertia on these rows.
    """

    title: str
    sizes: np.ndarray
    weights: np.ndarray
    costs: np.ndarray
    facts: Rows


def render(
    model: Model, *, title: str, data: Clusters | None = None, facts: Rows | None = None
) -> str:
    """Return the page.

    Parameters
    ----------
    model : Model
    title : str
        Usually the model's URL.
    data : Clusters, optional
        The model on rows of the reader's choice, beside those that it was fitted on.
    facts : rows of texts, optional
        Lines to add to the summary.
    """
    parts = [
        f"<h1>{escape(title)}</h1>",
        "<h2>Summary</h2>",
        _table([*rows_of_model(model), *(facts or [])]),
        _history(model),
        _clusters_of_the_fit(model),
        "" if data is None else _clusters(data),
        _parameters(model),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{cells}</table>"


def _numbers(history: Sequence[dict[str, object]], name: str) -> list[float]:
    values = [record.get(name) for record in history]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _history(model: Model) -> str:
    inertia = line_chart(_numbers(model.history, "inertia"), x_label="iteration", y_label="inertia")
    shift = line_chart(
        _numbers(model.history, "shift"), x_label="iteration", y_label="squared shift", log=True
    )
    return f"<h2>History</h2>{inertia}{shift}" if inertia or shift else ""


def _clusters_of_the_fit(model: Model) -> str:
    # Components of a mixture share rows: they have no sizes and costs of their own.
    if not isinstance(model, KMeansModel):
        return ""
    return _clusters(Clusters("Clusters in the fit", model.sizes, model.weights, model.costs, []))


def _clusters(found: Clusters) -> str:
    rows = cluster_rows(found.sizes, found.weights, found.costs)
    chart = bar_chart(
        [weight for _, _, weight, _, _ in rows], x_label="clusters, largest first", y_label="weight"
    )
    body = "".join(
        f'<tr><td class="n">{cluster}</td><td class="n">{size:,}</td>'
        f'<td class="n">{weight:.10g}</td><td class="n">{share:.2%}</td>'
        f'<td class="n">{cost:.6g}</td></tr>'
        for cluster, size, weight, share, cost in rows[:MOST_CLUSTERS]
    )
    names = ("cluster", "rows", "weight", "share", "mean squared distance")
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    rest = len(rows) - MOST_CLUSTERS
    more = f"<p>{rest:,} smaller clusters are not listed.</p>" if rest > 0 else ""
    facts = _table(found.facts) if found.facts else ""
    return f"<h2>{escape(found.title)}</h2>{facts}{chart}<table><tr>{head}</tr>{body}</table>{more}"


def _parameters(model: Model) -> str:
    if not model.parameters:
        return ""
    rows = [
        (
            name,
            "None"
            if value is None
            else format_field(name, value)
            if _simple(value)
            else str(value),
        )
        for name, value in model.parameters.items()
    ]
    return f"<h2>Parameters</h2>{_table(rows)}"


def _simple(value: object) -> bool:
    return isinstance(value, bool | int | float | str)
