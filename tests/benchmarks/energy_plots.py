"""Plots of the energy above the best energy: means and standard deviations over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.energy_runs import mean_and_deviation
from tests.benchmarks.harness.energy import Run
from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not

COLOURS = {
    "lloyd": "#999999",
    "yinyang": "#009e73",
    "hamerly": "#009e73",
    "mbatch": "#e69f00",
    "nmbatch": "#0072b2",
    "scikit-learn": "#cc79a7",
    "with bounds": "#0072b2",
    "without bounds": "#d55e00",
    "rho = 0.1": "#440154",
    "rho = 1": "#3b528b",
    "rho = 10": "#21918c",
    "rho = 100": "#5ec962",
    "rho = 1000": "#e0c300",
}
"""Distinguishable by everyone (Okabe and Ito); thresholds from dark to light."""
LEAST_TOP = 0.02
"""Least top of the energy axis, so that tiny differences do not look large."""
POINTS = 40

PANEL_INCHES = (2.3, 1.9)


@dataclass(frozen=True)
class Band:
    """A curve with its standard deviation.

    Attributes
    ----------
    name : str
        Its first words up to a comma choose the colour; after a comma, dashes.
    x, mean, deviation : ndarray of shape (p,)
    """

    name: str
    x: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    def numbers(self) -> dict[str, list[float]]:
        """Return the numbers of the curve, as lists."""
        return {name: getattr(self, name).tolist() for name in ("x", "mean", "deviation")}

    @classmethod
    def of(cls, name: str, numbers: Mapping[str, Sequence[float]]) -> Band:
        """Return the curve of these numbers."""
        return cls(name, *(np.asarray(numbers[one]) for one in ("x", "mean", "deviation")))


@dataclass(frozen=True)
class EnergyPanel:
    """Bands that share axes.

    Attributes
    ----------
    title, x_label : str
    top : float
        Where the axis of (energy - best) / best ends; starts are far above what is of interest.
    """

    title: str
    x_label: str
    bands: Sequence[Band]
    top: float


def curve(name: str, runs: Sequence[Run], best: float, axis: str, most: float = np.inf) -> Band:
    """Return the mean curve of a program, from the first time in all runs to the last in any.

    A run that has ended keeps its last energy. No time is later than `most`.
    """
    spent = [getattr(run, axis) for run in runs]
    last = min(most, max(one[-1] for one in spent))
    budget = np.geomspace(max(one[1] for one in spent), last, POINTS)
    return Band(name, budget, *mean_and_deviation(runs, best, budget, axis))


def curves_panel(title: str, axis: str, bands: Sequence[Band]) -> EnergyPanel:
    """Return a panel whose axis shows the ends of all curves, and no more than all of them."""
    highest = [band.mean + band.deviation for band in bands]
    ends = max(float(one[-1]) for one in highest)
    top = min(3 * ends, 1.1 * max(float(one.max()) for one in highest))
    return EnergyPanel(title, axis, bands, top=max(LEAST_TOP, top))


def draw_energies(
    name: str, text: str, rows_of_panels: Sequence[Sequence[EnergyPanel]], folder: Path | None
) -> Figure | Note:
    """Write a grid of panels to `folder`; return the reference to it, or the reason why there is none."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    width, height = PANEL_INCHES
    n_rows, n_columns = len(rows_of_panels), max(len(panels) for panels in rows_of_panels)
    with canvas_of(name, (width * n_columns, height * n_rows + 0.35)) as canvas:
        grid = canvas.subplots(n_rows, n_columns, squeeze=False)
        for line, panels in zip(grid, rows_of_panels, strict=True):
            for axes, panel in zip(line, panels, strict=False):
                _fill(axes, panel)
            for axes in line[len(panels) :]:
                axes.set_axis_off()
            line[0].set_ylabel("(E - E*) / E*")
        legend(canvas, grid, columns=2 * n_columns)
        return save(canvas, folder / name, text)


def _fill(axes: Any, panel: EnergyPanel) -> None:
    for band in panel.bands:
        base, _, dashed = band.name.partition(", ")
        colour = COLOURS[base]
        axes.plot(
            band.x, band.mean, label=band.name, color=colour, linewidth=1.1,
            linestyle="--" if dashed else "-",
        )  # fmt: skip
        low, high = band.mean - band.deviation, band.mean + band.deviation
        axes.fill_between(band.x, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_ylim(0, panel.top)
    axes.set_title(panel.title, fontsize=8)
    axes.set_xlabel(panel.x_label)
    axes.minorticks_off()
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.tick_params(width=0.5, length=2)
