"""Lloyd on a Dask cluster: against dask-ml, against the local engine, and 1 worker against 2."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness import Options, Table, mixture, race, say

TAKES = "about 5 minutes on 2 cores (--quick: 1 minute)"
ITERATIONS = 10
SHAPES = ((400_000, 32, 100), (1_000_000, 16, 50))
QUICK = ((40_000, 32, 100),)


def run(options: Options) -> list[Table]:
    with tempfile.TemporaryDirectory(prefix="daskcluster-bench-") as folder:
        return [
            _against_dask_ml(Path(folder), options),
            _overhead(Path(folder), options),
            _scaling(Path(folder), options),
        ]


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Yield a client of `workers` processes with one thread each, on loopback."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as here,
        Client(here) as client,
    ):
        client.wait_for_workers(workers)
        yield client


def write(path: Path, rows: np.ndarray, chunk_rows: int) -> str:
    import zarr

    array = zarr.create_array(
        str(path), shape=rows.shape, chunks=(chunk_rows, rows.shape[1]), dtype=rows.dtype
    )
    array[:] = rows
    return str(path)


def fit(url: str, centres: np.ndarray, iterations: int, engine: Any) -> int:
    from daskcluster import KMeans, open_dataset

    model = KMeans(
        len(centres),
        init=centres,
        n_init=1,
        algorithm="lloyd",
        max_iter=iterations,
        tol=0,
        engine=engine,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(open_dataset(url))
    return int(model.n_iter_)


def per_iteration(
    url: str, centres: np.ndarray, engines: dict[str, Any], repeats: int
) -> dict[str, float]:
    """Return seconds of one iteration for each engine: a long fit less a short one.

    The difference leaves out what a fit does once: opening, validation, reading into memory.
    """
    short, long = 2, 2 + ITERATIONS
    programs: dict[str, Callable[[], int]] = {}
    for name, engine in engines.items():
        programs[f"{name} short"] = partial(fit, url, centres, short, engine)
        programs[f"{name} long"] = partial(fit, url, centres, long, engine)
    found = race(programs, repeats)
    return {
        name: (found[f"{name} long"].median - found[f"{name} short"].median) / ITERATIONS
        for name in engines
    }


def _against_dask_ml(folder: Path, options: Options) -> Table:
    table = Table(
        "Lloyd iteration on the same Dask cluster (2 workers x 1 thread), seconds",
        ["n, d, k", "daskcluster", "dask-ml", "dask-ml / ours", "target"],
        notes=[
            f"Whole fits of {ITERATIONS} iterations divided by their number; ours reads the Zarr "
            "array from disk in every fit, dask-ml finds it persisted in the workers' memory."
        ],
    )
    try:
        from dask_ml.cluster import KMeans
    except ImportError as error:
        table.notes.append(f'dask-ml is skipped ({error}); pip install "daskcluster[benchmark]"')
        return table
    import dask.array

    def theirs(blocks: Any, centres: np.ndarray) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = KMeans(len(centres), init=centres.copy(), max_iter=ITERATIONS, tol=0)
            return int(model.fit(blocks).n_iter_)

    with cluster(2) as client:
        for n, d, k in QUICK if options.quick else SHAPES:
            say(f"  against dask-ml: n, d, k = {n:,}, {d}, {k}")
            rows = mixture(n, d, k)
            url = write(folder / f"peer-{n}-{d}.zarr", rows, -(-n // 16))
            centres = rows[:k].copy()
            blocks = dask.array.from_zarr(url).persist()
            found = race(
                {
                    "ours": partial(fit, url, centres, ITERATIONS, client),
                    "theirs": partial(theirs, blocks, centres),
                },
                options.repeats,
            )
            each = {name: outcome.median / outcome.value for name, outcome in found.items()}
            ratio = each["theirs"] / each["ours"]
            table.rows.append(
                [f"{n:,}, {d}, {k}", each["ours"], each["theirs"], f"{ratio:.1f}", ">= 5"]
            )
    return table


def _overhead(folder: Path, options: Options) -> Table:
    from daskcluster import LocalEngine, open_dataset

    n, d, k = 64 * 1024, 256, 512
    say(f"  overhead over the local engine: n, d, k = {n:,}, {d}, {k}")
    rows = mixture(n, d, k)
    url = write(folder / "overhead.zarr", rows, 1024)
    partitions = len(open_dataset(url).partitions)
    with cluster(2) as client:
        engines = {"local": LocalEngine(2), "cluster": client}
        found = per_iteration(url, rows[:k].copy(), engines, options.repeats)
    added = 1e3 * (found["cluster"] - found["local"])
    return Table(
        "What Dask adds to an iteration, milliseconds",
        ["partitions", "statistics", "local, 2 threads", "2 workers", "added", "target"],
        [
            [
                partitions,
                f"{k * d * 8 / 2**20:.1f} MB",
                1e3 * found["local"],
                1e3 * found["cluster"],
                f"{added:.1f}",
                "<= 100",
            ]
        ],
        ["(fit of 12 iterations - fit of 2 iterations) / 10, medians."],
    )


def _scaling(folder: Path, options: Options) -> Table:
    n, d, k = (50_000, 64, 500) if options.quick else (200_000, 128, 1000)
    say(f"  1 and 2 workers: n, d, k = {n:,}, {d}, {k}")
    rows = mixture(n, d, k)
    url = write(folder / "scaling.zarr", rows, -(-n // 64))
    centres = rows[:k].copy()
    with cluster(1) as one, cluster(2) as two:
        found = per_iteration(url, centres, {"1": one, "2": two}, options.repeats)
    return Table(
        "From one worker to two (one thread each), seconds an iteration",
        ["n, d, k", "1 worker", "2 workers", "speed-up", "target"],
        [[f"{n:,}, {d}, {k}", found["1"], found["2"], f"{found['1'] / found['2']:.2f}", ">= 1.8"]],
        ["Both clusters are up at the same time, so that the order rotates within one run."],
    )
