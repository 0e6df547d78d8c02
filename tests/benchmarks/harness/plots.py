"""Small plots with one curve for each program."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.reports import pages as drawing
from tests.benchmarks.harness.parts import Figure, Note

COLOURS = {
    "lloyd": "#999999",
    "hamerly": "#0072b2",
    "yinyang": "#009e73",
    "elkan": "#e69f00",
    "auto": "#000000",
}
"""Distinguishable by everyone (Okabe and Ito)."""

PANEL_INCHES = (2.15, 1.75)
MOST_POINTS = 80
"""Most points drawn for a curve; a panel of this size cannot show more."""


@dataclass(frozen=True)
class Curve:
    """One value for each iteration."""

    name: str
    values: np.ndarray


@dataclass(frozen=True)
class Panel:
    """Curves that share axes; panels of one title stand above each other."""

    title: str
    what: str
    curves: Sequence[Curve]


def draw(
    name: str, text: str, panels: Sequence[Panel], folder: Path | None, *, logarithmic: bool = False
) -> Figure | Note:
    """Write a plot to `folder`; return the reference to it, or the reason why there is none."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    titles = list(dict.fromkeys(panel.title for panel in panels))
    whats = list(dict.fromkeys(panel.what for panel in panels))
    width, height = PANEL_INCHES
    with canvas_of(name, (width * len(titles), height * len(whats) + 0.35)) as canvas:
        grid = canvas.subplots(len(whats), len(titles), sharex="col", sharey="row", squeeze=False)
        for panel in panels:
            axes = grid[whats.index(panel.what), titles.index(panel.title)]
            _fill(axes, panel, logarithmic=logarithmic)
        _label(canvas, grid, titles, whats)
        return save(canvas, folder / name, text)


def why_not(folder: Path | None) -> Note | None:
    """Return the reason why plots cannot be drawn, None if they can."""
    if folder is None:
        return Note("The plot is drawn with --output.")
    return (
        None
        if drawing.can_draw()
        else Note(f"The plot is left out: {drawing.missing_matplotlib()}.")
    )


@contextmanager
def canvas_of(name: str, inches: tuple[float, float]) -> Iterator[Any]:
    """Yield an empty drawing with settings under which the same run gives the same bytes."""
    with drawing.style(name, font_size=7):
        yield drawing.blank(inches)


def _fill(axes: Any, panel: Panel, *, logarithmic: bool) -> None:
    for curve in panel.curves:
        chosen = curve.name == "auto"
        drawn = _drawn(len(curve.values), logarithmic=logarithmic)
        axes.plot(
            drawn + 1,
            curve.values[drawn],
            label=curve.name,
            color=COLOURS[curve.name],
            linewidth=1.4 if not chosen else 0.9,
            linestyle="--" if chosen else "-",
            zorder=3 if chosen else 2,
        )
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.tick_params(width=0.5, length=2)


def _drawn(n_values: int, *, logarithmic: bool) -> np.ndarray:
    """Return indices of the values to draw, evenly along the axis."""
    spaced = np.geomspace if logarithmic else np.linspace
    return np.unique(np.rint(spaced(1, n_values, MOST_POINTS)).astype(np.intp)) - 1


def save(canvas: Any, path: Path, text: str) -> Figure:
    """Write the plot with coordinates cut to hundredths, which makes the file a third as large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = io.StringIO()
    canvas.savefig(written, format="svg", metadata={"Date": None}, facecolor="white")
    # Labels are between tags, and keep their digits.
    text_or_coordinate = r">[^<]*<|(\d\.\d\d)\d+"
    short = re.sub(text_or_coordinate, lambda found: found[1] or found[0], written.getvalue())
    path.write_text(short, encoding="utf-8")
    return Figure(f"{path.parent.name}/{path.name}", text)


def _label(canvas: Any, grid: np.ndarray, titles: Sequence[str], whats: Sequence[str]) -> None:
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize=8)
    for axes, what in zip(grid[:, 0], whats, strict=True):
        axes.set_ylabel(what)
    for axes in grid[-1]:
        axes.set_xlabel("iteration")
    legend(canvas, grid)


def legend(canvas: Any, grid: np.ndarray, columns: int | None = None) -> None:
    """Add one legend for all panels below them, in one row or in `columns` columns."""
    handles = {
        label: handle
        for axes in grid.flat
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = min(columns or len(handles), len(handles))
    canvas.legend(
        handles.values(), handles.keys(), loc="lower center", ncols=columns, frameon=False
    )
    rows = -(-len(handles) // columns)
    canvas.tight_layout(rect=(0, (0.15 + 0.15 * rows) / canvas.get_figheight(), 1, 1))
