"""What a fit will cost, from metadata alone: passes, bytes, memory, work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.cli.engines import Place
from daskcluster.data.open import open_dataset
from daskcluster.engine.local import LocalEngine, default_threads
from daskcluster.engine.memory import Footprint, MemoryPlan, project
from daskcluster.estimators.plan import Plan
from daskcluster.host import format_bytes, host_memory
from daskcluster.reports.tables import Rows, format_seconds
from daskcluster.sizing.cluster import Cluster
from daskcluster.sizing.forecast import forecast_fit
from daskcluster.sizing.projection import plan_of
from daskcluster.sizing.rates import REFERENCE
from daskcluster.sizing.work import fit_work
from daskcluster.typing import Dataset


def project_fit(
    source: Any,
    opening: Mapping[str, Any],
    place: Place,
    algorithm: str,
    given: Mapping[str, Any],
    *,
    scale: str | None = None,
) -> dict[str, Any]:
    """Return the projection as plain values; raises what the fit would raise before it starts.

    Parameters
    ----------
    source : URL
    opening : mapping
        Further arguments of `open_dataset`.
    place : Place
    algorithm : str
        A name of the catalogue.
    given : mapping
        The parameters that were given.
    scale : str, optional
        Features are scaled first, which takes a pass.
    """
    dataset = open_dataset(source, **opening)
    plan = plan_of(dataset, algorithm, given)
    facts = {
        "dry_run": True,
        "algorithm": algorithm,
        "n_rows": dataset.n_rows,
        "n_features": dataset.n_features,
        "dtype": str(dataset.dtype),
        "chunks": len(dataset.chunk_sizes),
        "partitions": len(dataset.partitions),
        "bytes_decoded": dataset.bytes_of((0, dataset.n_rows)),
        "scale": scale,
        "planned": plan is not None,
    }
    if plan is None:
        return facts
    return {**facts, **_costs(dataset, plan, place, int(given["n_clusters"]))}


def _costs(dataset: Dataset, plan: Plan, place: Place, n_clusters: int) -> dict[str, Any]:
    cluster, memory = _memory(dataset, plan.footprint, place)
    return {
        "seeding": plan.seeding,
        "passes_seeding": plan.passes_seeding,
        "restarts": plan.restarts,
        "passes_at_most": plan.passes_at_most,
        **_bytes(dataset, memory, plan.passes_at_most),
        "threads": cluster.lanes,
        "processes": -1 if place.is_remote else max(1, cluster.workers),
        "memory": {**vars(memory), "projected": memory.projected},
        "bounds": _states(plan, memory),
        "commit_bytes": plan.commit_bytes,
        **_work(dataset, plan, cluster, memory, n_clusters),
    }


def _memory(dataset: Dataset, footprint: Footprint, place: Place) -> tuple[Cluster, MemoryPlan]:
    if place.is_remote:
        with place.open() as engine:
            memory = engine.plan(dataset, footprint)
            return _remote(engine), memory
    cores = default_threads()
    if place.workers is None:
        local = LocalEngine(place.threads, memory_limit=place.memory_limit)
        return Cluster(0, local.n_threads, cores, one_host=True), local.plan(dataset, footprint)
    cluster = Cluster(place.workers, place.threads or 1, cores, one_host=True)
    memory = project(
        dataset,
        footprint.of_workers(),
        limit=place.memory_limit or host_memory(),
        n_threads=cluster.lanes,
        n_processes=place.workers,
    )
    return cluster, memory


def _remote(engine: Any) -> Cluster:
    """Return the cluster behind an engine, as if its workers had equally many threads."""
    workers = engine.n_workers
    near = engine.is_on_this_host()
    cores = default_threads() if near else None
    return Cluster(workers, max(1, engine.n_threads // workers), cores, one_host=near)


def _states(plan: Plan, memory: MemoryPlan) -> dict[str, Any]:
    """Return the bytes of each kind of state that rows may have, and the room for them."""
    most = plan.states_at_most
    room = memory.state_room if most is None else min(memory.state_room, most)
    needed = dict(plan.states)
    return {"room": room, "needed": needed, "fitting": [k for k, v in needed.items() if v <= room]}


def _bytes(dataset: Dataset, memory: MemoryPlan, passes: int) -> dict[str, int]:
    # Rows in memory are read from nowhere; resident partitions are read once.
    decoded = dataset.bytes_of((0, dataset.n_rows))
    first, later = (0, 0) if dataset.in_memory else (decoded, decoded - memory.resident)
    return {
        "bytes_first_pass": first,
        "bytes_later_pass": later,
        "bytes_at_most": first + later * (passes - 1),
    }


def _work(
    dataset: Dataset, plan: Plan, cluster: Cluster, memory: MemoryPlan, n_clusters: int
) -> dict[str, Any]:
    work = fit_work(dataset, plan, memory, n_clusters)
    found = forecast_fit(work, cluster, REFERENCE)
    return {
        "flop_per_iteration": plan.flop,
        "seconds_per_iteration_about": found.later.seconds,
        "seconds_at_most_about": found.seconds,
        "bottleneck": found.bottleneck,
        "terms": found.later.terms,
    }


# -- for people -----------------------------------------------------------------------------------


def rows_of_projection(found: Mapping[str, Any]) -> Rows:
    """Return the projection as lines for people."""
    rows = [
        ("rows", f"{found['n_rows']:,} x {found['n_features']:,} {found['dtype']}"),
        ("chunks", f"{found['chunks']:,} in {found['partitions']:,} partitions"),
        ("decoded", format_bytes(found["bytes_decoded"])),
    ]
    if found["scale"]:
        rows.append(("scaling", f"{found['scale']}: one pass more, before the others"))
    if not found["planned"]:
        text = f"algorithm={found['algorithm']!r} cannot say beforehand what it will read and hold"
        return [*rows, ("cost", text)]
    return [*rows, *_rows_of_passes(found), *_rows_of_memory(found), *_rows_of_commits(found)]


def _rows_of_passes(found: Mapping[str, Any]) -> Rows:
    return [
        ("seeding", f"{found['seeding']}, {found['passes_seeding']} passes"),
        ("passes", f"at most {found['passes_at_most']:,} ({found['restarts']} restart(s))"),
        (
            "read",
            f"{format_bytes(found['bytes_first_pass'])} in the first pass, "
            f"{format_bytes(found['bytes_later_pass'])} in each later one",
        ),
        (
            "iteration",
            f"{found['flop_per_iteration']:.3g} operations, very roughly "
            f"{format_seconds(found['seconds_per_iteration_about'])}",
        ),
        (
            "time",
            f"very roughly {format_seconds(found['seconds_at_most_about'])} at most, "
            f"most of it for: {found['bottleneck']}",
        ),
    ]


def _rows_of_memory(found: Mapping[str, Any]) -> Rows:
    memory = found["memory"]
    processes = found["processes"]
    where = "of the cluster" if processes < 0 else f"in {processes} process(es)"
    return [
        ("threads", f"{found['threads']} {where}"),
        ("memory", f"{format_bytes(memory['projected'])} of {format_bytes(memory['limit'])}"),
        ("  libraries", format_bytes(memory["baseline"])),
        ("  working set", format_bytes(memory["working"])),
        ("  row state", format_bytes(memory["state"])),
        ("  bounds", _bounds_text(found["bounds"])),
        ("  resident", f"{format_bytes(memory['resident'])} in {memory['residents']:,} partitions"),
    ]


def _rows_of_commits(found: Mapping[str, Any]) -> Rows:
    size = found["commit_bytes"]
    return [("checkpoint", f"{format_bytes(size)} a commit, of which two stay")] if size else []


def _bounds_text(bounds: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {format_bytes(size)}" + ("" if name in bounds["fitting"] else " (too much)")
        for name, size in bounds["needed"].items()
    ]
    return f"{' or '.join(parts)}, of {format_bytes(bounds['room'])}" if parts else "none"
