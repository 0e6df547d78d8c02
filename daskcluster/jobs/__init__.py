"""Jobs: complete tasks as plain functions that take URLs and numbers and return a small record.

Call them directly, from the command line, through `submit`, or as plain Dask tasks with
``client.submit(jobs.fit, ..., pure=False)``: no parameter has the name of a keyword of ``Client.submit``.
Outputs are checked before work starts. A job with a name, and every job that runs as a task, may be started
again at any time: it resumes, or returns its record if it was done (`daskcluster.jobs.run`). Names are
imported on first use, as in `daskcluster` itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskcluster.jobs.fitting import build_coreset, dedup, fit, open_stream, partition, stream
    from daskcluster.jobs.predicting import examine, predict, sample, score
    from daskcluster.jobs.registry import JobStatus, cancel, list_jobs, logs, status, submit, wait
    from daskcluster.jobs.run import check_outputs
    from daskcluster.jobs.selection import select_k, sweep
    from daskcluster.jobs.spec import JobSpec, Output
    from daskcluster.models.record import (
        CoresetRecord,
        DuplicatesRecord,
        FitRecord,
        PartitionRecord,
        PredictRecord,
        SampleRecord,
        ScoreRecord,
        SweepRecord,
    )

__all__ = [
    "CoresetRecord",
    "DuplicatesRecord",
    "FitRecord",
    "JobSpec",
    "JobStatus",
    "Output",
    "PartitionRecord",
    "PredictRecord",
    "SampleRecord",
    "ScoreRecord",
    "SweepRecord",
    "build_coreset",
    "cancel",
    "check_outputs",
    "dedup",
    "examine",
    "fit",
    "list_jobs",
    "logs",
    "partition",
    "predict",
    "open_stream",
    "sample",
    "score",
    "select_k",
    "status",
    "submit",
    "wait",
    "stream",
    "sweep",
]

_HOMES = {
    "check_outputs": "run",
    "examine": "predicting",
    "open_stream": "fitting",
    "select_k": "selection",
    **dict.fromkeys(("JobSpec", "Output"), "spec"),
    **dict.fromkeys(
        ("JobStatus", "cancel", "list_jobs", "logs", "status", "submit", "wait"), "registry"
    ),
}
"""Modules of the names that are neither jobs nor records."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module = f"daskcluster.jobs.{_HOMES[name]}"
    elif name.endswith("Record"):
        module = "daskcluster.models.record"
    else:
        # While that is imported, it has no `spec_of` yet, and an AttributeError is right.
        spec = import_module("daskcluster.jobs.catalogue").spec_of(name)
        if spec is None:
            raise AttributeError(f"module 'daskcluster.jobs' has no attribute {name!r}")
        module = spec.function.partition(":")[0]
    value = getattr(import_module(module), name)
    globals()[name] = value  # later accesses find a plain attribute
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
