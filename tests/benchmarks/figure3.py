"""Figure 3 of Newling and Fleuret: energy at two times by threshold rho, with and without bounds.

The curves over time are those of their supplement C.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.energy_plots import (
    LEAST_TOP,
    Band,
    EnergyPanel,
    curve,
    curves_panel,
    draw_energies,
)
from tests.benchmarks.energy_runs import (
    mean_and_deviation,
    open_files,
    with_kept,
    write_results,
)
from tests.benchmarks.harness.energy import Rows, Run, lowest
from tests.benchmarks.harness.energy_programs import nested, warm_up
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.minibatch_sets import DENSE, chosen, finished

ABOUT = "Figure 3: nested mini-batches with five thresholds rho, with and without bounds"
TAKES = (
    "about two hours on 2 cores, 6 GB of memory and 0.4 GB of disk in --scratch DIR, removed afterwards "
    "unless --keep (--quick: 3 minutes); finished fits are saved there and reused"
)

RHOS = (0.1, 1.0, 10.0, 100.0, 1000.0)
BOUNDS = {"with bounds": "auto", "without bounds": False}
STANDARD = ("with bounds", 100.0)
"""The fit that runs to its end; its time defines the times of the comparison."""
EARLY, LATE = 0.1, 0.5
"""Shares of that time; the paper compares after 2 and after 10 seconds."""

Runs = dict[tuple[str, float], list[Run]]


def run(settings: Settings) -> list[Table | Figure | Note]:
    """Return the plots, and the figures of the first one as a table."""
    table = Table(
        f"Mean excess over E* after two times, {settings.threads} threads",
        ["data", "seeds", "after", "bounds", *(f"rho = {rho:g}" for rho in RHOS)],
        notes=_notes(),
    )
    made = {}
    for rows in chosen(DENSE, settings):
        late, runs = compete(rows, settings)
        made[rows.name] = _result(rows, late, runs)
        table.rows += _lines(rows.name, made[rows.name], len(runs[STANDARD]))
    results = with_kept(settings, "figure3", made, DENSE)
    write_results(settings, "figure3", results)
    text = "Energy of validation rows above the best one after two times, for five thresholds"
    panels = [_panel(*one) for one in results.items()]
    figure = draw_energies("figure3.svg", text, [panels], settings.images)
    text = "Energy of validation rows above the best one over time, for five thresholds"
    grid = [
        [_curves(*one, name) for one in results.items() if "curves" in one[1]] for name in BOUNDS
    ]
    curves = draw_energies("figure3-curves.svg", text, grid, settings.images)
    finished(settings)
    return [figure, table, curves]


def compete(rows: Rows, settings: Settings) -> tuple[float, Runs]:
    """Return the later time and all runs; only the standard ones run longer than that."""
    files, threads = open_files("figure3", rows, settings), settings.threads
    seeds = files.seeds(settings.seeds, "standard", *(f"{name}-{rho:g}" for name, rho in _others()))
    say(f"  {rows.name}: {rows.shape}; {len(RHOS)} x {len(BOUNDS)} fits from {seeds} seeds")
    if settings.seeds:
        warm_up(rows, threads, [partial(nested, bounds=bounds) for bounds in BOUNDS.values()])
    standard = [
        files.get(f"standard-{seed}", partial(nested, rows, seed, threads, rho=STANDARD[1]))
        for seed in range(seeds)
    ]
    late = LATE * statistics.median(run.seconds[-1] for run in standard)
    runs: Runs = {STANDARD: standard}
    for seed in range(seeds):
        for name, rho in _others():
            make = partial(nested, rows, seed, threads, rho=rho, bounds=BOUNDS[name], max_time=late)
            found = files.get(
                f"{name}-{rho:g}-{seed}",
                make,
                enough=lambda run: run.ended or run.seconds[-1] >= late,
            )
            runs.setdefault((name, rho), []).append(found)
    return late, runs


def _others() -> Iterator[tuple[str, float]]:
    return ((name, rho) for rho in RHOS for name in BOUNDS if (name, rho) != STANDARD)


def _best(runs: Runs) -> float:
    return lowest({f"{name} {rho}": found for (name, rho), found in runs.items()})


def _result(rows: Rows, late: float, runs: Runs) -> dict[str, Any]:
    """Return the excess at both times, and the curves until the later one."""
    times = {"": late, ", earlier": late * EARLY / LATE}
    best = _best(runs)
    return {
        "source": rows.source,
        "shape": rows.shape,
        "seconds": sorted(times.values()),
        "rho": list(RHOS),
        "excess": {
            f"{name}{when}": _excess([runs[name, rho] for rho in RHOS], best, seconds)
            for name in BOUNDS
            for when, seconds in times.items()
        },
        "curves": {
            name: {
                f"rho = {rho:g}": curve("", runs[name, rho], best, "seconds", late).numbers()
                for rho in RHOS
            }
            for name in BOUNDS
        },
    }


def _excess(by_rho: list[list[Run]], best: float, seconds: float) -> dict[str, list[float]]:
    """Return mean and standard deviation over seeds of (energy - best) / best, by rho."""
    moment = np.array([seconds])
    pairs = [mean_and_deviation(found, best, moment, "seconds") for found in by_rho]
    mean, deviation = np.concatenate(pairs, axis=1)
    return {"mean": mean.tolist(), "deviation": deviation.tolist()}


def _panel(name: str, result: dict[str, Any]) -> EnergyPanel:
    bands = [Band.of(one, {"x": result["rho"], **found}) for one, found in result["excess"].items()]
    early, late = result["seconds"]
    top = max(LEAST_TOP, 1.2 * max(float(band.mean.max()) for band in bands))
    return EnergyPanel(f"{name}, {early:.2g} and {late:.2g} s", "rho", bands, top)


def _curves(set_name: str, result: dict[str, Any], name: str) -> EnergyPanel:
    bands = [Band.of(*one) for one in result["curves"][name].items()]
    return curves_panel(f"{set_name}, {name}", "seconds", bands)


def _lines(name: str, result: dict[str, Any], seeds: int) -> Iterator[list[Any]]:
    for which, found in result["excess"].items():
        bounds, _, earlier = which.partition(", ")
        seconds = result["seconds"][not earlier]
        excess = [
            f"{100 * mean:.2f}{f' ± {100 * deviation:.2f}' if seeds > 1 else ''} %"
            for mean, deviation in zip(found["mean"], found["deviation"], strict=True)
        ]
        yield [name, seeds, f"{seconds:.2g} s", bounds.split()[0], *excess]


def _notes() -> list[str]:
    return [
        f"The times are {EARLY:g} and {LATE:g} times the median time of a whole fit with rho = 100 and "
        "bounds. The other fits stop at the later time.",
        "E is the mean squared distance of the validation rows, E* the lowest of any round of any fit. "
        "Times exclude evaluation.",
    ]
