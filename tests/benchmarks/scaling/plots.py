"""Seconds per pass by number of workers, one panel for each large data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.parts import Figure, Note
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not
from tests.benchmarks.scaling.projections import FITS, SHAPES

NAME = "scaling.svg"
COLOURS = ("#000000", "#0072b2", "#e69f00", "#009e73")
INCHES = (2.9, 2.3)


def draw(records: Sequence[Mapping[str, Any]], folder: Path | None) -> Figure | Note:
    """Write the plot and return the reference to it, or a remark why there is none."""
    if (missing := why_not(folder)) is not None:
        return missing
    assert folder is not None
    with canvas_of(NAME, (INCHES[0] * len(SHAPES), INCHES[1] + 0.3)) as canvas:
        grid = canvas.subplots(1, len(SHAPES), squeeze=False)
        for axes, (n, d) in zip(grid[0], SHAPES, strict=True):
            own = [r for r in records if (r["n"], r["d"]) == (n, d) and "refusal" not in r]
            _fill(axes, own)
            axes.set_title(f"{n:,} x {d:,}", fontsize=8)
            axes.set_xlabel("workers")
        grid[0, 0].set_ylabel("seconds per pass")
        legend(canvas, grid)
        return save(canvas, folder / NAME, "Projected seconds per pass by number of workers")


def _fill(axes: Any, records: Sequence[Mapping[str, Any]]) -> None:
    curves = {fit: ("later_pass", [r for r in records if r["fit"] == fit]) for fit in FITS}
    curves["labels"] = ("labels_pass", curves["lloyd"][1])
    for colour, (name, (field, own)) in zip(COLOURS, curves.items(), strict=True):
        workers = [record["workers"] for record in own]
        axes.plot(
            workers,
            [record[field]["seconds"] for record in own],
            label=name,
            color=colour,
            linewidth=1.2,
            marker="o",
            markersize=2.5,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.tick_params(width=0.5, length=2)
