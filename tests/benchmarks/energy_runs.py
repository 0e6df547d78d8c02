"""Runs saved in files, one each, so that an interrupted benchmark resumes."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from tests.benchmarks.harness.energy import Rows, Run
from tests.benchmarks.harness.machine import cpu_name
from tests.benchmarks.harness.race import rest, say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.minibatch_sets import folder_of

Kept = TypeVar("Kept")
"""A saved run: a data class of plain values."""


@dataclass(frozen=True)
class RunFiles(Generic[Kept]):
    """The saved runs of one benchmark.

    Parameters
    ----------
    folder : Path
    settings : mapping
        Settings that saved runs must match. Runs with other settings, or of another processor, are
        made again.
    kind : data class
        Class of the runs.
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
        """Return the saved run of that name if it is `enough`, otherwise make and save a new one."""
        path = self._path(name)
        kept = self.kept(name)
        if kept is not None and enough(kept):
            return kept
        say(f"    {name}")
        rest()
        run = make()
        self._write(path, run)
        return run

    def kept(self, name: str) -> Kept | None:
        """Return the saved run of that name, None if there is none."""
        path = self._path(name)
        if not path.exists():
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        return self.kind(**record["run"]) if record["settings"] == self._stamp() else None

    def seeds(self, wanted: int, *names: str) -> int:
        """Return the number of seeds to run; for 0, those from which all these runs are saved.

        Raises
        ------
        ValueError
            There are none.
        """
        if wanted:
            return wanted
        whole = (all(self.kept(f"{name}-{seed}") for name in names) for seed in itertools.count())
        found = next(seed for seed, saved in enumerate(whole) if not saved)
        if not found:
            raise ValueError(
                f"--seeds 0 shows saved fits; expected some in {self.folder}, found none."
            )
        return found

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


def open_files(benchmark: str, rows: Rows, options: Settings) -> RunFiles[Run]:
    """Return the saved runs of a benchmark on one set."""
    settings = {
        "source": rows.source,
        "shape": rows.shape,
        "batch": rows.batch,
        "threads": options.threads,
    }
    return RunFiles(folder_of(options) / "runs" / benchmark / rows.name, settings, Run)


def write_results(options: Settings, name: str, results: Any) -> None:
    """Write the data of tables and plots to results/ next to the page."""
    if options.images is None:
        return
    folder = options.images.parent / "results"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_rounded(results), indent=None, separators=(",", ":"))
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def with_kept(options: Settings, name: str, results: dict[str, Any], order: Sequence[str]) -> Any:
    """Return results by set, with those of sets that an earlier run wrote to results/."""
    path = None if options.images is None else options.images.parent / "results" / f"{name}.json"
    kept = {} if path is None or not path.exists() else json.loads(path.read_text(encoding="utf-8"))
    both = {**kept, **results}
    return {one: both[one] for one in order if one in both}


def _rounded(value: Any) -> Any:
    """Return the value with all numbers rounded to five digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def mean_and_deviation(
    runs: Sequence[Run], best: float, budget: np.ndarray, axis: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation over runs of (energy - best) / best by spent `budget`."""
    excess = np.array([run.energy_at(budget, axis) / best - 1.0 for run in runs])
    return excess.mean(axis=0), excess.std(axis=0, ddof=1 if len(runs) > 1 else 0)
