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
    from daskcluster.jobs.fitting import build_coreset, dedup, fit, partition
    from daskcluster.jobs.predicting import examine, predict, score
    from daskcluster.jobs.registry import JobStatus, cancel, list_jobs, logs, status, submit, wait
    from daskcluster.jobs.run import check_outputs
    from daskcluster.jobs.sampling import sample
    from daskcluster.jobs.selection import select_k, sweep
    from daskcluster.jobs.spec import JobSpec, Output, register_job
    from daskcluster.jobs.streaming import open_stream, stream
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
    "register_job",
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
    "daskcluster.jobs.fitting": ("build_coreset", "dedup", "fit", "partition"),
    "daskcluster.jobs.predicting": ("examine", "predict", "score"),
    "daskcluster.jobs.registry": (
        "JobStatus",
        "cancel",
        "list_jobs",
        "logs",
        "status",
        "submit",
        "wait",
    ),
    "daskcluster.jobs.run": ("check_outputs",),
    "daskcluster.jobs.sampling": ("sample",),
    "daskcluster.jobs.selection": ("select_k", "sweep"),
    "daskcluster.jobs.spec": ("JobSpec", "Output", "register_job"),
    "daskcluster.jobs.streaming": ("open_stream", "stream"),
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    module = "daskcluster.models.record" if name.endswith("Record") else _LAZY.get(name)
    if module is None:
        from daskcluster.jobs.spec import spec_of  # those of other packages

        spec = spec_of(name)
        module = "" if spec is None else spec.function.partition(":")[0]
    if not module:
        raise AttributeError(f"module 'daskcluster.jobs' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value  # later accesses find a plain attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
