"""What Dask adds to a pass: 2 workers, 64 partitions, totals of 1 MB. Printed, never asserted."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client

from daskcluster.data.open import open_dataset
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.local import LocalEngine
from tests.engine import reductions as r

REPEATS = 15


def median_pass(engine: Any, dataset: Any, width: int) -> tuple[float, np.ndarray]:
    """Return the median seconds of a pass over resident rows, and its result."""
    with engine.place(dataset) as placed:
        times = []
        for _ in range(REPEATS + 2):
            began = time.perf_counter()
            found = placed.reduce(r.WIDE, {"width": width})
            times.append(time.perf_counter() - began)
    return statistics.median(times[2:]), found


@pytest.mark.benchmark
def test_overhead_of_a_pass(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.ones((64 * 4096, 64), np.float32)
    array = zarr.create_array(
        str(tmp_path / "rows.zarr"), shape=rows.shape, chunks=(4096, 64), dtype="f4"
    )
    array[:] = rows
    dataset = open_dataset(str(tmp_path / "rows.zarr"))
    assert len(dataset.partitions) == 64
    for width in (3, 1 << 17):
        local, expected = median_pass(LocalEngine(2), dataset, width)
        there, found = median_pass(DaskEngine(client), dataset, width)
        assert np.array_equal(found, expected)
        with capsys.disabled():
            sys.stdout.write(
                f"\n{8 * width:>8} bytes of totals: local {1e3 * local:.1f} ms, "
                f"Dask {1e3 * there:.1f} ms, overhead {1e3 * (there - local):.1f} ms\n"
            )
