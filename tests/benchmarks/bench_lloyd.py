"""Whole fits of ten Lloyd iterations on arrays in memory, against every peer, in one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.harness import Options, Outcome, Table, mixture, mnist, peak_flops, race, say
from tests.benchmarks.peers import ours, present

TAKES = "about 4 minutes on 2 cores (--quick: 20 seconds)"
ITERATIONS = 10
SHAPES = ((100_000, 128, 1000), (400_000, 32, 100), (1_000_000, 16, 50), (60_000, 784, 50))
QUICK = tuple((n // 10, d, max(10, k // 10)) for n, d, k in SHAPES)
TARGET = 2.0


def run(options: Options) -> list[Table]:
    peers, notes = present()
    peak = peak_flops(np.float32, options.threads)
    table = Table(
        f"Lloyd iteration on {options.threads} threads, float32: seconds (median of "
        f"{options.repeats} fits of {ITERATIONS} iterations from the same centres, tol=0)",
        [
            "n, d, k",
            "data",
            "daskcluster",
            *peers,
            "best peer / ours",
            "target",
            "GFLOP/s",
            "of peak",
        ],
        notes=[*notes, f"FMA peak measured in this run: {peak / 1e9:.0f} GFLOP/s"],
    )
    agreement = []
    for shape in QUICK if options.quick else SHAPES:
        rows, source = _rows(shape, options)
        outcomes = _race(rows, shape[2], peers, options)
        table.rows.append(_result(shape, source, outcomes, peers, peak))
        agreement.append(_agreement(rows, outcomes))
    table.notes.append(
        "Largest relative difference of a peer's inertia from ours after the same number of "
        f"updates: {max(agreement):.1e}"
    )
    return [table]


def _rows(shape: tuple[int, int, int], options: Options) -> tuple[np.ndarray, str]:
    n, d, k = shape
    if d == 784:
        rows, source = mnist(options.data)
        return np.ascontiguousarray(rows[:n]), source
    return mixture(n, d, k), "mixture"


def _race(rows: np.ndarray, k: int, peers: dict[str, Any], options: Options) -> dict[str, Outcome]:
    say(f"  n, d, k = {rows.shape[0]:,}, {rows.shape[1]}, {k}")
    centres = rows[:k].copy()
    programs: dict[str, Callable[[], Any]] = {
        name: partial(fit, rows, centres, ITERATIONS, options.threads)
        for name, fit in {"daskcluster": ours, **peers}.items()
    }
    return race(programs, options.repeats)


def _result(
    shape: tuple[int, int, int],
    source: str,
    outcomes: dict[str, Outcome],
    peers: dict[str, Any],
    peak: float,
) -> list[Any]:
    n, d, k = shape
    each = {name: outcome.median / outcome.value[1] for name, outcome in outcomes.items()}
    mine = each["daskcluster"]
    ratio = min((each[name] for name in peers), default=float("nan")) / mine
    flops = 2.0 * n * d * k / mine
    return [
        f"{n:,}, {d}, {k}", source, mine, *(each[name] for name in peers),
        f"{ratio:.2f}", f">= {TARGET:g}", flops / 1e9, f"{100 * flops / peak:.0f} %",
    ]  # fmt: skip


def _agreement(rows: np.ndarray, outcomes: dict[str, Outcome]) -> float:
    from daskcluster import quantization_error

    inertia = {
        name: quantization_error(rows, outcome.value[0].astype(np.float32))
        for name, outcome in outcomes.items()
    }
    mine = inertia["daskcluster"]
    return max(abs(value / mine - 1) for value in inertia.values())
