"""Law 8 of nested batches: what is gathered has a limit, whatever the number of rows."""

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
url, bounds, limit = sys.argv[1:]
model = dc.NestedMiniBatchKMeans(
    16, init="random", batch_size=20_000, rho=0.1, max_iter=14, random_state=0,
    bounds=False if bounds == "none" else bounds,
    engine=dc.LocalEngine(n_threads=2, memory_limit=int(limit) * 2**20),
).fit(url)
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
sizes = [record["batch_size"] for record in model.history_]
print(json.dumps({"peak": peak, "read": model.bytes_read_, "sizes": sizes}))
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
@pytest.mark.parametrize(("bounds", "limit", "row_bytes"), [("none", 700, 4), ("hamerly", 900, 16)])
def test_ten_times_the_rows(tmp_path, bounds, limit, row_bytes):
    few, many = 1_000_000, 10_000_000
    for n in (few, many):
        generate(str(tmp_path / f"{n}.zarr"), n_rows=n, n_features=16, n_clusters=16)
    measure(str(tmp_path / f"{few}.zarr"), bounds, limit)  # compiles what is not in the cache
    small = measure(str(tmp_path / f"{few}.zarr"), bounds, limit)
    large = measure(str(tmp_path / f"{many}.zarr"), bounds, limit)
    peaks = [found["peak"] >> 20 for found in (small, large)]
    sys.stdout.write(f"\nnested with bounds {bounds}: {peaks} MiB for {few:,} and {many:,} rows\n")
    assert small["sizes"][-1] == few
    assert large["sizes"][-1] == many
    assert large["peak"] <= limit * 2**20
    gathered = 256 * 2**20
    assert large["peak"] - small["peak"] <= row_bytes * (many - few) + gathered
