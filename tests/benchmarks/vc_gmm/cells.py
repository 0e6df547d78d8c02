"""Saved fits of a set: a cell is one setting and one seed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.vc_gmm import programs, sweeps
from tests.benchmarks.vc_gmm.outcomes import Outcome, Setting
from tests.benchmarks.vc_gmm.problems import Problem

Baseline = Callable[[int], np.ndarray | None]
"""Labels of k-means++ by seed."""


class Cells:
    """The saved cells of one set.

    Parameters
    ----------
    problem : Problem
        As it is solved.
    options : Settings
    """

    def __init__(self, problem: Problem, options: Settings) -> None:
        self.problem, self.threads, self._data = problem, options.threads, options.data
        self._folder = folder_of(options) / problem.name
        self.source = problem.source(options.data)
        settings = {
            "source": self.source,
            "shape": problem.shape,
            "threads": options.threads,
        }
        self._files = RunFiles(self._folder, settings, Outcome)

    def outcomes(self, setting: Setting) -> list[Outcome]:
        """Return the saved outcomes of a setting, one per seed."""
        found = []
        for path in sorted(self._folder.glob(f"{setting.name}-*.json")):
            kept = self._files.kept(path.stem)
            found += [kept] if kept is not None else []
        return found

    def make(self, settings: Sequence[Setting], seeds: int) -> None:
        """Run the missing cells; load the rows only if there are any."""
        missing = [
            (setting, seed)
            for seed in range(seeds)
            for setting in settings
            if self._files.kept(_name(setting, seed)) is None
        ]
        if not missing:
            return
        say(f"  {self.problem.name}: {self.problem.shape}; {len(missing)} fits")
        rows, evaluated = self.problem.load(self._data)
        programs.warm_up(rows, self.threads, settings)
        baseline = lru_cache(maxsize=1)(partial(self._baseline, evaluated))
        for setting, seed in missing:
            make = partial(self._outcome, rows, evaluated, setting, seed, baseline)
            self._files.get(_name(setting, seed), make)

    def _outcome(
        self,
        rows: np.ndarray,
        evaluated: np.ndarray,
        setting: Setting,
        seed: int,
        baseline: Baseline,
    ) -> Outcome:
        found = programs.fit(rows, setting, seed, self.threads)
        error, labels = programs.measure_run(evaluated, found.centres, self.threads)
        is_baseline = setting == sweeps.base(self.problem, "k-means++")
        others = baseline(seed - 1 if is_baseline else seed)
        if is_baseline:
            np.save(self._baseline_path(seed), found.centres)
        return Outcome(
            found.seconds,
            found.processor,
            found.distances,
            found.n_iter,
            error,
            nmi=None if others is None else programs.mutual_information(labels, others),
            free_energy=found.free_energy,
            components=len(found.centres),
        )

    def _baseline(self, evaluated: np.ndarray, seed: int) -> np.ndarray | None:
        """Return the partition of k-means++ from that seed, None if it is not saved."""
        path = self._baseline_path(seed)
        if not path.exists():
            return None
        return programs.measure_run(evaluated, np.load(path), self.threads)[1]

    def _baseline_path(self, seed: int) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / f"centres-{seed}.npy"


def _name(setting: Setting, seed: int) -> str:
    return f"{setting.name}-{seed}"


def folder_of(options: Settings) -> Path:
    """Return the folder of saved cells."""
    return options.folder(f"daskcluster-vc-gmm{'-quick' if options.quick else ''}")


def chosen(problems: dict[str, Problem], options: Settings) -> Iterator[Problem]:
    """Yield the chosen sets, scaled for ``--quick``.

    Raises
    ------
    ValueError
        A name is not one of the sets.
    """
    for name in options.sets:
        if name not in problems:
            raise ValueError(f"--sets {name} should be some of {','.join(problems)}.")
    for name in options.sets or problems:
        yield problems[name].scaled(options)


def finished(options: Settings) -> None:
    """Remove the cells, unless ``--keep``."""
    if not options.keep:
        shutil.rmtree(folder_of(options), ignore_errors=True)
