"""Figures 1 and S.3: error by distances and seconds, mutual information by coreset size."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not
from tests.benchmarks.vc_gmm import sweeps
from tests.benchmarks.vc_gmm.outcomes import Outcome, Setting
from tests.benchmarks.vc_gmm.problems import Problem
from tests.benchmarks.vc_gmm.tables import Compared, mean

COLOURS = {
    "k-means++": "#000000",
    "AFK-MC2": "#999999",
    "var-GMM-S": "#009e73",
    "LWCS": "#e69f00",
    "vc-GMM": "#0072b2",
}
"""Distinguishable by everyone (Okabe and Ito)."""

PANEL_INCHES = (1.9, 1.7)
AXES: dict[str, Callable[[Outcome], float]] = {
    "distances": lambda one: one.distances,
    "seconds of processors": lambda one: one.processor,
}


def lines(problem: Problem) -> dict[str, list[Setting]]:
    """Return the settings of each curve of Figure 1."""
    truncated = sweeps.truncations(problem, "var-GMM-S", problem.n_random)
    return {
        "k-means++": [sweeps.base(problem, "k-means++")],
        "AFK-MC2": sweeps.chains(problem),
        "var-GMM-S": truncated or [sweeps.base(problem, "var-GMM-S")],
        "LWCS": sweeps.coresets(problem, "LWCS"),
        "vc-GMM": sweeps.coresets(problem, "vc-GMM"),
    }


def draw(sets: Sequence[Compared], folder: Path | None) -> Figure | Note:
    """Write the plot, one column per set; return the reference to it, or the reason why there is none."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    shown = [one for one in sets if one.reference and one.problem.sweeps]
    if not shown:
        return Note("The plot follows with the first set.")
    width, height = PANEL_INCHES
    with canvas_of("vc-gmm.svg", (max(4.5, width * len(shown)), 3 * height + 0.35)) as canvas:
        grid = canvas.subplots(3, len(shown), squeeze=False)
        for column, compared in zip(grid.T, shown, strict=True):
            for axes, (name, get) in zip(column, AXES.items(), strict=False):
                _errors(axes, compared, get)
                axes.set_xlabel(name)
            _information(column[2], compared)
            column[0].set_title(compared.problem.name, fontsize=8)
        grid[0, 0].set_ylabel("relative error, %")
        grid[1, 0].set_ylabel("relative error, %")
        grid[2, 0].set_ylabel("NMI with k-means++")
        legend(canvas, grid)
        text = (
            "Relative error against distances and seconds (AFK-MC2: by m, var-GMM-S: by C', LWCS and "
            "vc-GMM: by N'), and mutual information with the partition by k-means++"
        )
        return save(canvas, folder / "vc-gmm.svg", text)


def _errors(axes: Any, compared: Compared, get: Callable[[Outcome], float]) -> None:
    for name, settings in lines(compared.problem).items():
        found = [outcomes for setting in settings if (outcomes := compared.of(setting))]
        x = [mean(outcomes, get) for outcomes in found]
        y = [statistics.fmean(compared.errors(outcomes)) for outcomes in found]
        _line(axes, name, x, y)


def _information(axes: Any, compared: Compared) -> None:
    axes.set_xlabel("N'")
    for name in ("LWCS", "vc-GMM"):
        x, y = [], []
        for setting in sweeps.coresets(compared.problem, name):
            found = [one.nmi for one in compared.of(setting) if one.nmi is not None]
            if found:
                x.append(float(setting.coreset))
                y.append(statistics.fmean(found))
        _line(axes, name, x, y)


def _line(axes: Any, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    axes.plot(x, y, label=name, color=COLOURS[name], linewidth=1.0, marker="o", markersize=2.5)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.tick_params(width=0.5, length=2)
