"""Plots of comparisons: groups of bars, and lines over a size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
"""Distinguishable by everyone (Okabe and Ito)."""


@dataclass(frozen=True)
class Bars:
    """Groups of bars, one bar for each program of a group.

    Attributes
    ----------
    what : str
        Label of the axis.
    groups : mapping of str to mapping of str to float
    """

    what: str
    groups: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Lines:
    """Curves over a size, each a pair of equally long sequences."""

    title: str
    size: str
    what: str
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]


def draw_bars(
    name: str, text: str, bars: Bars, folder: Path | None, *, line: float | None = None
) -> Figure | Note:
    """Write a plot of bars with a dashed line at the target; return the reference to it."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    programs = list(dict.fromkeys(key for group in bars.groups.values() for key in group))
    width = 0.8 / max(1, len(programs))
    with canvas_of(name, (1.2 + 1.1 * len(bars.groups), 2.2)) as canvas:
        axes = canvas.subplots()
        for i, program in enumerate(programs):
            have = [j for j, group in enumerate(bars.groups.values()) if program in group]
            values = [group[program] for group in bars.groups.values() if program in group]
            places = np.array(have) + (i - (len(programs) - 1) / 2) * width
            axes.bar(places, values, width, label=program, color=PALETTE[i % len(PALETTE)])
        if line is not None:
            axes.axhline(line, color="#000000", linewidth=0.8, linestyle="--")
        axes.set_xticks(range(len(bars.groups)), list(bars.groups), fontsize=6)
        axes.set_ylabel(bars.what)
        _tidy(axes)
        if programs:
            legend(canvas, np.array([axes]))
        return save(canvas, folder / name, text)


def draw_lines(name: str, text: str, panels: Sequence[Lines], folder: Path | None) -> Figure | Note:
    """Write panels of curves on logarithmic axes; return the reference to the plot."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with canvas_of(name, (2.3 * columns, 1.9 * rows + 0.4)) as canvas:
        grid = canvas.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            for i, (program, (sizes, values)) in enumerate(panel.curves.items()):
                axes.loglog(
                    sizes, values, "o-", markersize=2.5, linewidth=1, label=program,
                    color=PALETTE[i % len(PALETTE)],
                )  # fmt: skip
            axes.set_title(panel.title, fontsize=8)
            axes.set_xlabel(panel.size)
            axes.set_ylabel(panel.what)
            _tidy(axes)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        legend(canvas, grid)
        return save(canvas, folder / name, text)


def _tidy(axes: Any) -> None:
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.set_axisbelow(True)
    axes.tick_params(width=0.5, length=2)
