"""What is drawn of a model: each chart knows how to draw itself into a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.examples import histogram_edges
from daskcluster.models.balance import largest_first
from daskcluster.reports.pictures import Shape, mosaic
from daskcluster.reports.projection import plane

BLUE, GREY = "#1f6feb", "#c9d1d9"
WIDTH = 8.0
"""Inches, of all charts."""
MOST_BARS = 200
MOST_NUMBERED = 40
"""Clusters that have their number beside them in the plane."""
MOST_PICTURES, PICTURE_COLUMNS = 100, 20

Record = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    text : str
        What it shows, for those who cannot see it.
    height : float
        Inches; charts are `WIDTH` wide.
    draw : callable (figure) -> None
        Draws into a figure or a part of one.
    """

    text: str
    height: float
    draw: Callable[[Any], None]


def convergence(history: Sequence[Record], n_rows: int) -> Chart | None:
    """Return the objective against iterations, passes, seconds and GB read; None without a history.

    Passes are rows looked at over `n_rows`: a batch is part of one, and so is an iteration whose bounds
    spare rows.
    """
    name = "free_energy" if any("free_energy" in one for one in history) else "inertia"
    if not history or len(numbers(history, name)) < len(history):
        return None
    label = "inertia of the batch" if any("batch_size" in one for one in history) else name
    against = {
        "iteration": numbers(history, "iteration"),
        "passes": list(np.cumsum(numbers(history, "n_touched")) / max(1, n_rows)),
        "seconds": list(np.cumsum(numbers(history, "seconds"))),
        "GB read": list(np.cumsum(numbers(history, "bytes_read")) / 1e9),
    }
    shown = {
        what: x for what, x in against.items() if len(x) == len(history) and x[-1] > 0 and what
    }
    if not shown:
        return None

    def draw(figure: Any) -> None:
        values, validation = numbers(history, name), numbers(history, "validation")
        grid = figure.subplots(1, len(shown), sharey=True, squeeze=False)
        for axes, (what, x) in zip(grid[0], shown.items(), strict=True):
            _line(axes, x, values)
            axes.set_xlabel(what)
            _readable(axes, whole=what == "iteration")
            if len(validation) == len(values):
                twin = axes.twinx()
                twin.plot(x, validation, color="#d55e00", linewidth=1)
                twin.set_ylabel("validation", color="#d55e00")
        grid[0, 0].set_ylabel(label.replace("_", " "))

    return Chart(f"{label} against {', '.join(shown)}", 2.6, draw)


def effort(history: Sequence[Record], n_rows: int) -> Chart | None:
    """Return seconds, rows looked at and distances of every iteration; None if nothing is known."""
    touched = numbers(history, "n_touched")
    known = {
        "seconds": numbers(history, "seconds"),
        "rows looked at, %": [100.0 * one / max(1, n_rows) for one in touched],
        "distances": numbers(history, "n_distances"),
    }
    shown = {what: y for what, y in known.items() if len(y) == len(history) and any(y)}
    if not shown:
        return None

    def draw(figure: Any) -> None:
        grid = figure.subplots(1, len(shown), squeeze=False)
        for axes, (what, y) in zip(grid[0], shown.items(), strict=True):
            _line(axes, range(1, len(y) + 1), y)
            axes.set_ylim(bottom=0)
            axes.set_ylabel(what)
            axes.set_xlabel("iteration")
            _readable(axes, whole=True)

    return Chart(f"{', '.join(shown)} of every iteration", 2.2, draw)


def sizes(weights: np.ndarray) -> Chart:
    """Return the weights of clusters, largest first: bars, or a curve if there are many."""

    def draw(figure: Any) -> None:
        ordered = weights[largest_first(weights)]
        axes = figure.subplots()
        place = np.arange(1, len(ordered) + 1)
        if len(ordered) <= MOST_BARS:
            axes.bar(place, ordered, color=BLUE)
        else:
            axes.plot(place, np.maximum(ordered, 1e-300), color=BLUE)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_ylim(bottom=max(ordered[ordered > 0].min(initial=1.0) / 2, 1e-300))
        axes.set_xlabel("clusters, largest first")
        axes.set_ylabel("weight")
        _plain(axes)

    return Chart("weight of every cluster, largest first", 2.4, draw)


def spread(weights: np.ndarray, costs: np.ndarray) -> Chart | None:
    """Return the mean squared distance of every cluster beside its weight; None if there is one."""
    full = weights > 0
    if full.sum() < 2:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.scatter(weights[full], costs[full] / weights[full], s=9, color=BLUE, linewidths=0)
        if weights[full].max() > 30 * weights[full].min():
            axes.set_xscale("log")
        axes.set_xlabel("weight of the cluster")
        axes.set_ylabel("mean squared distance")
        _plain(axes)

    return Chart("mean squared distance of every cluster by its weight", 2.6, draw)


def map_of_centres(centres: np.ndarray, weights: np.ndarray) -> Chart | None:
    """Return centres in the plane of their main axes, areas by weight; None if there are no two."""
    if len(centres) < 2 or centres.shape[1] < 2:
        return None
    points, shares = plane(centres, weights)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        largest = float(np.max(weights, initial=0.0)) or 1.0
        area = 4 + (400 if len(points) <= MOST_BARS else 40) * np.maximum(weights, 0.0) / largest
        axes.scatter(*points.T, s=area, color=BLUE, alpha=0.45, linewidths=0)
        if len(points) <= MOST_NUMBERED:
            for number, (x, y) in enumerate(points):
                axes.annotate(str(number), (x, y), ha="center", va="center", fontsize=6)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(f"first main axis, {shares[0]:.0%} of the variance between centres")
        axes.set_ylabel(f"second, {shares[1]:.0%}")
        _plain(axes)

    return Chart("centres in the plane of their two main axes, areas by weight", 4.2, draw)


def distances(histogram: np.ndarray) -> Chart | None:
    """Return how far rows are from their centres; None if there are no rows."""
    if histogram.sum() == 0:
        return None

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        edges, counts = histogram_edges(), histogram[1:]
        used = np.flatnonzero(counts)
        if len(used):
            part = slice(used[0], used[-1] + 1)
            left, right = edges[:-1][part], edges[1:][part]
            axes.bar(left, counts[part], width=right - left, align="edge", color=BLUE)
            axes.set_xscale("log")
        axes.set_xlabel("distance of a row to its centre")
        axes.set_ylabel("rows")
        if histogram[0]:
            axes.set_title(f"{histogram[0]:,} rows are where their centre is", fontsize=8)
        _plain(axes)

    return Chart("histogram of the rows' distances to their centres", 2.4, draw)


def pictures_of_centres(centres: np.ndarray, weights: np.ndarray, shape: Shape) -> Chart:
    """Return the heaviest centres as pictures, largest first."""
    order = largest_first(weights)[:MOST_PICTURES]
    columns = min(PICTURE_COLUMNS, len(order))
    return gallery([centres[j] for j in order], shape, columns, "centres, largest cluster first")


def gallery(rows: Sequence[np.ndarray | None], shape: Shape, columns: int, text: str) -> Chart:
    """Return rows as pictures side by side."""
    whole = mosaic(rows, shape, columns)
    height = min(9.0, WIDTH * whole.shape[0] / whole.shape[1] * min(1.0, columns / 10))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.imshow(whole, interpolation="nearest")
        axes.set_axis_off()

    return Chart(text, max(0.6, height), draw)


def numbers(history: Sequence[Record], name: str) -> list[float]:
    """Return the numbers of that name, of those records that have one."""
    values = [record.get(name) for record in history]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def _line(axes: Any, x: Sequence[float], y: Sequence[float]) -> None:
    dots = "o" if len(y) <= 60 else None
    axes.plot(x, y, color=BLUE, linewidth=1.2, marker=dots, markersize=2.5)
    _plain(axes)


def _readable(axes: Any, *, whole: bool) -> None:
    """Write numbers out, without a factor above the axis; count iterations in whole ones."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))


def _plain(axes: Any) -> None:
    axes.grid(linewidth=0.4, color=GREY)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
