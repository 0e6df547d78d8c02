"""Projected cost of `StreamingKMeans.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskcluster.engine.memory import Footprint
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.streaming.tree.pieces import PIECE_BYTES
from daskcluster.typing import Dataset


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the projected cost of a fit with `parameters` on `dataset`: one pass, in pieces."""
    check_enough_rows(dataset, int(parameters["n_clusters"]))
    return Plan(
        seeding=method_for(parameters["init"], in_memory=True),
        passes_seeding=0,
        restarts=1,
        passes_at_most=1,
        footprint=Footprint(thread_bytes=PIECE_BYTES),
        flop=pass_flop(dataset, 1),
    )
