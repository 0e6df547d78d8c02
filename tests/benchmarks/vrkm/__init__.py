"""Tables 3 and 4 and Figures 3, 6 and 7 of Zhao et al., and one partition against many.

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
from tests.benchmarks.vrkm.problems import Problem, problems
from tests.benchmarks.vrkm.programs import PROGRAMS, Outcome, program, variance_reduced
from tests.benchmarks.vrkm.sweeps import LARGE, figures, partitions
from tests.benchmarks.vrkm.tables import table3, table4

ABOUT = "Tables 3 and 4, Figures 3, 6 and 7, and one partition against many"
TAKES = (
    "about an hour and a half on 2 cores and 4 GB of memory (--quick: 2 minutes; --sets mnist and "
    "cifar10_test10k: half an hour each, sift_like, one seed: 25 minutes); finished fits are saved "
    "in --scratch, and an interrupted run resumes"
)
SEEDS = 10
BUDGET = 1.5
"""Time limit of the other programs, relative to the time of batch k-means."""


def run(options: Settings) -> list[Table | Figure | Note]:
    """Return all tables and plots of the chosen sets."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    sets: list[Problem] = []
    parts: list[Table | Figure | Note] = []
    for problem in problems(options):
        say(f"  {problem.name} ({problem.source}): {problem.shape}")
        files = _files(problem, options)
        _warm_up(problem, options)
        found[problem.name] = _compete(problem, files, options)
        if len(problem.rows) < LARGE:
            parts += figures(problem, files, options)
        parts.append(partitions(problem, files, options))
        sets.append(_without_rows(problem))
    tables = [table3(sets, found), *table4(sets, found)]
    results = {
        name: {one: [vars(outcome) for outcome in outcomes] for one, outcomes in runs.items()}
        for name, runs in found.items()
    }
    write_results(options, "vrkm", results)
    if not options.keep and options.scratch is None:
        shutil.rmtree(_folder(options), ignore_errors=True)
    return [*tables, *parts]


def _compete(
    problem: Problem, files: RunFiles[Outcome], options: Settings
) -> dict[str, list[Outcome]]:
    """Return the runs of all programs; for each seed, all start from the same rows."""
    runs: dict[str, list[Outcome]] = {name: [] for name in PROGRAMS}
    for seed in range(2 if options.quick else min(options.seeds, problem.most_seeds)):
        budget: float | None = None
        for name in PROGRAMS:
            made = files.get(
                f"{name}-{seed}",
                lambda name=name, seed=seed, budget=budget: program(name)(
                    problem, seed, options.threads, budget
                ),
            )
            runs[name].append(made)
            budget = BUDGET * runs["batch"][-1].fit_seconds
    return runs


def _warm_up(problem: Problem, options: Settings) -> None:
    few = Problem("few", "", problem.rows[: 10 * problem.k], None, problem.k, most_iterations=2)
    for name in PROGRAMS:
        program(name)(few, 0, options.threads, 0.2)
    variance_reduced(few, 0, options.threads, 0.2, n_partitions=2)


def _folder(options: Settings) -> Path:
    return options.folder(f"daskcluster-vrkm{'-quick' if options.quick else ''}")


def _files(problem: Problem, options: Settings) -> RunFiles[Outcome]:
    settings = {
        "source": problem.source,
        "shape": problem.shape,
        "threads": options.threads,
        "budget": BUDGET,
    }
    return RunFiles(_folder(options) / problem.name, settings, Outcome)


def _without_rows(problem: Problem) -> Problem:
    """Return the problem with rows that take no memory: only their shape is needed."""
    rows = np.broadcast_to(np.float32(0), problem.rows.shape)
    return Problem(
        problem.name, problem.source, rows, problem.classes, problem.k, problem.most_iterations
    )
