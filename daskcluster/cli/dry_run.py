"""``--dry-run``: the projected passes, operations, bytes and memory of a job, without a pass."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.cli.console import Console, EngineOptions, Failure
from daskcluster.data.dataset import RowDataset
from daskcluster.engine.local import LocalEngine, default_threads
from daskcluster.engine.memory import project
from daskcluster.errors import DaskClusterError, EngineError, SchedulerUnreachableError
from daskcluster.estimators.plan import Plan, WorkPlan
from daskcluster.host import format_bytes, host_memory
from daskcluster.invariance import CIRCUMSTANCES, declared
from daskcluster.jobs.run import check_outputs_of, open_metadata
from daskcluster.jobs.spec import JobSpec
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.models.fitted import load_document
from daskcluster.reports.pages import Rows
from daskcluster.typing import Dataset


def show_plan(
    spec: JobSpec,
    given: Mapping[str, Any],
    engine_options: EngineOptions,
    console: Console,
    *,
    overwrite: bool | None,
) -> None:
    """Print what a job will cost and whether it will be refused, by whatever needs no pass.

    Outputs may be there if `overwrite`; with None, they are not looked at.

    Raises
    ------
    DaskClusterError
        The error that the job would raise before its first pass.
    """
    expected = None
    if "model" in spec.arguments:
        expected = load_document(given["model"], given["storage_options"]).feature_names
    dataset = open_metadata(given["source"], given, expected)
    if given.get("missing") == "partial" and isinstance(
        dataset, RowDataset
    ):  # the values are not known
        unknown = FeatureScaling.of_clusters(np.zeros(dataset.n_features))
        dataset = dataset.with_facts(scaling=unknown)
    shape = {"n_rows": dataset.n_rows, "n_features": dataset.n_features}
    record: dict[str, Any] = {"dry_run": True, **shape, "dtype": str(dataset.dtype)}
    rows = [("rows", f"{dataset.n_rows:,} x {dataset.n_features:,} {dataset.dtype}")]
    refusal: Exception | None = None
    try:
        plan = resolve_name(spec.plan)(dataset, given)
        if isinstance(plan, WorkPlan):
            _add_work(plan, engine_options, record, rows)
        else:
            _add_projection(dataset, plan, spec, given, engine_options, record, rows)
        spec.check_urls(given)
        if overwrite is not None:
            check_outputs_of(spec, given, overwrite)
    except DaskClusterError as error:
        if isinstance(error, EngineError | SchedulerUnreachableError):
            raise  # which says nothing of the job
        refusal = error
    text = None if refusal is None else Failure(refusal).message
    console.emit({**record, "refused": text}, rows if text is None else [*rows, ("refused", text)])
    if refusal is not None:
        raise refusal


def _add_work(
    plan: WorkPlan, engine_options: EngineOptions, record: dict[str, Any], rows: Rows
) -> None:
    """Add the plan of work that sizes its own blocks to what is shown."""
    threads = engine_options.threads or (1 if engine_options.workers else default_threads())
    memory = plan.memory(threads)
    record |= {**vars(plan), "threads": threads, "memory": memory}
    rows += [
        *plan.lines(),
        ("passes", f"{plan.passes}, {format_bytes(plan.bytes_read)} read{plan.note}"),
        ("memory", f"{format_bytes(memory)} with {threads} thread(s)"),
        ("  a task", format_bytes(plan.memory_task)),
    ]
    if engine_options.workers is None and not engine_options.is_remote:
        with engine_options.open() as engine:
            plan.check_memory(engine)


def _add_projection(
    dataset: Dataset,
    plan: Plan | None,
    spec: JobSpec,
    given: Mapping[str, Any],
    engine_options: EngineOptions,
    record: dict[str, Any],
    rows: Rows,
) -> None:
    """Add the plan of a fit or of a sample to what is shown."""
    name, scale = given.get("algorithm", spec.name), given.get("scale")
    is_fit, decoded = spec.algorithms is not None, dataset.bytes_of((0, dataset.n_rows))
    chunks, partitions = len(dataset.chunk_sizes), len(dataset.partitions)
    record |= {"chunks": chunks, "partitions": partitions, "bytes_decoded": decoded, "scale": scale}
    record |= {"algorithm": name, "planned": plan is not None} if is_fit else {}
    record |= {"size": given["size"]} if not is_fit and "size" in given else {}
    rows.append(("chunks", f"{chunks:,} in {partitions:,} partitions"))
    rows.append(("decoded", format_bytes(decoded)))
    if is_fit and name in ALGORITHMS:
        varies = list(declared(resolve_name(ALGORITHMS.find(name).estimator)) or ())
        record["varies_with"] = varies
        rows.append(("varies with", "; ".join(CIRCUMSTANCES[each] for each in varies) or "nothing"))
    if scale:
        rows.append(("scaling", f"{scale}: one more pass, before the others"))
    if plan is None:
        text = f"algorithm={name!r} cannot project its reads and memory in advance"
        rows.append(("cost", text))
        return
    found = project_plan(dataset, plan, engine_options)
    lines = [*_rows_of_passes(found), *_rows_of_memory(found)]
    if size := found["commit_bytes"]:
        lines.append(("checkpoint", f"{format_bytes(size)} a commit, of which two stay"))
    if not is_fit:  # without what only fits have
        lines = [line for line in lines if line[0] not in _LINES_OF_A_FIT]
        lines.append(("passes", f"{found['passes_at_most']}"))
        found = {name: value for name, value in found.items() if name not in _OF_A_FIT}
    record |= found
    rows += lines


_OF_A_FIT = ("seeding", "passes_seeding", "restarts", "bounds")
_LINES_OF_A_FIT = ("seeding", "passes", "iteration", "  bounds")
"""Fields of a projection, and its lines, that apply to fits but not to samples."""


def project_plan(dataset: Dataset, plan: Plan, engine_options: EngineOptions) -> dict[str, Any]:
    """Return the passes, bytes and memory of a plan as plain values.

    Raises
    ------
    MemoryLimitError
    """
    processes, threads = (
        engine_options.workers or 1,
        (engine_options.workers or 1) * (engine_options.threads or 1),
    )
    if engine_options.workers is not None:
        limit, counts = engine_options.memory_limit or host_memory(), {"n_processes": processes}
        footprint = plan.footprint.of_workers()
        memory = project(dataset, footprint, limit=limit, n_threads=threads, **counts)
    else:
        with engine_options.open() as engine:
            memory, threads = engine.plan(dataset, plan.footprint), engine.n_threads
            processes = 1 if isinstance(engine, LocalEngine) else -1  # of an existing cluster
    decoded = dataset.bytes_of((0, dataset.n_rows))
    # Rows in memory are not read; resident partitions are read once.
    first, later = (0, 0) if dataset.in_memory else (decoded, decoded - memory.resident)
    at_most = first + later * (plan.passes_at_most - 1)
    room, states = memory.state_room, dict(plan.states)
    if plan.states_at_most is not None:
        room = min(room, plan.states_at_most)
    fitting = [kind for kind, size in states.items() if size <= room]
    return {
        "seeding": plan.seeding,
        "passes_seeding": plan.passes_seeding,
        "restarts": plan.restarts,
        "passes_at_most": plan.passes_at_most,
        "bytes_first_pass": first,
        "bytes_later_pass": later,
        "bytes_at_most": at_most,
        "threads": threads,
        "processes": processes,
        "memory": {**vars(memory), "projected": memory.projected},
        "bounds": {"room": room, "needed": states, "fitting": fitting},
        "commit_bytes": plan.commit_bytes,
        "flop_per_iteration": plan.flop,
        "traffic": vars(plan.travel),
        "afterwards": plan.afterwards and vars(plan.afterwards),
    }


# -- for people -----------------------------------------------------------------------------------


def _rows_of_passes(found: Mapping[str, Any]) -> Rows:
    first, later = (format_bytes(found[f"bytes_{which}_pass"]) for which in ("first", "later"))
    return [
        ("seeding", f"{found['seeding']}, {found['passes_seeding']} passes"),
        ("passes", f"at most {found['passes_at_most']:,} ({found['restarts']} restart(s))"),
        ("read", f"{first} in the first pass, {later} in each later one"),
        ("iteration", f"{found['flop_per_iteration']:.3g} operations"),
    ]


def _rows_of_memory(found: Mapping[str, Any]) -> Rows:
    memory, processes, bounds = found["memory"], found["processes"], found["bounds"]
    sizes = " or ".join(
        f"{name} {format_bytes(size)}" + ("" if name in bounds["fitting"] else " (too much)")
        for name, size in bounds["needed"].items()
    )
    where = "of the cluster" if processes < 0 else f"in {processes} process(es)"
    return [
        ("threads", f"{found['threads']} {where}"),
        ("memory", f"{format_bytes(memory['projected'])} of {format_bytes(memory['limit'])}"),
        ("  libraries", format_bytes(memory["baseline"])),
        ("  working set", format_bytes(memory["working"])),
        ("  row state", format_bytes(memory["state"])),
        ("  bounds", f"{sizes}, of {format_bytes(bounds['room'])}" if sizes else "none"),
        ("  resident", f"{format_bytes(memory['resident'])} in {memory['residents']:,} partitions"),
    ]
