"""Tables 3 and 4 and Figure 5 of Zhao et al.; `tests.benchmarks.vrkm.rates` has the other figures.

"Large-scale k-means clustering via variance reduction", Neurocomputing 2018.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from tests.benchmarks.energy_runs import RunFiles, write_results
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.vrkm.plots import draw_losses
from tests.benchmarks.vrkm.problems import Problem, problems
from tests.benchmarks.vrkm.programs import AGAIN, PROGRAMS, Outcome, program, variance_reduced
from tests.benchmarks.vrkm.tables import table3, table4

ABOUT = (
    "Tables 3 and 4, Figure 5: VRKM and VRKM++ against other programs, with the default and with "
    "a tuned rate"
)
TAKES = (
    "about two hours on one thread and 4 GB of memory (--quick: 1 minute; for each seed, --sets mnist and "
    "mnist_pairs take 4 minutes, cifar10_test10k 1 minute, sift_like 17 minutes for the first and 5 for "
    "the others); finished fits are saved in --scratch, and an interrupted run resumes"
)
SEEDS = 10


def run(options: Settings) -> list[Table | Figure | Note]:
    """Return the tables and the plot of the chosen sets."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    sets: list[Problem] = []
    for problem in problems(options):
        say(f"  {problem.name} ({problem.source}): {problem.shape}")
        files = files_of(problem, options)
        if options.seeds:
            warm_up(problem, options)
        found[problem.name] = _compete(problem, files, options)
        sets.append(_without_rows(problem))
    results = {
        name: {one: [vars(outcome) for outcome in outcomes] for one, outcomes in runs.items()}
        for name, runs in found.items()
    }
    write_results(options, "vrkm", results)
    finished(options)
    return [table3(sets, found), draw_losses(found, options.images), *table4(sets, found)]


def _compete(
    problem: Problem, files: RunFiles[Outcome], options: Settings
) -> dict[str, list[Outcome]]:
    """Return the runs of all programs, on large sets of some from the first seed only.

    For each seed, all start from the same rows.
    """
    runs: dict[str, list[Outcome]] = {name: [] for name in PROGRAMS}
    wanted = 2 if options.quick else min(options.seeds, problem.most_seeds)
    again = AGAIN if problem.is_large else PROGRAMS
    for seed in range(files.seeds(wanted, *again)):
        budget: float | None = None
        for name in again if seed else PROGRAMS:
            made = files.get(
                f"{name}-{seed}",
                lambda name=name, seed=seed, budget=budget: program(name)(
                    problem, seed, options.threads, budget
                ),
            )
            runs[name].append(made)
            budget = problem.budget * runs["batch"][-1].fit_seconds
    return runs


def warm_up(problem: Problem, options: Settings) -> None:
    """Compile what the programs need."""
    few = Problem("few", "", problem.rows[: 10 * problem.k], None, problem.k, most_iterations=2)
    for name in PROGRAMS:
        program(name)(few, 0, options.threads, 0.2)
    variance_reduced(few, 0, options.threads, 0.2, n_partitions=2)


def _folder(options: Settings) -> Path:
    return options.folder(f"daskcluster-vrkm{'-quick' if options.quick else ''}")


def finished(options: Settings) -> None:
    """Remove the saved fits, unless they are to be kept."""
    if not options.keep and options.scratch is None:
        shutil.rmtree(_folder(options), ignore_errors=True)


def files_of(problem: Problem, options: Settings) -> RunFiles[Outcome]:
    """Return the saved fits of a set."""
    settings = {
        "source": problem.source,
        "shape": problem.shape,
        "threads": options.threads,
        "budget": problem.budget,
        "counts": "distances",
    }
    return RunFiles(_folder(options) / problem.name, settings, Outcome)


def _without_rows(problem: Problem) -> Problem:
    """Return the problem with rows that take no memory: only their shape is needed."""
    rows = np.broadcast_to(np.float32(0), problem.rows.shape)
    return Problem(
        problem.name, problem.source, rows, problem.classes, problem.k, problem.most_iterations
    )
