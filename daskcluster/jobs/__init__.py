"""Whole pieces of work as plain functions: URLs and numbers in, a small record out.

They are called directly, by the command line, or through ``client.submit(jobs.fit, ..., pure=False)``:
no parameter is named like a keyword of ``Client.submit``. Outputs are checked before work starts.
Names are looked up when they are first used, as in `daskcluster` itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daskcluster.jobs.coresets import build_coreset
    from daskcluster.jobs.fitting import fit
    from daskcluster.jobs.kinds import evaluate, examine
    from daskcluster.jobs.outputs import check_outputs
    from daskcluster.jobs.predicting import predict
    from daskcluster.jobs.scoring import score
    from daskcluster.jobs.selection import select_k
    from daskcluster.models.record import CoresetRecord, FitRecord, PredictRecord, ScoreRecord

__all__ = [
    "CoresetRecord",
    "FitRecord",
    "PredictRecord",
    "ScoreRecord",
    "build_coreset",
    "check_outputs",
    "evaluate",
    "examine",
    "fit",
    "predict",
    "score",
    "select_k",
]

_HOMES = {
    "CoresetRecord": "daskcluster.models.record",
    "build_coreset": "daskcluster.jobs.coresets",
    "FitRecord": "daskcluster.models.record",
    "PredictRecord": "daskcluster.models.record",
    "ScoreRecord": "daskcluster.models.record",
    "check_outputs": "daskcluster.jobs.outputs",
    "evaluate": "daskcluster.jobs.kinds",
    "examine": "daskcluster.jobs.kinds",
    "fit": "daskcluster.jobs.fitting",
    "predict": "daskcluster.jobs.predicting",
    "score": "daskcluster.jobs.scoring",
    "select_k": "daskcluster.jobs.selection",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'daskcluster.jobs' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value  # the next look-up is a plain attribute
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
