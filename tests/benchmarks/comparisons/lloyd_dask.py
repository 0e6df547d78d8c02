"""Lloyd on a Dask cluster: against dask-ml, against the local engine, and two workers against one."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness.cells import (
    Cell,
    Figures,
    Reading,
    Records,
    Target,
    at_least,
    at_most,
)
from tests.benchmarks.harness.iterations import ITERATIONS, fit_store, per_iteration
from tests.benchmarks.harness.parts import Part, Table, ratio
from tests.benchmarks.harness.peers import quietly
from tests.benchmarks.harness.quality import fair
from tests.benchmarks.harness.race import race, turns
from tests.benchmarks.harness.rows import mixture
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.stores import write

SCRATCH: tuple[str, ...] = ()
SHAPES = ((400_000, 32, 100), (1_000_000, 16, 50))
QUICK = ((40_000, 32, 100),)
PEER_TARGET, ADDED_TARGET, SPEED_UP_TARGET = 5.0, 100.0, 1.8
ADDED, WORKERS = "what Dask adds", "one worker and two"


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield the cells against dask-ml, then those of the overhead and of the workers."""
    for n, d, k in QUICK if settings.quick else SHAPES:
        yield Cell(f"{n:,}, {d}, {k}", partial(measure_peer, n, d, k, settings))
    yield Cell(ADDED, partial(measure_added, settings))
    yield Cell(WORKERS, partial(measure_workers, settings))


def measure_peer(n: int, d: int, k: int, settings: Settings) -> Figures:
    """Return the seconds per iteration of both programs on one cluster, and whether they are comparable."""
    from daskcluster import quantization_error
    from daskcluster.engine.connect import local_cluster

    rows = mixture(n, d, k)
    centres = rows[:k].copy()
    with (
        tempfile.TemporaryDirectory(prefix="daskcluster-compare-") as folder,
        local_cluster(2) as client,
        client.as_current(),
    ):
        url = write(Path(folder) / "rows.zarr", rows, -(-n // 16))
        programs: dict[str, Any] = {"ours": partial(fit_store, url, centres, ITERATIONS, client)}
        try:
            programs["theirs"] = partial(_dask_ml, _persisted(url), centres)
        except ImportError as error:
            note = f'dask-ml is skipped ({error}); pip install "daskcluster[benchmark]"'
            return {"notes": [note]}
        found = race(programs, settings.repeats)
    costs = {
        name: quantization_error(rows, one.value.cluster_centers_.astype(np.float32))
        for name, one in found.items()
    }
    same, remarks = fair(costs["ours"], {"dask-ml": costs["theirs"]})
    each = {name: one.median / int(one.value.n_iter_) for name, one in found.items()}
    return {**each, "fair": bool(same), "notes": remarks}


def _persisted(url: str) -> Any:
    import dask.array
    import dask_ml.cluster  # noqa: F401

    return dask.array.from_zarr(url).persist()


def _dask_ml(blocks: Any, centres: np.ndarray) -> Any:
    from dask_ml.cluster import KMeans

    return quietly(KMeans(len(centres), init=centres.copy(), max_iter=ITERATIONS, tol=0), blocks)


def measure_added(settings: Settings) -> Figures:
    """Return the seconds per iteration with a megabyte of statistics, locally and on two workers."""
    from daskcluster import LocalEngine, open_dataset
    from daskcluster.engine.connect import local_cluster

    n, d, k = 64 * 1024, 256, 512
    rows = mixture(n, d, k)
    with tempfile.TemporaryDirectory(prefix="daskcluster-compare-") as folder:
        url = write(Path(folder) / "rows.zarr", rows, 1024)
        partitions = len(open_dataset(url).partitions)
        with local_cluster(2) as client:
            engines = {"local": LocalEngine(2), "cluster": client}
            found = per_iteration(url, rows[:k].copy(), engines, settings.repeats)
    return {**found, "partitions": partitions, "megabytes": k * d * 8 / 2**20}


def measure_workers(settings: Settings) -> Figures:
    """Return the seconds per iteration on one worker and on two, on clusters that take turns.

    An idle cluster would slow the other one down: its workers still answer their scheduler.
    """
    from daskcluster.engine.connect import local_cluster

    n, d, k = (50_000, 64, 500) if settings.quick else (200_000, 128, 1000)
    rows = mixture(n, d, k)
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    with tempfile.TemporaryDirectory(prefix="daskcluster-compare-") as folder:
        url = write(Path(folder) / "rows.zarr", rows, -(-n // 64))
        for name in turns(list(seconds), settings.repeats):
            with local_cluster(int(name)) as client:
                found = per_iteration(url, rows[:k].copy(), {name: client}, 1)
            seconds[name].append(found[name])
    medians = {name: statistics.median(several) for name, several in seconds.items()}
    return {**medians, "shape": f"{n:,}, {d}, {k}"}


def show(records: Records, settings: Settings) -> list[Part]:
    """Return a table for each kind of cell."""
    against = {name: one for name, one in records.items() if name not in (ADDED, WORKERS)}
    parts: list[Part] = [_against(against)] if against else []
    if (one := records.get(ADDED)) is not None:
        parts.append(_added(one))
    if (one := records.get(WORKERS)) is not None:
        parts.append(_workers(one))
    return parts


def _against(records: Records) -> Table:
    table = Table(
        "Seconds per Lloyd iteration on the same Dask cluster (2 workers x 1 thread)",
        ["n, d, k", "daskcluster", "dask-ml", "dask-ml / ours", "target"],
        [
            [name, one.get("ours"), one.get("theirs"), ratio(_against_ours(one), 1.0, 1),
             f">= {PEER_TARGET:g}"]
            for name, one in records.items()
        ],
        [
            f"Time of a fit divided by its {ITERATIONS} iterations. Our fits read the Zarr array "
            "from disk; "
            "for dask-ml it is persisted in the memory of the workers."
        ],
    )  # fmt: skip
    table.notes += dict.fromkeys(note for one in records.values() for note in one["notes"])
    return table


def _against_ours(one: Figures) -> float | None:
    return one["theirs"] / one["ours"] if one.get("fair") else None


def _added(one: Figures) -> Table:
    return Table(
        "Milliseconds that Dask adds to an iteration",
        ["partitions", "statistics", "local, 2 threads", "2 workers", "added", "target"],
        [[
            one["partitions"], f"{one['megabytes']:.1f} MB", 1e3 * one["local"], 1e3 * one["cluster"],
            f"{_added_ms(one):.1f}", f"<= {ADDED_TARGET:g}",
        ]],
        [f"Medians of (fit of {ITERATIONS + 2} iterations - fit of 2 iterations) / {ITERATIONS}."],
    )  # fmt: skip


def _added_ms(one: Figures) -> float:
    return float(1e3 * (one["cluster"] - one["local"]))


def _workers(one: Figures) -> Table:
    return Table(
        "Seconds per iteration on one worker and on two (one thread each)",
        ["n, d, k", "1 worker", "2 workers", "speed-up", "target"],
        [[one["shape"], one["1"], one["2"], ratio(one["1"], one["2"]), f">= {SPEED_UP_TARGET:g}"]],
        ["Medians. The clusters take turns: only one runs at a time."],
    )


def _read_peer(records: Records) -> Reading | None:
    found = [_against_ours(records.get(f"{n:,}, {d}, {k}", {})) for n, d, k in SHAPES]
    ratios = [one for one in found if one is not None]
    if len(ratios) < len(SHAPES):
        return None
    text = " and ".join(f"{one:.1f}" for one in ratios)
    return Reading(text, min(ratios) >= PEER_TARGET)


def _read_added(records: Records) -> Reading | None:
    one = records.get(ADDED)
    return None if one is None else at_most(_added_ms(one), ADDED_TARGET, "{:.0f} ms")


def _read_workers(records: Records) -> Reading | None:
    one = records.get(WORKERS)
    return None if one is None else at_least(one["1"] / one["2"], SPEED_UP_TARGET)


TARGETS: tuple[Target, ...] = (
    Target(
        "lloyd-dask-ml",
        "Lloyd iteration on a Dask cluster of 2 workers: speed-up over dask-ml",
        f">= {PEER_TARGET:g}",
        _read_peer,
    ),
    Target(
        "dask-overhead",
        "Time that a Dask cluster adds to an iteration: 2 workers, 64 partitions, 1 MB of statistics",
        f"<= {ADDED_TARGET:g} ms",
        _read_added,
    ),
    Target(
        "two-workers",
        "Lloyd iteration on a Dask cluster: speed-up of 2 workers over 1",
        f">= {SPEED_UP_TARGET:g}",
        _read_workers,
    ),
)
