"""Fits whose energy is followed: what a fit took until each of several moments, and how good it was there.

The energy is the mean squared distance of validation rows to their nearest centres. Runs are kept in
files, one each, so that a benchmark of hours goes on where it was interrupted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from tests.benchmarks import harness
from tests.benchmarks.harness import Options, cpu_name, say
from tests.benchmarks.minibatch_sets import Rows, folder_of


@dataclass(frozen=True)
class Run:
    """One fit, by its moments; the first one is the start, at no cost.

    Attributes
    ----------
    seconds, distances, energies : list of float
        Of each moment: time and distances spent until then, and the energy on validation rows.
    iterations : list of int
        Centre updates until then.
    fit_seconds : float
        The whole call, with what follows the last update.
    ended : bool
        The program stopped by its own rule, not by a limit.
    digest : str
        Of the last centres' bits; empty where another program made them.
    """

    seconds: list[float]
    distances: list[float]
    energies: list[float]
    iterations: list[int]
    fit_seconds: float
    ended: bool
    digest: str = ""

    @property
    def end(self) -> float:
        """Energy of the last centres."""
        return self.energies[-1]

    def time_to(self, energy: float) -> float | None:
        """Return the seconds until the energy was at most `energy`, None if it never was."""
        pairs = zip(self.seconds, self.energies, strict=True)
        return next((seconds for seconds, found in pairs if found <= energy), None)

    def energy_at(self, budget: np.ndarray, axis: str = "seconds") -> np.ndarray:
        """Return the energy when `budget` is spent: that of the last moment within it."""
        spent = np.asarray(getattr(self, axis))
        return np.asarray(self.energies)[np.searchsorted(spent, budget, side="right") - 1]


Kept = TypeVar("Kept")
"""What is kept of a run: a data class of plain values."""


@dataclass(frozen=True)
class RunFiles(Generic[Kept]):
    """Keeps the runs of one benchmark.

    Parameters
    ----------
    folder : Path
    settings : mapping
        What the runs depend on beside their names. Files made with others are made again, as
        are those of another processor: only times of one machine compare.
    kind : data class
        Of the runs.
    """

    folder: Path
    settings: Mapping[str, Any]
    kind: Callable[..., Kept]

    def get(
        self,
        name: str,
        make: Callable[[], Kept],
        *,
        enough: Callable[[Kept], bool] = lambda run: True,
    ) -> Kept:
        """Return the run of that name: the one that is kept if it is `enough`, else a new one."""
        path = self._path(name)
        kept = self.kept(name)
        if kept is not None and enough(kept):
            return kept
        say(f"    {name}")
        time.sleep(harness.REST)
        run = make()
        self._write(path, run)
        return run

    def kept(self, name: str) -> Kept | None:
        """Return the run of that name if there is one."""
        path = self._path(name)
        if not path.exists():
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        return self.kind(**record["run"]) if record["settings"] == self._stamp() else None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _write(self, path: Path, run: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "settings": self._stamp(),
            "made": f"{datetime.now(UTC):%F %T}",
            "run": asdict(run),
        }
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(record), encoding="utf-8")
        os.replace(unfinished, path)

    def _stamp(self) -> dict[str, Any]:
        return {**self.settings, "processor": cpu_name()}


def open_files(benchmark: str, rows: Rows, options: Options) -> RunFiles[Run]:
    """Return the runs of a benchmark on one set."""
    settings = {
        "source": rows.source,
        "shape": rows.shape,
        "batch": rows.batch,
        "threads": options.threads,
    }
    return RunFiles(folder_of(options) / "runs" / benchmark / rows.name, settings, Run)


def write_results(options: Options, name: str, results: Any) -> None:
    """Write what tables and plots were made from to results/ beside the file that gets the section."""
    if options.images is None:
        return
    folder = options.images.parent / "results"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_rounded(results), indent=None, separators=(",", ":"))
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Return the value with every number to five digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def moments(last: int, growth: float = 1.15) -> list[int]:
    """Return iterations at which to look: each of the first ones, then ever fewer, and the last.

    Examples
    --------
    >>> moments(20, 1.5)
    [1, 2, 3, 5, 8, 12, 18, 20]
    """
    found = [1]
    while found[-1] < last:
        found.append(min(last, max(found[-1] + 1, int(np.ceil(found[-1] * growth)))))
    return found


def mean_and_deviation(
    runs: Sequence[Run], best: float, budget: np.ndarray, axis: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation over runs of (energy - best) / best as `budget` is spent."""
    excess = np.array([run.energy_at(budget, axis) / best - 1.0 for run in runs])
    return excess.mean(axis=0), excess.std(axis=0, ddof=1 if len(runs) > 1 else 0)


def lowest(runs: Mapping[str, Sequence[Run]]) -> float:
    """Return the lowest energy of any moment of any run."""
    return min(min(run.energies) for found in runs.values() for run in found)
