"""Figures 3, 5, 6 and 7 as plots: losses by epochs, seconds or distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not
from tests.benchmarks.vrkm.problems import Problem
from tests.benchmarks.vrkm.programs import AT_TUNED, Outcome

PANEL_INCHES = (2.5, 2.1)
TOP = 1.0
"""Top of the axis; diverged fits leave the panel."""
BOTTOM = 1e-4

COLOURS = {
    "batch": "#000000",
    "mini-batch": "#e69f00",
    "sgd": "#cc79a7",
    "growbatch-rho": "#009e73",
    "vrkm": "#56b4e9",
    "vrkm++": "#0072b2",
    AT_TUNED: "#d55e00",
}
"""Of the programs; distinguishable by everyone (Okabe and Ito)."""
LINEAR = 1e-3
"""Losses this near that of batch k-means, above or below, are on the linear part of the axis."""
RANGE = (-4 * LINEAR, 0.3)
POINTS = 150


@dataclass(frozen=True)
class Sweep:
    """Fits that differ in one setting.

    Attributes
    ----------
    title : str
    outcomes : mapping
        By value of the setting, in the order of the colours.
    against : {"epochs", "seconds"}
    """

    title: str
    outcomes: Mapping[str, Outcome]
    against: str = "epochs"


def draw_losses(
    found: Mapping[str, Mapping[str, Sequence[Outcome]]], folder: Path | None
) -> Figure | Note:
    """Write Figure 5, one column a set; return the reference to it, or why there is none."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    name = "vrkm-losses.svg"
    width, height = PANEL_INCHES
    with canvas_of(name, (width * len(found), 2 * height + 0.35)) as canvas:
        grid = canvas.subplots(2, len(found), sharey=True, squeeze=False)
        for column, (title, runs) in zip(grid.T, found.items(), strict=True):
            column[0].set_title(title, fontsize=8)
            for axes, spent in zip(column, ("seconds", "distances"), strict=True):
                _follow(axes, runs, spent)
                axes.set_xlabel("distances / n k" if spent == "distances" else spent)
        for axes in grid[:, 0]:
            axes.set_ylabel("(loss - batch's) / batch's")
        legend(canvas, grid, columns=4)
        text = (
            "Loss of each program above the last loss of batch k-means by seconds and by distances"
        )
        return save(canvas, folder / name, text)


def _follow(axes: Any, runs: Mapping[str, Sequence[Outcome]], spent: str) -> None:
    for name, outcomes in runs.items():
        pairs = zip(outcomes, runs["batch"], strict=False)
        curves = [
            (getattr(one, spent), np.asarray(one.losses) / batch.loss - 1) for one, batch in pairs
        ]
        if all(len(x) for x, _ in curves):
            axes.plot(*mean_curve(curves), label=name, color=COLOURS[name], linewidth=1.0)
    axes.axhline(0, color="#999999", linewidth=0.5, zorder=0)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=LINEAR)
    axes.set_ylim(*RANGE)
    axes.minorticks_off()
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.tick_params(width=0.5, length=2)


def mean_curve(curves: Sequence[tuple[Sequence[float], np.ndarray]]) -> tuple[np.ndarray, Any]:
    """Return the mean of curves from the first point in all to the last in any; an ended one stays."""
    begin = max(next(value for value in x if value > 0) for x, _ in curves)
    grid = np.geomspace(begin, max(x[-1] for x, _ in curves), POINTS)
    return grid, np.mean([np.interp(grid, x, y) for x, y in curves], axis=0)


def draw_sweeps(problem: Problem, panels: Sequence[Sweep], folder: Path | None) -> Figure | Note:
    """Write the panels side by side; return the reference to the plot, or why there is none."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    name = f"vrkm-{problem.name}.svg"
    best = min(min(one.losses) for panel in panels for one in panel.outcomes.values())
    width, height = PANEL_INCHES
    with canvas_of(name, (width * len(panels), height)) as canvas:
        grid = canvas.subplots(1, len(panels), sharey=True, squeeze=False)
        for axes, panel in zip(grid[0], panels, strict=True):
            _fill(axes, panel, best)
        grid[0, 0].set_ylabel("(loss - best) / best")
        canvas.tight_layout()
        text = f"VRKM++ on {problem.name}, {problem.shape}, T = n and eta = K / n unless varied"
        return save(canvas, folder / name, text)


def _fill(axes: Any, panel: Sweep, best: float) -> None:
    import matplotlib as mpl

    colours = mpl.colormaps["viridis"](np.linspace(0, 0.92, len(panel.outcomes)))
    for colour, (name, outcome) in zip(colours, panel.outcomes.items(), strict=True):
        x = outcome.seconds if panel.against == "seconds" else np.arange(len(outcome.losses))
        y = np.maximum(np.asarray(outcome.losses) / best - 1.0, BOTTOM)
        axes.plot(x, y, label=name, color=colour, linewidth=1.0)
    axes.set_yscale("log")
    axes.set_ylim(BOTTOM, TOP)
    axes.set_title(panel.title, fontsize=8)
    axes.set_xlabel(panel.against)
    axes.minorticks_off()
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.tick_params(width=0.5, length=2)
    axes.legend(frameon=False, fontsize=5.5, loc="upper right")
