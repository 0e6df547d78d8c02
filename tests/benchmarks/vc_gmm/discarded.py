"""Mixtures that leave components without rows out, as the journal version of vc-GMM does."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.vc_gmm import sweeps
from tests.benchmarks.vc_gmm.cells import Cells, chosen, finished
from tests.benchmarks.vc_gmm.outcomes import Setting
from tests.benchmarks.vc_gmm.problems import PROBLEMS, Problem
from tests.benchmarks.vc_gmm.tables import Compared, mean

ABOUT = "mixtures with all their components, and without those that have no rows at the end"
TAKES = (
    "about two minutes for each seed on 2 cores and 2 GB of memory (--quick: 1 minute); finished fits are "
    "saved in --scratch DIR, and an interrupted run resumes"
)
SEEDS, QUICK_SEEDS = 3, 2
SETS = ("cod_rna", "mnist", "kddcup99_10pct")


def run(options: Settings) -> list[Table]:
    """Run the missing fits; return the table of all saved ones."""
    table = Table(
        "Components left, and errors relative to k-means++",
        ["set", "program", "runs", "components", "left", "relative error, all",
         "relative error, left", "error, left / all"],
        notes=[
            "Both fits of a seed are the same up to the end, where one leaves out the components without "
            "posterior weight (`discard_empty=True`). Errors as in Table 1 of `vc-gmm`. Means over seeds, "
            "of errors with standard deviations.",
        ],
    )  # fmt: skip
    offered = {name: PROBLEMS[name] for name in SETS}
    for problem in chosen(offered, options if options.sets else replace(options, sets=SETS)):
        cells, pairs = Cells(problem, options), list(_pairs(problem))
        settings = [sweeps.base(problem, "k-means++"), *(one for pair in pairs for one in pair)]
        cells.make(settings, QUICK_SEEDS if options.quick else options.seeds)
        table.rows += [_line(Compared(cells), *pair) for pair in pairs]
    finished(options)
    return [table]


def _pairs(problem: Problem) -> Iterator[tuple[Setting, Setting]]:
    for program in ("var-GMM-S", "vc-GMM"):
        setting = sweeps.base(problem, program)
        yield setting, replace(setting, discards=True)


def _line(compared: Compared, whole: Setting, discarding: Setting) -> list[Any]:
    everything, left = compared.of(whole), compared.of(discarding)
    ratios = [one.error / other.error for one, other in zip(left, everything, strict=True)]
    return [
        compared.problem.name,
        whole.program,
        len(left),
        whole.k,
        f"{mean(left, lambda one: one.components or 0):.1f}",
        compared.error(everything),
        compared.error(left),
        f"{statistics.fmean(ratios):.4f}",
    ]
