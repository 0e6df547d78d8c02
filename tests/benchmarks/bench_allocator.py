"""Settings of the memory allocator: speed of passes that read chunks, and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from daskcluster.data.generate import generate
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings

ABOUT = "settings of the memory allocator: ours against the defaults of Dask and of the C library"
TAKES = "about three minutes (--quick: half a minute)"

WORKERS = """
import json, statistics, sys
from contextlib import ExitStack
import numpy as np
from distributed import Client, LocalCluster
import daskcluster as dc
from daskcluster.engine.connect import local_cluster
from daskcluster.engine.dask import DaskEngine
from daskcluster.events import PassEnded

settings, url, passes = sys.argv[1], sys.argv[2], int(sys.argv[3])
LIMIT = 900 * 2**20

def most():
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

if __name__ == "__main__":
    with ExitStack() as stack:
        if settings == "ours":
            client = stack.enter_context(local_cluster(2, memory_limit=2 * LIMIT))
        else:
            options = dict(host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50)
            cluster = stack.enter_context(
                LocalCluster(2, threads_per_worker=1, memory_limit=LIMIT, **options)
            )
            client = stack.enter_context(Client(cluster))
        seconds, sizes = [], []
        def hear(event):
            if isinstance(event, PassEnded):
                seconds.append(event.seconds)
                if len(seconds) in (passes // 10, passes):
                    sizes.append(max(client.run(most).values()))
        dataset = dc.open_dataset(url)
        engine = DaskEngine(client, memory_limit=2 * 420 * 2**20)  # no room for resident rows
        dc.KMeans(
            8, init=dataset.take(np.arange(8)), max_iter=passes, tol=0, algorithm="lloyd",
            engine=engine, callbacks=(hear,),
        ).fit(dataset)
        passed = statistics.median(seconds[len(seconds) // 2:])
        print(json.dumps({"seconds": passed, "few": sizes[0], "many": sizes[-1]}))
"""

THREADS = """
import json, resource, statistics, sys
import numpy as np
import daskcluster as dc
from daskcluster.engine import local
from daskcluster.events import PassEnded

settings, url, passes = sys.argv[1], sys.argv[2], int(sys.argv[3])
if settings == "theirs":
    local.keep_no_blocks_over = lambda n_bytes: None
seconds, sizes = [], []

def hear(event):
    if isinstance(event, PassEnded):
        seconds.append(event.seconds)
        if len(seconds) in (passes // 10, passes):
            sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

dataset = dc.open_dataset(url)
dc.KMeans(
    8, init=dataset.take(np.arange(8)), max_iter=passes, tol=0, algorithm="lloyd",
    engine=local.LocalEngine(2, memory_limit=500 * 2**20), callbacks=(hear,),
).fit(dataset)
passed = statistics.median(seconds[len(seconds) // 2:])
print(json.dumps({"seconds": passed, "few": sizes[0], "many": sizes[-1]}))
"""


def measure(code: str, settings: str, url: str, passes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"  # spawned workers import it
        program.write_text(code)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(program), settings, url, str(passes)],
            check=True,
            capture_output=True,
            text=True,
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run(options: Settings) -> list[Table]:
    passes = 20 if options.quick else 100
    folder = options.folder("daskcluster-allocator")
    folder.mkdir(parents=True, exist_ok=True)
    n_rows = 2_000_000
    url = str(folder / "rows.zarr")
    generate(url, n_rows=n_rows, n_features=64, n_clusters=8, overwrite=True)
    shown = []
    for title, code, other in (
        ("Two workers, 512 MB read in each pass", WORKERS, "Dask's defaults"),
        ("Two threads, the same rows, memory limit 500 MiB", THREADS, "defaults of the C library"),
    ):
        table = Table(title, ["settings", "seconds per pass", "MB/s decoded",
                              *(f"peak after {n} passes, MiB"
                                for n in (passes // 10, passes))])  # fmt: skip
        for settings, name in (("ours", "daskcluster's"), ("theirs", other)):
            say(f"  {title}: {name}")
            found = measure(code, settings, url, passes)
            rate = n_rows * 64 * 4 / found["seconds"] / 1e6
            sizes = (f"{found[key] / 2**20:.0f}" for key in ("few", "many"))
            table.rows.append([name, found["seconds"], rate, *sizes])
        shown.append(table)
    return shown
