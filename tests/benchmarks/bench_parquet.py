"""Parquet files with a column of lists: reading, a fit and labels, next to pyarrow and Zarr."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import daskcluster as dc
from daskcluster.data.convert import convert
from daskcluster.engine.local import LocalEngine
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings

ABOUT = "Parquet files read in place: against pyarrow's own scan, and against the same rows in Zarr"
TAKES = "about three minutes (--quick: ten seconds)"
N_FILES, N_FEATURES, N_CLUSTERS = 20, 384, 1000


def write(folder: Path, n_rows: int, dtype: str) -> tuple[str, str]:
    """Write rows with ids to Parquet files and to Zarr; return both URLs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_CLUSTERS, N_FEATURES), dtype=np.float32)
    place = folder / dtype
    place.mkdir(parents=True, exist_ok=True)
    each = n_rows // N_FILES
    for part in range(N_FILES):
        noise = rng.standard_normal((each, N_FEATURES), dtype=np.float32)
        rows = (centres[rng.integers(0, N_CLUSTERS, each)] + 0.7 * noise).astype(dtype)
        offsets = np.arange(each + 1, dtype=np.int32) * N_FEATURES
        table = pa.table(
            {
                "id": [f"doc-{part:02d}-{i:06d}" for i in range(each)],
                "emb": pa.ListArray.from_arrays(offsets, pa.array(rows.ravel())),
            }
        )
        pq.write_table(table, place / f"part-{part}.parquet")
    convert(place, folder / f"{dtype}.zarr", columns="emb", overwrite=True)
    return str(place), str(folder / f"{dtype}.zarr")


def scan(url: str) -> int:
    """Return the number of rows that pyarrow's scan of the lists reads."""
    import pyarrow.dataset as ds

    batches = ds.dataset(url, format="parquet").to_batches(columns=["emb"])
    return sum(len(batch) for batch in batches)


def read(url: str, threads: int) -> int:
    """Return the number of rows that threads read, each some of the partitions."""
    dataset = dc.open_dataset(url)

    def count(first: int) -> int:
        return sum(chunk.n_rows for chunk in dataset.chunks(dataset.partitions[first::threads]))

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(count, range(threads)))


def median_of(work: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of some runs, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def run(options: Settings) -> list[Table]:
    import pyarrow as pa

    n_rows = 20_000 if options.quick else 300_000
    folder = options.folder("daskcluster-parquet")
    folder.mkdir(parents=True, exist_ok=True)
    threads, repeats = options.threads, options.repeats
    pa.set_cpu_count(threads)
    pa.set_io_thread_count(threads)
    reading = Table(
        f"Reading {n_rows:,} lists of {N_FEATURES} numbers with ids, {N_FILES} files",
        ["dtype", "pyarrow scan, s", "daskcluster, s", "scan / daskcluster", "Zarr, s"],
    )
    fits = Table(
        f"Five iterations of Lloyd's algorithm, k = {N_CLUSTERS:,}, and labels with ids",
        ["rows", "memory limit", "Zarr, s", "Parquet, s", "Parquet / Zarr", "labels as Zarr, s",
         "labels as Parquet, s"],
    )  # fmt: skip
    for dtype in ("float16", "float32"):
        say(f"  {dtype}")
        files, stored = write(folder, n_rows, dtype)
        times = [
            median_of(lambda url=url, work=work: work(url), repeats)
            for url, work in (
                (files, scan),
                (files, lambda url: read(url, threads)),
                (stored, lambda url: read(url, threads)),
            )
        ]
        reading.rows.append([dtype, times[0], times[1], times[0] / times[1], times[2]])
        for limit in (None, 700 << 20):
            fits.rows.append(_fit(dtype, files, stored, limit, threads, repeats))
    fits.notes.append("Labels are those of the rows in Parquet files.")
    return [reading, fits]


def _fit(
    dtype: str, files: str, stored: str, limit: int | None, threads: int, repeats: int
) -> list[Any]:
    engine = LocalEngine(threads, memory_limit=limit)
    start = dc.open_dataset(stored).take(np.arange(N_CLUSTERS))
    seconds = []
    for url in (stored, files):
        rows = dc.open_dataset(url)
        model = dc.KMeans(
            N_CLUSTERS, init=start, max_iter=5, tol=0, algorithm="lloyd", engine=engine
        )
        began = time.perf_counter()
        model.fit(rows)
        seconds.append(time.perf_counter() - began)
    rows = dc.open_dataset(files, id_column="id")
    labelled = []
    for ending in ("zarr", "parquet"):
        output = f"{files}-labels.{ending}"
        label = partial(model.predict, rows, output=output, overwrite=True)
        labelled.append(median_of(label, repeats))
    name = "none: rows stay in memory" if limit is None else f"{limit >> 20} MiB"
    return [dtype, name, seconds[0], seconds[1], seconds[1] / seconds[0], *labelled]
