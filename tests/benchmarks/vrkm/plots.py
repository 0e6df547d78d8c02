"""Figures 3, 6 and 7 as plots: loss above the best loss by epochs or seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import canvas_of, save, why_not
from tests.benchmarks.vrkm.problems import Problem
from tests.benchmarks.vrkm.programs import Outcome

PANEL_INCHES = (2.5, 2.1)
TOP = 1.0
"""Top of the axis; diverged fits leave the panel."""
BOTTOM = 1e-4


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
