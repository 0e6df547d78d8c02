"""Figures 1 to 13 of Jourdan and Schwartzman: kernel k-means by full batch and by mini-batches."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.benchmarks.energy_runs import Kept, RunFiles
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.kernel_kmeans import plots, tables
from tests.benchmarks.kernel_kmeans.problems import SETS, Problem, problem
from tests.benchmarks.kernel_kmeans.programs import (
    FULL,
    Fitted,
    Norm,
    Program,
    cells,
    fitted,
    norm,
    warm_up,
)

__all__ = ["SEEDS", "TAKES", "run"]

ABOUT = "agreement with true labels and time per step of full-batch, mini-batch and plain k-means"
TAKES = (
    "about five hours on 2 cores and 4 GB of memory: pendigits half an hour a kernel, mnist10k an hour, "
    "mnist half an hour, rings and moons minutes (--quick: two minutes). --sets "
    f"{','.join(SETS)} selects sets; --seeds 0 only shows what is saved in --scratch"
)
SEEDS = 10
LARGE_SEEDS = 2
"""Most seeds of sets with more than 20,000 rows."""


def run(options: Settings) -> list[Table | Figure | Note]:
    """Return the table of the kernels, a table for each set, and the plots."""
    wanted = options.sets or (("pendigits", "rings") if options.quick else tuple(SETS))
    compared, kernels = [], []
    for name in wanted:
        one = problem(name, options)
        say(f"  {one.name}: {one.X.shape}")
        found = _norm(one, options, _files(one, options, Norm))
        kernels += [] if found is None else [(one, found)]
        compared.append((one, _runs(one, options, _files(one, options, Fitted))))
        vars(one).pop("matrix", None)  # half a gigabyte
    shown: list[Any] = [tables.norms(kernels)]
    for one, runs in compared:
        if runs:
            shown += [tables.agreement(one, runs), plots.sweep(one, runs, options.images)]
    shown.append(plots.overview(compared, options.images))
    return [each for each in shown if each is not None]


def _files(one: Problem, options: Settings, kind: type[Kept]) -> RunFiles[Kept]:
    settings = {"threads": options.threads, "quick": options.quick, **one.settings}
    return RunFiles(options.folder("kernel-runs"), settings, kind)


def _norm(one: Problem, options: Settings, files: RunFiles[Norm]) -> Norm | None:
    """Return the norm of a kernel; with ``--seeds 0`` None if it is not saved."""
    name = f"{one.name}, kernel"
    return files.get(name, partial(norm, one)) if options.seeds else files.kept(name)


def _runs(one: Problem, options: Settings, files: RunFiles[Fitted]) -> dict[Program, list[Fitted]]:
    """Return the fits of every program; all programs run with a seed before the next seed starts."""
    listed = cells(one, quick=options.quick)
    found: dict[Program, list[Fitted]] = {program: [] for program in listed}
    if options.seeds == 0:
        for program in listed:
            kept = (files.kept(_name(one, program, seed)) for seed in range(100))
            found[program] = [fit for fit in kept if fit is not None]
        return {program: fits for program, fits in found.items() if fits}
    seeds = min(options.seeds, LARGE_SEEDS) if one.is_large else options.seeds
    ordered = sorted(((seed, program) for seed in range(seeds) for program in listed), key=_urgency)
    left = sum(files.kept(_name(one, program, seed)) is None for seed, program in ordered)
    say(f"    {left} of {len(ordered)} fits are missing")
    warm_up(one, listed, options.threads)
    for seed, program in ordered:
        make = partial(fitted, one, program, seed, options.threads)
        found[program].append(files.get(_name(one, program, seed), make))
    return found


def _urgency(one: tuple[int, Program]) -> tuple[bool, int, bool]:
    """Return the sort key of a fit: first the full batch, then Figure 1, then the rest."""
    seed, program = one
    return program.kind != FULL, seed, not program.is_of_figure1


def _name(one: Problem, program: Program, seed: int) -> str:
    return f"{one.name}, {program.name}, seed {seed}"
