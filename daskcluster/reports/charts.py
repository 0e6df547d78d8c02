"""Charts of a model: convergence, sizes, centres in the plane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.models.balance import largest_first

MOST_CENTRES = 1024
"""Number of heaviest centres that determine the axes."""


def plane(centres: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project centres onto their two main axes (principal components, weighted).

    Parameters
    ----------
    centres : ndarray of shape (k, d)
    weights : ndarray of shape (k,)
        If all are zero, all count as one.

    Returns
    -------
    points : ndarray of shape (k, 2)
        Missing axes are zero. The largest entry of each axis is positive.
    shares : ndarray of shape (2,)
        Share of each axis in the variance between the (heaviest) centres.

    Examples
    --------
    >>> import numpy as np
    >>> points, shares = plane(np.array([[0.0, 0, 5], [0, 4, 5], [0, 8, 5]]), np.ones(3))
    >>> points[:, 0].round(9).tolist(), shares.tolist()
    ([-4.0, 0.0, 4.0], [1.0, 0.0])
    """
    masses = np.asarray(weights, np.float64)
    # Scale by the largest, since products of huge numbers would overflow.
    masses = masses / masses.max() if masses.max() > 0 else np.ones(len(centres))
    unit = float(np.abs(centres).max()) or 1.0
    inside = np.asarray(centres, np.float64) / unit
    heaviest = np.sort(np.argsort(-masses, kind="stable")[:MOST_CENTRES])
    share = masses[heaviest] / masses[heaviest].sum()
    wide = inside[heaviest]
    middle = share @ wide
    axes, variances = _axes((wide - middle) * np.sqrt(share)[:, None])
    total = variances.sum()
    points = (inside - middle) @ axes.T * unit
    return points, variances[:2] / total if total > 0 else np.zeros(2)


def _axes(scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two directions (2, d), and all variances (at least two), largest first."""
    _, lengths, directions = np.linalg.svd(scaled, full_matrices=False)
    variances, axes = np.append(lengths**2, [0.0, 0.0]), np.zeros((2, scaled.shape[1]))
    for axis, direction, variance in zip(axes, directions, variances, strict=False):
        if variance > 1e-14 * variances[0]:
            axis[:] = direction * np.sign(direction[np.argmax(np.abs(direction))])
    return axes, variances


BLUE, GREY = "#1f6feb", "#c9d1d9"
WIDTH, NARROW = 8.0, 4.4
"""Width of charts in inches, on a page and on a phone."""
MOST_BARS = 200
MOST_NUMBERED = 40
"""Most clusters whose numbers are drawn in the plane."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    text : str
        Description (alternative text).
    height : float
        Inches, for charts that are `WIDTH` wide.
    draw : callable (figure) -> None
        Draws into a figure or a part of one.
    """

    text: str
    height: float
    draw: Callable[[Any], None]


def plot(text: str, height: float, paint: Callable[[Any], None]) -> Chart:
    """Return a chart of one pair of axes, which `paint` fills."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        paint(axes)
        plain_axes(axes)

    return Chart(text, height, draw)


def convergence(history: Sequence[Record], n_rows: int) -> Chart | None:
    """Return the objective against iterations, rows visited and seconds; None without a history.

    Rows visited, divided by `n_rows`, and seconds are what different algorithms have in common. Batches
    differ in size, so theirs is the mean of squared distances.
    """
    name, has_batches = "inertia", any("batch_size" in one for one in history)
    if any("free_energy" in one for one in history):
        name = "free_energy"
    elif has_batches and any("mean_squared_distance" in one for one in history):
        name = "mean_squared_distance"
    values, validation = numbers(history, name), numbers(history, "validation")
    if not history or len(values) < len(history):
        return None
    label = f"{name} of the batch" if has_batches else name

    against = {
        "iteration": numbers(history, "iteration"),
        "rows visited / n": list(np.cumsum(numbers(history, "n_touched")) / max(1, n_rows)),
        "seconds": list(np.cumsum(numbers(history, "seconds"))),
    }
    known = {what: x for what, x in against.items() if len(x) == len(history)}

    def draw(figure: Any) -> None:
        from matplotlib.ticker import MaxNLocator, StrMethodFormatter

        dots = "o" if len(values) <= 60 else None
        grid = figure.subplots(1, len(known), sharey=True, squeeze=False)[0]
        compared = len(validation) == len(values)
        for axes, (what, x) in zip(grid, known.items(), strict=True):
            # A record has the objective before its step, and the validation after it.
            at = [0, *x[:-1]] if compared else x
            axes.plot(at, values, color=BLUE, linewidth=1.2, marker=dots, markersize=2.5)
            axes.set_xlabel(what)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=what == "iteration"))
            if compared:
                twin = axes.twinx()
                twin.plot(x, validation, color="#d55e00", linewidth=1)
                twin.set_ylabel("validation", color="#d55e00")
            plain_axes(axes)
        grid[0].set_ylabel(label.replace("_", " "))
        grid[0].yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))  # no common factor

    return Chart(f"{label} against {', '.join(known)}", 2.6, draw)


def sizes(weights: np.ndarray) -> Chart:
    """Return the weights of clusters, largest first: bars, or a curve if there are many."""

    def paint(axes: Any) -> None:
        ordered = weights[largest_first(weights)]
        place = np.arange(1, len(ordered) + 1)
        if len(ordered) <= MOST_BARS:
            axes.bar(place, ordered, color=BLUE)
            if len(ordered) <= MOST_NUMBERED:
                axes.set_xticks(place, [str(cluster) for cluster in largest_first(weights)])
            else:
                axes.set_xticks([])
        else:
            axes.plot(place, np.maximum(ordered, 1e-300), color=BLUE)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_ylim(bottom=max(ordered[ordered > 0].min(initial=1.0) / 2, 1e-300))
        numbered = "by number, " if len(ordered) <= MOST_NUMBERED else ""
        axes.set_xlabel(f"clusters, {numbered}largest first")
        axes.set_ylabel("weight")

    return plot("weight of every cluster, largest first", 2.4, paint)


def map_of_centres(centres: np.ndarray, weights: np.ndarray) -> Chart | None:
    """Return centres in the plane of their main axes, areas by weight; None for fewer than two."""
    if len(centres) < 2 or centres.shape[1] < 2:
        return None
    points, shares = plane(centres, weights)

    def paint(axes: Any) -> None:
        largest = float(np.max(weights, initial=0.0)) or 1.0
        area = 4 + (400 if len(points) <= MOST_BARS else 40) * np.maximum(weights, 0.0) / largest
        axes.scatter(*points.T, s=area, color=BLUE, alpha=0.45, linewidths=0)
        if len(points) <= MOST_NUMBERED:
            for number, (x, y) in enumerate(points):
                axes.annotate(str(number), (x, y), ha="center", va="center", fontsize=6)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(f"first main axis, {shares[0]:.0%} of the variance between centres")
        axes.set_ylabel(f"second, {shares[1]:.0%}")

    return plot("centres in the plane of their two main axes, areas by weight", 4.2, paint)


def numbers(history: Sequence[Record], name: str) -> list[float]:
    """Return the values of field `name` from the records that have it."""
    values = [record.get(name) for record in history]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]


def plain_axes(axes: Any) -> None:
    """Draw a thin grid behind the data, and no frame above it or at its right."""
    axes.grid(linewidth=0.4, color=GREY)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
