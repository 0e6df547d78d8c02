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
    from daskcluster.jobs.coresets import build_coreset
    from daskcluster.jobs.duplicates import dedup
    from daskcluster.jobs.fitting import fit
    from daskcluster.jobs.kinds import examine
    from daskcluster.jobs.outputs import check_outputs
    from daskcluster.jobs.partitioning import partition
    from daskcluster.jobs.predicting import predict
    from daskcluster.jobs.registry import JobStatus
    from daskcluster.jobs.sampling import sample
    from daskcluster.jobs.scoring import score
    from daskcluster.jobs.selection import select_k
    from daskcluster.jobs.spec import JobSpec, Output, register_job
    from daskcluster.jobs.streaming import open_stream, stream
    from daskcluster.jobs.submitting import cancel, list_jobs, logs, status, submit, wait
    from daskcluster.jobs.sweeping import sweep
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

_LAZY = {
    "CoresetRecord": "daskcluster.models.record",
    "build_coreset": "daskcluster.jobs.coresets",
    "DuplicatesRecord": "daskcluster.models.record",
    "FitRecord": "daskcluster.models.record",
    "PartitionRecord": "daskcluster.models.record",
    "PredictRecord": "daskcluster.models.record",
    "SampleRecord": "daskcluster.models.record",
    "ScoreRecord": "daskcluster.models.record",
    "SweepRecord": "daskcluster.models.record",
    "check_outputs": "daskcluster.jobs.outputs",
    "dedup": "daskcluster.jobs.duplicates",
    "examine": "daskcluster.jobs.kinds",
    "fit": "daskcluster.jobs.fitting",
    "partition": "daskcluster.jobs.partitioning",
    "predict": "daskcluster.jobs.predicting",
    "sample": "daskcluster.jobs.sampling",
    "score": "daskcluster.jobs.scoring",
    "select_k": "daskcluster.jobs.selection",
    "JobStatus": "daskcluster.jobs.registry",
    **dict.fromkeys(("JobSpec", "Output", "register_job"), "daskcluster.jobs.spec"),
    **dict.fromkeys(
        ("cancel", "list_jobs", "logs", "status", "submit", "wait"), "daskcluster.jobs.submitting"
    ),
    "open_stream": "daskcluster.jobs.streaming",
    "stream": "daskcluster.jobs.streaming",
    "sweep": "daskcluster.jobs.sweeping",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
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
