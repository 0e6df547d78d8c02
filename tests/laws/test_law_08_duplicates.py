"""Law 8 for near-duplicates: the stated memory holds for any number of rows, and in a crowded cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

PROGRAM = """
import json, sys
from pathlib import Path
import daskcluster as dc
from daskcluster.events import PassStarted
from daskcluster.methods.duplicates.search import DuplicatesPlan
url, threads = sys.argv[1], int(sys.argv[2])
peaks = {}
def hear(event):
    # The peak until each sweep begins; it only grows.
    if isinstance(event, PassStarted):
        status = Path("/proc/self/status").read_text()
        peaks[event.name] = int(status.partition("VmHWM:")[2].split()[0]) * 1024
plan = DuplicatesPlan.of(dc.open_dataset(url))
found = dc.near_duplicates(url, 0.95, engine=dc.LocalEngine(threads), callbacks=[hear])
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
stated = {"driver": plan.memory_driver, "all": plan.memory(threads)}
facts = {"n_copies": found.n_copies, "n_groups": found.n_groups}
print(json.dumps({"peak": peak, "peaks": peaks, **stated, **facts}))
"""
D, CHUNK = 768, 5000


def write(path: Path, n: int, *, crowded: bool = False) -> str:
    """Write rows of length one in 300 clusters; if `crowded`, half of them in one, a tenth of it equal."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((300, D), np.float32) / np.sqrt(D, dtype=np.float32)
    array = zarr.create_array(path, shape=(n, D), chunks=(CHUNK, D), dtype="f2")
    for start in range(0, n, CHUNK):
        labels = rng.integers(0, 300, min(CHUNK, n - start))
        scales = np.full((len(labels), 1), 0.7 / np.sqrt(D), np.float32)
        if crowded:
            labels[::2], scales[::2] = 7, 0.35 / np.sqrt(D)
        rows = centres[labels] + scales * rng.standard_normal((len(labels), D), np.float32)
        rows[1::50] = rows[::50]  # planted
        if crowded:
            rows[::20] = centres[7]
        rows /= np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
        array[start : start + len(rows)] = rows.astype(np.float16)
    return str(path)


def measured(url: str, threads: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, str(threads)],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("crowded", [False, True])
def test_the_stated_memory_holds(crowded: bool, tmp_path: Path) -> None:
    few, many = 40_000, 120_000
    urls = [write(tmp_path / f"{n}.zarr", n, crowded=crowded) for n in (few, many)]
    measured(urls[0], 1)  # compiles what is not in the cache
    found = [measured(url, 1) for url in urls]
    for each in found:
        assert each["n_groups"] > 0
        # Until the blocks are prepared, there are no tasks but those of one pass.
        assert each["peaks"]["blocks"] <= each["driver"]
        assert each["peak"] <= each["all"]
    if crowded:
        assert found[1]["n_copies"] > many // 25
    small, large = (each["peak"] for each in found)
    sys.stdout.write(f"\n{small >> 20} and {large >> 20} MiB for {few:,} and {many:,} rows\n")
    # Cells grow with the root of the number of rows.
    assert found[1]["all"] - found[0]["all"] <= 112 * (many - few) + 64 * 2**20
