"""Start-up time: the import, ``--help``, and the first fit in a new process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial

from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
IMPORT_TARGET, HELP_TARGET = 0.3, 0.5
FIRST_TARGET, START_TARGET = 5.0, 1.5
NOTHING = "pass"
IMPORT = """
import time
import numpy
begin = time.perf_counter()
import daskcluster
print(time.perf_counter() - begin)
"""
HELP = """
import sys
from daskcluster.cli.main import main
sys.argv = ["daskcluster", "--help"]
main()
"""
FIT = """
import time
import numpy as np
import numba
rows = np.random.default_rng(0).standard_normal((200_000, 16), dtype=np.float32)
begin = time.perf_counter()
from daskcluster import KMeans
loaded = time.perf_counter()
KMeans(8, random_state=0).fit(rows).predict(rows)
first = time.perf_counter()
KMeans(8, random_state=0).fit(rows).predict(rows)
second = time.perf_counter() - first
print(loaded - begin, first - loaded - second)
"""
"""Seconds of the imports, and by how much the first fit and predict take longer than the second."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for the import, and one for the first fit."""
    yield Cell("import", partial(measure_import, settings))
    yield Cell("first fit", partial(measure_first_fit, settings))


def measure_import(settings: Settings) -> Figures:
    """Return the seconds of the import and of ``--help``."""
    repeats = 3 if settings.quick else 2 * settings.repeats + 1
    return {
        "import": inside(IMPORT, repeats),
        "help": whole(HELP, repeats),
        "nothing": whole(NOTHING, repeats),
    }


def measure_first_fit(settings: Settings) -> Figures:
    """Return the seconds that a process waits which compiles kernels, and one that loads them."""
    with tempfile.TemporaryDirectory(prefix="daskcluster-compare-") as folder:
        _, first = _waits(folder)
        later = [_waits(folder) for _ in range(settings.repeats)]
    imports, loads = (statistics.median(each) for each in zip(*later, strict=True))
    return {"imports": imports, "first": first, "later": loads, "start": imports + loads}


def _waits(folder: str) -> tuple[float, float]:
    imports, longer = map(float, start(FIT, {"NUMBA_CACHE_DIR": folder}).split())
    return imports, longer


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    names = {
        "import": ("import daskcluster, after numpy", f"<= {IMPORT_TARGET:g}"),
        "help": ("daskcluster --help, whole process", f"<= {HELP_TARGET:g}"),
        "nothing": ("python -c pass, for comparison", None),
        "first": (
            "first fit and predict of 200,000 x 16, longer than the second: kernels are compiled",
            f"<= {FIRST_TARGET:g}",
        ),
        "later": ("the same in a later process: kernels are loaded", None),
        "imports": ("imports of KMeans, after numpy and numba", None),
        "start": ("imports, first fit and predict of a later process", f"<= {START_TARGET:g}"),
    }
    found = {key: value for one in records.values() for key, value in one.items()}
    table = Table("Seconds to start", ["step", "seconds", "target"])
    for key, (what, goal) in names.items():
        if key in found:
            table.rows.append([what, f"{found[key]:.3f}", goal])
    return [table]


def inside(code: str, repeats: int, **environment: str) -> float:
    """Return the median of the seconds that `code` prints, each run in a new process."""
    return statistics.median(float(start(code, environment)) for _ in range(repeats))


def whole(code: str, repeats: int) -> float:
    """Return the median seconds of a new process that runs `code`."""
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        start(code, {})
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def start(code: str, environment: dict[str, str]) -> str:
    """Run `code` in a new Python process without warnings; return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def _read(records: Records) -> Reading | None:
    one = records.get("import")
    if one is None:
        return None
    met = one["import"] <= IMPORT_TARGET and one["help"] <= HELP_TARGET
    return Reading(f"{one['import']:.3f} s and {one['help']:.2f} s", met)


def _read_first(key: str, target: float, records: Records) -> Reading | None:
    one = records.get("first fit")
    found = None if one is None else one.get(key)
    return None if found is None else Reading(f"{found:.2f} s", found <= target)


TARGETS: tuple[Target, ...] = (
    Target(
        "start-up",
        "`import daskcluster` after numpy, and `daskcluster --help`",
        f"<= {IMPORT_TARGET:g} s and <= {HELP_TARGET:g} s",
        _read,
    ),
    Target(
        "first-fit",
        "First fit and predict from an empty cache of kernels, longer than the second",
        f"<= {FIRST_TARGET:g} s",
        partial(_read_first, "first", FIRST_TARGET),
    ),
    Target(
        "first-call",
        "Imports, first fit and predict of a process with compiled kernels, over numpy and numba",
        f"<= {START_TARGET:g} s",
        partial(_read_first, "start", START_TARGET),
    ),
)
