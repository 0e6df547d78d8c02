"""What starting costs: the import, ``--help``, and compiled kernels in a second process."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from tests.benchmarks.harness import Options, Table, say

TAKES = "about a minute (--quick: half of it)"

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
from daskcluster import KMeans, LocalEngine
rows = np.random.default_rng(0).standard_normal((2000, 16), dtype=np.float32)
model = KMeans(8, init=rows[:8], n_init=1, max_iter=3, engine=LocalEngine(1))
begin = time.perf_counter()
model.fit(rows)
print(time.perf_counter() - begin)
"""


def run(options: Options) -> list[Table]:
    repeats = 3 if options.quick else 2 * options.repeats + 1
    say("  import and --help")
    rows = [
        ["import daskcluster, after numpy", f"{inside(IMPORT, repeats):.3f}", "<= 0.3"],
        ["daskcluster --help, whole process", f"{whole(HELP, repeats):.3f}", "<= 0.5"],
        ["python -c pass, for comparison", f"{whole(NOTHING, repeats):.3f}", None],
    ]
    with tempfile.TemporaryDirectory(prefix="daskcluster-bench-") as folder:
        say("  first fit of a process, kernels not compiled yet and compiled")
        first = inside(FIT, 1, NUMBA_CACHE_DIR=folder)
        later = inside(FIT, options.repeats, NUMBA_CACHE_DIR=folder)
    rows += [
        ["first small fit of the first process: compiles", f"{first:.2f}", None],
        ["first small fit of a later process: loads", f"{later:.2f}", "no compilation"],
    ]
    return [Table("Starting up, seconds", ["what", "seconds", "target"], rows)]


def inside(code: str, repeats: int, **environment: str) -> float:
    """Return the median of the seconds that `code` measures and prints, each in a new process."""
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
    """Run `code` in a new Python without warnings; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return done.stdout
