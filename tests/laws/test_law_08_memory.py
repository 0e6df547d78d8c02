"""Law 8: a fit of ten times the rows has the same peak memory out of core, measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from daskcluster.data.generate import generate

PROGRAM = """
import json, resource, sys
import daskcluster as dc
engine = dc.LocalEngine(n_threads=2, memory_limit=600 * 2**20)
model = dc.KMeans(16, init=sys.argv[2], n_init=1, max_iter=3, random_state=0, engine=engine)
model.fit(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak": peak, "read": model.bytes_read_, "passes": model.passes_}))
"""


def measure(url, init):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, init], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("init", "row_bytes"), [("random", 0), ("k-means||", 4)])
def test_ten_times_the_rows(tmp_path, init, row_bytes):
    few, many = 1_000_000, 10_000_000
    for n in (few, many):
        generate(str(tmp_path / f"{n}.zarr"), n_rows=n, n_features=16, n_clusters=16)
    measure(str(tmp_path / f"{few}.zarr"), init)  # compiles what is not in the cache
    small = measure(str(tmp_path / f"{few}.zarr"), init)
    large = measure(str(tmp_path / f"{many}.zarr"), init)
    assert large["read"] > 9 * small["read"]
    assert large["peak"] - small["peak"] <= row_bytes * (many - few) + 64 * 2**20
