"""The plan of a fit: passes, memory and traffic, known before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.engine.memory import Footprint
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class Travel:
    """Bytes that one pass sends and returns on a cluster.

    Attributes
    ----------
    sent : int
        Parameters, which every worker gets.
    returned : int
        Totals that each task sends back.
    drawn : int
        Rows that all tasks together send back.
    """

    sent: int = 0
    returned: int = 0
    drawn: int = 0


@dataclass(frozen=True)
class Stage:
    """Work on few rows, on threads of the driver's process, after the passes over all rows.

    Attributes
    ----------
    kernel : str
        One of `KERNELS`.
    n_rows, n_features : int
    flop : float
        Operations of one pass.
    passes_at_most : int
    """

    kernel: str
    n_rows: int
    n_features: int
    flop: float
    passes_at_most: int


KERNELS = ("nearest", "truncated", "scan")
"""Kinds of passes: rows meet all centres, those of their neighbourhood, or one point."""


@dataclass(frozen=True)
class Plan:
    """One fit before it starts.

    Attributes
    ----------
    seeding : str
        How first centres will be chosen.
    passes_seeding, restarts : int
        Passes of one seeding; fits of which the best is kept.
    passes_at_most : int
        Over the whole fit.
    footprint : Footprint
        What it needs beyond the rows, for the memory projection.
    flop : float
        Operations of one pass.
    states : mapping of str to int
        Bytes of the state that rows may have if there is room, by what it is called.
    states_at_most : int or None
        What the caller allows for them; None: all that the memory limit leaves.
    commit_bytes : int
        Of one commit of the state, but for a few kB; 0 where nothing is committed.
    travel : Travel
        What a pass sends to and fro; nothing for passes over samples.
    kernel : str
        One of `KERNELS`.
    afterwards : Stage or None
    """

    seeding: str
    passes_seeding: int
    restarts: int
    passes_at_most: int
    footprint: Footprint
    flop: float
    states: Mapping[str, int] = field(default_factory=dict)
    states_at_most: int | None = None
    commit_bytes: int = 0
    travel: Travel = Travel()
    kernel: str = "nearest"
    afterwards: Stage | None = None


def centres_bytes(dataset: Dataset, n_clusters: int, *, wide: bool = False) -> int:
    """Return the bytes of some centres, in the dtype that rows are computed in or, `wide`, in float64."""
    dtype = np.dtype(np.float64) if wide else compute_dtype(dataset.dtype)
    return n_clusters * dataset.n_features * dtype.itemsize


MakePlan = Callable[[Dataset, Mapping[str, Any]], Plan]
"""From a dataset and all constructor arguments but objects to a plan. Raises what `fit` would raise
before it starts. The catalogue says where an algorithm has its own."""
