"""Mini-batches out of core: the memory of a fit does not grow with the rows, measured."""

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
engine = dc.LocalEngine(n_threads=2, memory_limit=700 * 2**20)
heard = []
model = dc.MiniBatchKMeans(
    16, batch_size=5000, max_iter=1, max_no_improvement=None, random_state=0, engine=engine,
    callbacks=[lambda event: heard.append(getattr(event, "text", ""))],
)
model.fit(sys.argv[1])
# Not ru_maxrss: a child process inherits that of its parent.
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
pools = any("row groups" in text for text in heard)
print(json.dumps({"peak": peak, "read": model.bytes_read_, "pools": pools}))
"""
SLACK = 64 << 20


def measure(url):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_times_the_rows(tmp_path):
    sizes = {}
    for n in (5_000_000, 15_000_000):  # 320 MB and 960 MB
        url = str(tmp_path / f"{n}.zarr")
        generate(url, n_rows=n, n_features=16, n_clusters=16)
        sizes[n] = url
    measure(sizes[5_000_000])  # compiles what is not in the cache
    few, many = (measure(url) for url in sizes.values())
    peaks = [found["peak"] >> 20 for found in (few, many)]
    sys.stdout.write(f"\nmini-batch: {peaks} MiB for {[f'{n:,}' for n in sizes]} rows\n")
    assert few["pools"]
    assert many["pools"]
    assert many["read"] > 2 * 960e6  # the steps' pass, and the last one
    assert many["peak"] < few["peak"] + SLACK
    assert many["peak"] < 700 << 20
