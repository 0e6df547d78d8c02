"""Law 8: a fit of ten times the rows has the same peak memory out of core, measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from daskcluster.data.generate import generate

PROGRAM = """
import json, sys
from pathlib import Path
import daskcluster as dc
url, init, algorithm, limit = sys.argv[1:]
engine = dc.LocalEngine(n_threads=2, memory_limit=int(limit) * 2**20)
model = dc.KMeans(
    16, init=init, n_init=1, max_iter=5, tol=0, random_state=0, engine=engine, algorithm=algorithm
)
model.fit(url)
# Not ru_maxrss: a child process inherits that of its parent.
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
print(json.dumps({"peak": peak, "read": model.bytes_read_, "passes": model.passes_}))
"""


def measure(url, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("init", "algorithm", "limit", "row_bytes", "slack"),
    [
        ("random", "lloyd", 600, 0, 64),
        ("k-means||", "lloyd", 600, 4, 64),
        ("random", "hamerly", 820, 12, 64),
        ("random", "auto", 600, 0, 64),  # no room for bounds of all rows
    ],
)
def test_ten_times_the_rows(tmp_path, init, algorithm, limit, row_bytes, slack):
    few, many = 1_000_000, 10_000_000
    for n in (few, many):
        generate(str(tmp_path / f"{n}.zarr"), n_rows=n, n_features=16, n_clusters=16)
    choice = init, algorithm, limit
    measure(str(tmp_path / f"{few}.zarr"), *choice)  # compiles what is not in the cache
    small = measure(str(tmp_path / f"{few}.zarr"), *choice)
    large = measure(str(tmp_path / f"{many}.zarr"), *choice)
    peaks = [found["peak"] >> 20 for found in (small, large)]
    sys.stdout.write(f"\n{init} and {algorithm}: {peaks} MiB for {few:,} and {many:,} rows\n")
    assert large["read"] > 5 * small["read"]
    assert large["peak"] - small["peak"] <= row_bytes * (many - few) + slack * 2**20
    assert large["peak"] <= limit * 2**20
