"""Bounds copied from the state of one pass for a pass over other rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.methods.kmeans.chunkwise.bounded import BoundState, unproven


@dataclass(frozen=True)
class CopyParams:
    """Room for the labels and bounds of all rows, by global row index (only within one process)."""

    out: BoundState


def copying(kept: StatefulReduction) -> StatefulReduction:
    """Return the reduction `CopyParams` -> None that copies the state of `kept`, which keeps it.

    A row whose state is lost gets the label -1, and bounds that prove nothing.
    """
    return replace(
        kept,
        zero=_nothing,
        fresh=_lost,
        rebuild=_leave,
        chunk=_copy,
        combine=_neither,
        prepare=_same,
    )


def _same(params: CopyParams) -> CopyParams:
    return params


def _nothing(params: CopyParams) -> None:
    return None


def _neither(first: None, second: None) -> None:
    return None


def _lost(n_rows: int, params: CopyParams) -> BoundState:
    return unproven(n_rows, params.out.lower.shape[1:])


def _leave(chunk: Chunk, params: CopyParams, state: Any) -> None:
    return None


def _copy(chunk: Chunk, params: CopyParams, into: None, state: BoundState) -> None:
    out = params.out.rows(chunk.start, chunk.stop)
    for theirs, mine in zip(out.arrays, state.arrays, strict=True):
        theirs[:] = mine
