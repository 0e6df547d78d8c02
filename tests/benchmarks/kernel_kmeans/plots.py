"""Plots: Figure 1 (bars of all sets at one batch size) and Figures 2 to 13 (sweeps of a set)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not
from tests.benchmarks.kernel_kmeans.problems import Problem
from tests.benchmarks.kernel_kmeans.programs import (
    BATCH,
    FULL,
    PLAIN,
    TAU,
    TRUNCATED,
    UNTRUNCATED,
    Fitted,
    Program,
)
from tests.benchmarks.kernel_kmeans.tables import Runs

COLOURS = {FULL: "#000000", UNTRUNCATED: "#d55e00", PLAIN: "#999999"}
TAU_COLOURS = {50: "#56b4e9", 100: "#009e73", 200: "#0072b2", 300: "#cc79a7"}
"""Distinguishable by everyone (Okabe and Ito)."""
MEASURES = ("ARI", "NMI", "ms per step")
PANEL_INCHES = (2.4, 2.0)
BARS = (
    (FULL, ""),
    *((kind, rate) for kind in (UNTRUNCATED, TRUNCATED, PLAIN) for rate in ("sqrt", "count")),
)


def measured(fits: Sequence[Fitted], measure: str) -> tuple[float, float]:
    """Return mean and standard deviation of one figure of a program."""
    get = {
        "ARI": lambda fit: fit.ari,
        "NMI": lambda fit: fit.nmi,
        "ms per step": lambda fit: 1e3 * fit.loop / max(1, fit.steps),
    }[measure]
    values = [get(fit) for fit in fits]
    return float(np.mean(values)), float(np.std(values))


def label_of(program: Program) -> str:
    """Return the name of the curve of a program."""
    if program.kind == FULL:
        return FULL
    kind = f"tau={program.tau}" if program.tau else program.kind
    return kind if program.rate == "count" else f"{kind}, beta"


def sweep(one: Problem, runs: Runs, folder: Path | None) -> Figure | Note | None:
    """Draw ARI, NMI and time by batch size, a curve for each truncation and rate; None for one size."""
    if len({program.batch for program in runs if program.batch}) < 2:
        return None
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    file, (width, height) = f"kernel-{one.name.split()[0]}.svg", PANEL_INCHES
    with canvas_of(file, (width * len(MEASURES), height + 0.7)) as canvas:
        grid = canvas.subplots(1, len(MEASURES), squeeze=False)
        for axes, measure in zip(grid[0], MEASURES, strict=True):
            _curves(axes, runs, measure)
        legend(canvas, grid, 5)
        text = f"{one.name}: agreement with true labels and time per step, by batch size"
        return save(canvas, folder / file, text)


def _curves(axes: Any, runs: Runs, measure: str) -> None:
    lines: dict[str, list[Program]] = {}
    for program in runs:
        lines.setdefault(label_of(program), []).append(program)
    for label, listed in lines.items():
        first = listed[0]
        colour = TAU_COLOURS.get(first.tau) or COLOURS[first.kind]
        found = np.array([measured(runs[program], measure) for program in listed])
        if first.kind == FULL:
            mean, spread = found[0]
            axes.axhline(mean, color=colour, linewidth=0.9, label=label)
            axes.axhspan(mean - spread, mean + spread, color=colour, alpha=0.08, linewidth=0)
            continue
        style = {"fmt": "-o" if first.rate == "sqrt" else "--s", "markersize": 2, "capsize": 1.5}
        axes.errorbar(
            [program.batch for program in listed], found[:, 0], found[:, 1],
            color=colour, linewidth=0.9, elinewidth=0.5, label=label, **style,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    sizes = sorted({program.batch for program in runs if program.batch})
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_title(measure, fontsize=8)
    axes.set_xlabel("batch size")
    if measure == MEASURES[-1]:
        axes.set_yscale("log")
    axes.grid(linewidth=0.3, color="#dddddd")


def overview(compared: Sequence[tuple[Problem, Runs]], folder: Path | None) -> Figure | Note | None:
    """Draw Figure 1: bars of all sets, at one batch size and one truncation; None without any fit."""
    shown = [(one, runs) for one, runs in compared if runs]
    if not shown:
        return None
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    file, height = "kernel-figure1.svg", 1.3
    with canvas_of(file, (7.2, height * len(shown) + 0.6)) as canvas:
        grid = canvas.subplots(len(shown), len(MEASURES), squeeze=False)
        for row, (one, runs) in zip(grid, shown, strict=True):
            for axes, measure in zip(row, MEASURES, strict=True):
                _bars(axes, runs, measure)
            row[0].set_ylabel(one.name)
        for axes, measure in zip(grid[0], MEASURES, strict=True):
            axes.set_title(measure, fontsize=8)
        legend(canvas, grid, 4)
        text = (
            f"All sets at b={BATCH} and tau={TAU}; beta is the learning rate of Schwartzman (2023)"
        )
        return save(canvas, folder / file, text)


def _bars(axes: Any, runs: Runs, measure: str) -> None:
    programs = {(program.kind, program.rate): program for program in runs if program.is_of_figure1}
    for place, (kind, rate) in enumerate(BARS):
        if (kind, rate) not in programs:
            continue
        mean, spread = measured(runs[programs[kind, rate]], measure)
        colour = TAU_COLOURS[TAU] if kind == TRUNCATED else COLOURS[kind]
        axes.bar(
            place, mean, yerr=spread, color=colour, alpha=0.55 if rate == "count" else 1.0,
            error_kw={"elinewidth": 0.6}, label=f"{kind}, beta" if rate == "sqrt" else kind,
        )  # fmt: skip
    axes.set_xticks([])
    if measure == MEASURES[-1]:
        axes.set_yscale("log")
