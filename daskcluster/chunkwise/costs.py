"""The costs of several sets of centres in one pass."""

from __future__ import annotations

from typing import Any

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import SCORE, AssignParams, ScoreStatistics
from daskcluster.chunkwise.reduction import Reduction


def _prepare(sets: tuple[AssignParams, ...]) -> list[Any]:
    return [SCORE.prepare(params) for params in sets]


def _zero(prepared: list[Any]) -> list[ScoreStatistics]:
    return [SCORE.zero(each) for each in prepared]


def _costs_chunk(chunk: Chunk, prepared: list[Any], into: list[ScoreStatistics]) -> None:
    for piece in chunk.pieces():  # all sets find the rows in the cache
        for each, statistics in zip(prepared, into, strict=True):
            SCORE.chunk(piece, each, statistics)


def _combine(first: list[ScoreStatistics], second: list[ScoreStatistics]) -> list[ScoreStatistics]:
    return [one.combine(other) for one, other in zip(first, second, strict=True)]


COSTS = Reduction(name="costs", prepare=_prepare, zero=_zero, chunk=_costs_chunk, combine=_combine)
"""A tuple of `AssignParams` -> a list of `ScoreStatistics`."""
