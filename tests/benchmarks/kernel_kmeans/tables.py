"""Tables: agreement with true labels and times by set, and the norms of the kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.benchmarks.harness.parts import Table
from tests.benchmarks.kernel_kmeans.problems import Problem
from tests.benchmarks.kernel_kmeans.programs import FULL, Fitted, Norm, Program

Runs = Mapping[Program, Sequence[Fitted]]


def kernel_text(one: Problem) -> str:
    """Return the kernel of a set and its parameters."""
    if one.kernel == "rbf":
        return f"rbf, gamma={one.gamma:.3g} ({one.settings['gamma']:g} times auto)"
    text = f"{one.kernel}, n_neighbors={one.settings['n_neighbors']:g}"
    return text + (f", t={one.settings['heat_time']:g}" if one.kernel == "heat" else "")


def norms(kernels: Sequence[tuple[Problem, Norm]]) -> Table:
    """Return the paper's gamma of every kernel, the largest sqrt K(x, x)."""
    table = Table(
        "Kernels",
        ["set", "rows, d, k", "kernel", "max sqrt K(x, x)", "s to compute the matrix"],
        notes=[
            "max sqrt K(x, x) is gamma in the paper. Matrices of graphs are exact and computed "
            "once; the times "
            "below exclude this. Values of rbf are computed when they are needed, and count in a "
            "step. auto "
            'is the value of `gamma="auto"`.',
            "ARI and NMI of each set: means and standard deviations over seeds; ms per step: medians.",
        ],
    )
    for one, norm in kernels:
        shape = f"{one.X.shape[0]:,}, {one.X.shape[1]}, {one.k}"
        seconds = norm.seconds or None
        table.rows.append([one.name, shape, kernel_text(one), f"{norm.largest:.3g}", seconds])
    return table


def agreement(one: Problem, runs: Runs) -> Table:
    """Return the agreement and the time per step of every program on a set."""
    table = Table(
        f"{one.name}: {kernel_text(one)}",
        ["program", "seeds", "ARI", "+-", "NMI", "+-", "steps", "ms per step",
         "for kernel values", "full batch / this", "fit, s"],
    )  # fmt: skip
    slowest = [step_ms(fits)[0] for program, fits in runs.items() if program.kind == FULL]
    for program, fits in runs.items():
        table.rows.append(_line(program, fits, slowest[0] if slowest else None))
    return table


def step_ms(fits: Sequence[Fitted]) -> tuple[float, float]:
    """Return milliseconds of a step, and those of its Gram values: medians over fits."""
    steps = [max(1, fit.steps) for fit in fits]
    loop, gram = (
        float(np.median([1e3 * getattr(fit, kind) / n for fit, n in zip(fits, steps, strict=True)]))
        for kind in ("loop", "gram")
    )
    return loop, gram


def _mean_and_spread(values: Sequence[float]) -> tuple[str, str]:
    """Return both to three digits; one value has no spread."""
    spread = f"{np.std(values):.3f}" if len(values) > 1 else "-"
    return f"{np.mean(values):.3f}", spread


def _line(program: Program, fits: Sequence[Fitted], slowest: float | None) -> list[Any]:
    ari, nmi = ([getattr(fit, kind) for fit in fits] for kind in ("ari", "nmi"))
    figures = [text for part in (ari, nmi) for text in _mean_and_spread(part)]
    loop, gram = step_ms(fits)
    ratio = None if slowest is None or program.kind == FULL else slowest / max(loop, 1e-9)
    steps = int(np.median([fit.steps for fit in fits]))
    whole = float(np.median([fit.whole for fit in fits]))
    return [program.name, len(fits), *figures, steps, loop, gram or None, ratio, whole]
