"""Passes without computation, to measure the cost of the engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import Reduction


@dataclass(frozen=True)
class ProbeParams:
    """Parameters of a probe.

    Attributes
    ----------
    payload : bytes
        To every worker.
    width : int
        Float64 numbers that each task sends back.
    """

    payload: bytes
    width: int


def _zero(params: ProbeParams) -> np.ndarray:
    return np.zeros(params.width)


def _look(chunk: Chunk, params: ProbeParams, into: np.ndarray) -> None:
    into[0] += chunk.n_rows


def _combine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first += second
    return first


PROBE = Reduction(name="probe", zero=_zero, chunk=_look, combine=_combine)
"""`ProbeParams` -> an array whose first number counts rows."""
