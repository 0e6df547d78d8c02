"""Figures 3, 6 and 7 of Zhao et al., and one partition against many."""

from __future__ import annotations

from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.vrkm import files_of, finished, warm_up
from tests.benchmarks.vrkm.problems import problems
from tests.benchmarks.vrkm.sweeps import figures, partitions

ABOUT = "Figures 3, 6 and 7, and one partition against many: VRKM++ from one seed"
TAKES = (
    "about three quarters of an hour on 2 cores and 4 GB of memory (--quick: 1 minute); finished fits are "
    "saved in --scratch, and an interrupted run resumes"
)


def run(options: Settings) -> list[Table | Figure | Note]:
    """Return all tables and plots of the chosen sets."""
    parts: list[Table | Figure | Note] = []
    for problem in problems(options):
        say(f"  {problem.name} ({problem.source}): {problem.shape}")
        files = files_of(problem, options)
        warm_up(problem, options)
        if not problem.is_large:
            parts += figures(problem, files, options)
        parts.append(partitions(problem, files, options))
    finished(options)
    about_undone = (
        "Undone epochs: the inertia had risen or steps had diverged, so the epoch was undone and the rate "
        "halved. Without this guard the rate stays, as in the paper; the fit has diverged if its last loss "
        "is above its best."
    )
    return [*parts, Note(about_undone)]
