"""What a fit will cost, from metadata alone: passes, bytes, memory, work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.algorithms.kinds import AUTOMATIC, Bounds, fallbacks
from daskcluster.chunk import compute_dtype
from daskcluster.cli.engines import Place
from daskcluster.data.open import open_dataset
from daskcluster.data.sparse import SparseDataset
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import Footprint, MemoryPlan, project
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.initial import method_for
from daskcluster.estimators.kmeans_fit import fit_footprint
from daskcluster.host import format_bytes, host_memory
from daskcluster.reports.tables import Rows, format_seconds
from daskcluster.typing import Dataset

KMEANS_PARALLEL_PASSES = 6
"""Its rounds and one pass for the weights of the candidates."""
FLOP_RATE = 5e10
READ_RATE = 1e9
"""Rough figures of one thread: operations, and bytes decoded from a local disk, in a second."""


def project_fit(
    source: Any,
    array: str | None,
    weights: Any,
    storage_options: Mapping[str, Any] | None,
    flatten: bool,
    place: Place,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the projection as plain values; raises what the fit would raise before it starts."""
    dataset = open_dataset(
        source, array=array, weights=weights, storage_options=storage_options, flatten=flatten
    )
    n_clusters = int(parameters["n_clusters"])
    if dataset.n_rows < n_clusters:
        raise InvalidParameterError(
            f"n_samples={dataset.n_rows} should be >= n_clusters={n_clusters}; "
            f"pass n_clusters <= {dataset.n_rows} or add rows."
        )
    method = method_for(parameters["init"], in_memory=dataset.in_memory)
    footprint = fit_footprint(dataset, n_clusters, method)
    threads, processes, plan = _plan(dataset, footprint, place)
    passes = _passes(method, parameters, dataset)
    return {
        "dry_run": True,
        "n_rows": dataset.n_rows,
        "n_features": dataset.n_features,
        "dtype": str(dataset.dtype),
        "chunks": len(dataset.chunk_sizes),
        "partitions": len(dataset.partitions),
        "seeding": method,
        **passes,
        **_bytes(dataset, plan, passes["passes_at_most"]),
        "threads": threads,
        "processes": processes,
        "memory": {**vars(plan), "projected": plan.projected},
        "bounds": _bounds(dataset, n_clusters, parameters, plan),
        **_work(dataset, n_clusters, threads, plan),
    }


def _plan(dataset: Dataset, footprint: Footprint, place: Place) -> tuple[int, int, MemoryPlan]:
    if place.is_remote:
        with place.open() as engine:
            plan = engine.plan(dataset, footprint)
            return engine.n_threads, -1, plan
    if place.workers is None:
        local = LocalEngine(place.threads, memory_limit=place.memory_limit)
        return local.n_threads, 1, local.plan(dataset, footprint)
    threads = place.workers * (place.threads or 1)
    plan = project(
        dataset,
        footprint,
        limit=place.memory_limit or host_memory(),
        n_threads=threads,
        n_processes=place.workers,
    )
    return threads, place.workers, plan


def _passes(method: str, parameters: Mapping[str, Any], dataset: Dataset) -> dict[str, int]:
    seeding = {
        "k-means++": int(parameters["n_clusters"]) + 1,
        "k-means||": KMEANS_PARALLEL_PASSES,
    }.get(method, 0)
    n_init = parameters["n_init"]
    if n_init == "auto":
        n_init = 10 if method == "random" and dataset.in_memory else 1
    if method == "model":
        n_init = 1
    one = seeding + int(parameters["max_iter"]) + 1
    return {"passes_seeding": seeding, "restarts": int(n_init), "passes_at_most": one * int(n_init)}


def _bounds(
    dataset: Dataset, n_clusters: int, parameters: Mapping[str, Any], plan: MemoryPlan
) -> dict[str, Any]:
    """Return the bytes of each kind of bounds that the algorithm may keep, and the room for them."""
    name, budget = parameters["algorithm"], parameters["bounds_memory"]
    room = plan.state_room if budget == "auto" else min(plan.state_room, int(budget))
    if name == "lloyd" or isinstance(dataset, SparseDataset):
        kinds: tuple[Bounds, ...] = ()
    else:
        kinds = AUTOMATIC if name == "auto" else fallbacks(Bounds(name))
    dtype = compute_dtype(dataset.dtype)
    needed = {str(kind): dataset.n_rows * kind.row_bytes(n_clusters, dtype) for kind in kinds}
    return {"room": room, "needed": needed, "fitting": [k for k, v in needed.items() if v <= room]}


def _bytes(dataset: Dataset, plan: MemoryPlan, passes: int) -> dict[str, int]:
    # Rows in memory are read from nowhere; resident partitions are read once.
    decoded = dataset.bytes_of((0, dataset.n_rows))
    first, later = (0, 0) if dataset.in_memory else (decoded, decoded - plan.resident)
    return {
        "bytes_decoded": decoded,
        "bytes_first_pass": first,
        "bytes_later_pass": later,
        "bytes_at_most": first + later * (passes - 1),
    }


def _work(dataset: Dataset, n_clusters: int, threads: int, plan: MemoryPlan) -> dict[str, float]:
    values = dataset.n_rows * dataset.n_features
    if isinstance(dataset, SparseDataset):
        values = dataset.n_entries
    flop = 2.0 * values * n_clusters
    read = 0 if dataset.in_memory else dataset.bytes_of((0, dataset.n_rows)) - plan.resident
    seconds = (flop / FLOP_RATE + read / READ_RATE) / max(1, threads)
    return {"flop_per_iteration": flop, "seconds_per_iteration_about": seconds}


def rows_of_projection(found: Mapping[str, Any]) -> Rows:
    """Return the projection as lines for people."""
    memory = found["memory"]
    processes = found["processes"]
    where = "of the cluster" if processes < 0 else f"in {processes} process(es)"
    return [
        ("rows", f"{found['n_rows']:,} x {found['n_features']:,} {found['dtype']}"),
        ("chunks", f"{found['chunks']:,} in {found['partitions']:,} partitions"),
        ("decoded", format_bytes(found["bytes_decoded"])),
        ("seeding", f"{found['seeding']}, {found['passes_seeding']} passes"),
        ("passes", f"at most {found['passes_at_most']:,} ({found['restarts']} restart(s))"),
        (
            "read",
            f"{format_bytes(found['bytes_first_pass'])} in the first pass, "
            f"{format_bytes(found['bytes_later_pass'])} in each later one",
        ),
        ("threads", f"{found['threads']} {where}"),
        ("memory", f"{format_bytes(memory['projected'])} of {format_bytes(memory['limit'])}"),
        ("  libraries", format_bytes(memory["baseline"])),
        ("  working set", format_bytes(memory["working"])),
        ("  row state", format_bytes(memory["state"])),
        ("  bounds", _bounds_text(found["bounds"])),
        ("  resident", f"{format_bytes(memory['resident'])} in {memory['residents']:,} partitions"),
        (
            "iteration",
            f"{found['flop_per_iteration']:.3g} operations, very roughly "
            f"{format_seconds(found['seconds_per_iteration_about'])}",
        ),
    ]


def _bounds_text(bounds: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {format_bytes(size)}" + ("" if name in bounds["fitting"] else " (too much)")
        for name, size in bounds["needed"].items()
    ]
    return f"{' or '.join(parts)}, of {format_bytes(bounds['room'])}" if parts else "none"
