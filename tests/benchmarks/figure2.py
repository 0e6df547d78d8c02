"""Figure 2 of Newling and Fleuret: energy by time and by number of distances.

"Nested mini-batch k-means", NIPS 2016.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.energy_plots import Band, EnergyPanel, curve, curves_panel, draw_energies
from tests.benchmarks.energy_runs import open_files, with_kept, write_results
from tests.benchmarks.harness.energy import Rows, Run, lowest
from tests.benchmarks.harness.energy_programs import exact, mini_batches, nested, warm_up
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.minibatch_sets import DENSE, SPARSE, chosen, finished

ABOUT = (
    "Figure 2: energy on validation rows over time, for Lloyd's algorithm without and with bounds, "
    "mini-batches and nested mini-batches"
)
TAKES = (
    "about two and a half hours on 2 cores, 8 GB of memory and 0.4 GB of disk in --scratch DIR, removed "
    "afterwards unless --keep (--quick: 3 minutes); finished fits are saved there, and an interrupted "
    "run resumes"
)

SETS = (*DENSE, *SPARSE)
AXES = ("seconds", "distances")
MOST_SEEDS = {"words": 5}
"""Most seeds of sets whose fits take minutes."""
MOST_ITERATIONS = {"words": 200}
STEPS, QUICK_STEPS = 1000, 60
"""Steps of mini-batches, which do not end by themselves."""
WITHIN = 0.02
"""Excess energy at which the paper compares times: nested mini-batches are 10 to 100 times earlier."""
BOUNDED = ("yinyang", "hamerly")
"""Lloyd's algorithm with bounds, of dense and of sparse rows."""


def run(settings: Settings) -> list[Table | Figure | Note]:
    """Return the plot, and its figures as a table."""
    table = Table(
        f"Seconds until the energy E is within {WITHIN:.0%} of the lowest, E*, and mean excess over E* at "
        f"the end (random first rows, {settings.threads} threads, medians over seeds)",
        ["data", "rows + validation, d, k", "seeds", "E*", *_heads("lloyd"), *_heads("bounds"),
         *_heads("mbatch"), *_heads("nmbatch"), "mbatch / nmbatch, seconds"],
        notes=_notes(),
    )  # fmt: skip
    found = {}
    for rows in chosen(SETS, settings):
        runs = compete(rows, settings)
        table.rows.append(_line(rows, runs))
        found[rows.name] = _result(rows, runs)
    results = with_kept(settings, "figure2", found, SETS)
    write_results(settings, "figure2", results)
    text = (
        "Energy of validation rows above the best one against time and against distances computed"
    )
    grid = [[_panel(*one, axis) for one in results.items()] for axis in AXES]
    figure = draw_energies("figure2.svg", text, grid, settings.images)
    finished(settings)
    return [figure, table]


def compete(rows: Rows, settings: Settings) -> dict[str, list[Run]]:
    """Return the runs of all programs from all seeds."""
    steps = QUICK_STEPS if settings.quick else STEPS
    passes = max(1, steps * rows.batch // rows.n)
    plain = partial(exact, max_iter=MOST_ITERATIONS.get(rows.name, 1000))
    bounded = BOUNDED[rows.is_sparse]
    programs: dict[str, Callable[..., Run]] = {
        "lloyd": plain,
        bounded: partial(plain, algorithm=bounded),
        "mbatch": partial(mini_batches, passes=passes),
        "nmbatch": nested,
    }
    files = open_files("figure2", rows, settings)
    wanted = min(settings.seeds, MOST_SEEDS.get(rows.name, settings.seeds))
    seeds = files.seeds(wanted, *programs)
    say(f"  {rows.name}: {rows.shape}; {len(programs)} programs from {seeds} seeds")
    if settings.seeds:
        warm_up(rows, settings.threads, programs.values())
    runs: dict[str, list[Run]] = {name: [] for name in programs}
    for seed in range(seeds):
        for name, program in programs.items():
            like = {"like": runs["lloyd"][-1]} if name == bounded else {}
            make = partial(program, rows, seed, settings.threads, **like)
            runs[name].append(files.get(f"{name}-{seed}", make))
    return runs


def _heads(name: str) -> list[str]:
    return [f"{name}, s", "end"]


def _line(rows: Rows, runs: dict[str, list[Run]]) -> list[Any]:
    best = lowest(runs)
    cells: list[Any] = [rows.name, rows.shape, len(runs["lloyd"]), f"{best:.5g}"]
    reached = {name: _reached(found, best) for name, found in runs.items()}
    for name, found in runs.items():
        cells += [reached[name], _end(found, best)]
    return [*cells, _ratio(runs, best)]


def _reached(runs: Sequence[Run], best: float) -> str:
    """Return the median time to near E*; a run that never reached it counts as longer than its time."""
    found = [run.time_to((1 + WITHIN) * best) for run in runs]
    if sum(seconds is not None for seconds in found) * 2 <= len(found):
        return f"> {statistics.median(run.seconds[-1] for run in runs):.3g}"
    return (
        f"{statistics.median_high(np.inf if seconds is None else seconds for seconds in found):.3g}"
    )


def _ratio(runs: dict[str, list[Run]], best: float) -> str | None:
    """Return the median over seeds of how many times earlier nested mini-batches come near E*.

    If they do so from some of the seeds only, the text says from how many.
    """
    ratios, bounded = [], False
    for mine, other in zip(runs["nmbatch"], runs["mbatch"], strict=True):
        ours, theirs = (run.time_to((1 + WITHIN) * best) for run in (mine, other))
        if ours is None:
            continue
        bounded |= theirs is None
        ratios.append((other.seconds[-1] if theirs is None else theirs) / ours)
    if not ratios:
        return None
    many = len(runs["nmbatch"])
    seeds = f" ({len(ratios)} of {many} seeds)" if len(ratios) < many else ""
    return f"{'>= ' if bounded else ''}{statistics.median(ratios):.1f}{seeds}"


def _end(runs: Sequence[Run], best: float) -> str:
    ends = [run.end / best - 1 for run in runs]
    spread = f" ± {100 * statistics.stdev(ends):.2f}" if len(ends) > 1 else ""
    return f"{100 * statistics.mean(ends):.2f}{spread} %"


def _panel(name: str, result: dict[str, Any], axis: str) -> EnergyPanel:
    bands = [Band.of(*one) for one in result["curves"][axis].items()]
    return curves_panel(name, axis, bands)


def _result(rows: Rows, runs: dict[str, list[Run]]) -> dict[str, Any]:
    best = lowest(runs)
    curves = {
        axis: {name: curve(name, found, best, axis).numbers() for name, found in runs.items()}
        for axis in AXES
    }
    ends = {name: [run.end for run in found] for name, found in runs.items()}
    return {
        "source": rows.source, "shape": rows.shape, "best": best, "ends": ends, "curves": curves,
    }  # fmt: skip


def _notes() -> list[str]:
    return [
        "bounds: Lloyd's algorithm with bounds, yinyang for dense rows, hamerly for sparse ones. nmbatch "
        "has bounds too.",
        f"lloyd and bounds run to the fixed point (words: at most {MOST_ITERATIONS['words']} iterations), "
        f"nmbatch (rho = 100) to its end, mbatch for {STEPS:,} steps (--quick: {QUICK_STEPS}). Batches and "
        "the first nested batch have 5,000 rows (newspaper: 300; --quick: a 25th, of rows too).",
        "E is the mean squared distance of the validation rows. Times start at the call of fit and exclude "
        "evaluation, which happens in a second fit with the same result. lloyd and bounds are "
        "evaluated at "
        "growing intervals, so they may be up to 15 % earlier than shown; mbatch up to 10 %.",
    ]
