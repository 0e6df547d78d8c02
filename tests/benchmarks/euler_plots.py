"""Plots of stochastic backward Euler: histograms of starts, the objective over steps, four clouds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not
from tests.benchmarks.harness.settings import Settings

if TYPE_CHECKING:
    from tests.benchmarks.backward_euler import Cell
    from tests.benchmarks.euler_sets import EulerSet

PROGRAM_COLOURS = {"EM": "#999999", "mb-EM": "#e69f00", "SBE": "#0072b2"}
INCHES = (2.3, 1.8)
BINS = 30
JUMPING = 4
"""Starts whose objective is drawn."""
DRAWN = 300
"""Drawn points of the clouds."""

MEANS = ((-5.0, -3.0), (5.0, -3.0), (0.0, 5.0), (2.5, 4.0))
COVARIANCES = (
    ((0.8, 0.1), (0.1, 0.8)),
    ((1.2, 0.6), (0.6, 0.7)),
    ((0.5, 0.05), (0.05, 1.6)),
    ((1.5, 0.05), (0.05, 0.6)),
)
STUCK = ((-5.0, -3.0), (4.0, -3.6), (6.0, -2.4), (1.2, 4.5))
"""First centres from which Lloyd's algorithm ends with two centres in one cloud."""
PER_CLOUD, SEEDS = 1000, 20


def histograms(name: str, found: Mapping[str, np.ndarray], settings: Settings) -> Figure | Note:
    """Draw histograms of the final objectives of each program, on one axis."""
    if (missing := why_not(settings.images)) is not None:
        return missing
    assert settings.images is not None
    values = np.concatenate(list(found.values()))
    edges = np.linspace(values.min(), values.max() + 1e-12, BINS + 1)
    width, height = INCHES
    file = f"backward-euler-{name}.svg"
    with canvas_of(file, (width * len(found), height)) as canvas:
        grid = canvas.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)
        for axes, (title, each) in zip(grid[0], found.items(), strict=True):
            axes.hist(each, edges, color=PROGRAM_COLOURS[title.split()[0]])
            axes.set_title(title, fontsize=8)
            axes.set_xlabel("phi")
        grid[0, 0].set_ylabel("starts")
        canvas.tight_layout()
        text = f"Objectives of all starts on {name}, by program (M, iterations)."
        return save(canvas, settings.images / file, text)


def jumps(data: EulerSet, cell: Cell, settings: Settings) -> Figure | Note:
    """Draw the objective on all rows after each outer step of a few starts."""
    if (missing := why_not(settings.images)) is not None:
        return missing
    assert settings.images is not None
    file = f"backward-euler-{data.name}-jumps.svg"
    outer = cell.outer // 5 if settings.quick else cell.outer
    with canvas_of(file, (4.2, 2.2)) as canvas:
        axes = canvas.subplots(1, 1)
        for number in range(JUMPING):
            axes.plot(_followed(data, cell, outer, number), linewidth=0.9)
        axes.set_xlabel("outer step")
        axes.set_ylabel("phi")
        axes.grid(linewidth=0.3, color="#dddddd")
        canvas.tight_layout()
        text = f"phi on {data.name} after each outer step of {JUMPING} starts, k = {cell.k}."
        return save(canvas, settings.images / file, text)


def _followed(data: EulerSet, cell: Cell, outer: int, number: int) -> np.ndarray:
    """Return phi on all rows before the first outer step and after each."""
    import daskcluster as dc
    from daskcluster.methods.backward_euler.algorithm import (
        BatchAssigner,
        DescentState,
        ImplicitDescent,
        ImplicitSteps,
    )
    from daskcluster.methods.minibatch.batches import Batches

    first = data.rows[np.random.default_rng(number).choice(data.n, cell.k, replace=False)]
    assign = BatchAssigner(data.rows.dtype)
    steps = ImplicitSteps(cell.gamma * cell.k, averaging=cell.alpha, inner_iter=cell.inner)
    dataset, values = dc.open_dataset(data.rows), []
    with Batches(dataset, cell.batch, number) as batches, assign.threads(*first.shape):
        descent = ImplicitDescent(batches, assign, DescentState.first(first, steps), steps)
        for step in range(outer + 1):
            values.append(dc.quantization_error(dataset, descent.now.centres) / (2 * data.n))
            if step < outer:
                descent.step()
    return np.array(values)


def two_dimensions(settings: Settings) -> list[Table | Figure | Note]:
    """Return the fits on four clouds, from a bad minimum of Lloyd's algorithm."""
    import daskcluster as dc

    random = np.random.default_rng(0)
    clouds = zip(MEANS, COVARIANCES, strict=True)
    rows = np.concatenate([random.multivariate_normal(*cloud, PER_CLOUD) for cloud in clouds])
    engine = dc.LocalEngine(settings.threads)
    stuck = dc.KMeans(4, init=np.array(STUCK), tol=0, engine=engine).fit(rows)
    best = dc.KMeans(4, init=np.array(MEANS), tol=0, engine=engine).fit(rows)
    euler = dc.BackwardEulerKMeans(
        4, init=stuck, n_init=SEEDS, batch_size=500, step_size=1.2 * 4, decay=1 / 1.01,
        averaging=0.75, size_limit=None, random_state=0, engine=engine,
    ).fit(rows)  # fmt: skip
    phi = euler.start_inertias_ / (2 * len(rows))
    table = Table(
        f"Four clouds of {PER_CLOUD:,} points, from a bad minimum of Lloyd's algorithm",
        ["method", "M", "iterations", "phi", "starts at the best"],
        rows=[
            ["EM from the clouds' means", None, best.n_iter_, f"{best.inertia_ / 8000:.4f}", "-"],
            ["EM from two centres in one cloud", None, stuck.n_iter_, f"{stuck.inertia_ / 8000:.4f}", "no"],
            ["SBE from this minimum", 500, "(100, 5)", f"{phi.min():.4f} to {phi.max():.4f}",
             f"{int((euler.start_inertias_ <= 1.01 * best.inertia_).sum())} of {SEEDS}"],
        ],
        notes=[
            "The means, covariances and first centres of section 3.1 are missing in the available "
            "text of the "
            "paper; these are ours. SBE: gamma = 1.2 k; all starts have the same first centres, and "
            "different "
            "batches."
        ],
    )  # fmt: skip
    return [table, _clouds(rows, stuck.cluster_centers_, euler.cluster_centers_, settings)]


def _clouds(
    rows: np.ndarray, stuck: np.ndarray, left: np.ndarray, settings: Settings
) -> Figure | Note:
    if (missing := why_not(settings.images)) is not None:
        return missing
    assert settings.images is not None
    file, shown = "backward-euler-clouds.svg", rows[:: len(rows) // DRAWN]
    with canvas_of(file, (5.0, 2.6)) as canvas:
        grid = canvas.subplots(1, 2, sharex=True, sharey=True, squeeze=False)
        panels: list[tuple[Any, str, np.ndarray]] = [
            (grid[0, 0], "EM", stuck),
            (grid[0, 1], "SBE, started there", left),
        ]
        for axes, title, centres in panels:
            axes.scatter(*shown.T, s=1.5, color="#999999", label="points")
            axes.scatter(*centres.T, s=30, marker="x", color="#d55e00", label="centres")
            axes.set_title(title, fontsize=8)
        legend(canvas, grid)
        text = "The bad minimum of Lloyd's algorithm, and the centres that backward Euler reaches from it."
        return save(canvas, settings.images / file, text)
