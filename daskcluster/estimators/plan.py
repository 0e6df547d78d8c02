"""The plan of a fit: passes, memory and traffic, computed before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskcluster.chunk import compute_dtype
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import Footprint, check_limit
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class PassTraffic:
    """Bytes that one pass transfers on a cluster.

    Attributes
    ----------
    sent : int
        Parameters sent to each worker.
    returned : int
        Totals returned by each task.
    drawn : int
        Rows returned by all tasks together.
    """

    sent: int = 0
    returned: int = 0
    drawn: int = 0


@dataclass(frozen=True)
class DriverWork:
    """Work on few rows in the driver's process, after the passes over all rows.

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
"""Kinds of passes: each row is compared with all centres, those of its neighbourhood, or one point."""


@dataclass(frozen=True)
class Plan:
    """One fit before it starts.

    Attributes
    ----------
    seeding : str
        Method that will choose the first centres.
    passes_seeding, restarts : int
        Passes of one seeding; number of fits, of which the best is kept.
    passes_at_most : int
        Bound for the whole fit.
    footprint : Footprint
        Memory besides the rows, for the memory projection.
    flop : float
        Operations of one pass.
    states : mapping of str to int
        Bytes of optional per-row state by name.
    states_at_most : int or None
        Limit on that state set by the caller; None: all that the memory limit leaves.
    commit_bytes : int
        Size of one commit of the state, up to a few kB; 0 if nothing is committed.
    travel : PassTraffic
        Bytes that a pass transfers; zero for passes over samples.
    kernel : str
        One of `KERNELS`.
    afterwards : DriverWork or None
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
    travel: PassTraffic = PassTraffic()
    kernel: str = "nearest"
    afterwards: DriverWork | None = None


@dataclass(frozen=True, kw_only=True)
class WorkPlan:
    """The plan of work that sizes its own blocks.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : str
    passes : int
    bytes_read : int
        Decoded bytes of the source, in all passes.
    memory_driver, memory_task : int
        Bytes of the process that starts the work, and of each thread that runs tasks, at most.
    """

    what: ClassVar[str]
    """Begins the error if a limit refuses the work."""
    note: ClassVar[str] = ""
    """What is to be said of the passes."""

    n_rows: int
    n_features: int
    dtype: str
    passes: int
    bytes_read: int
    memory_driver: int
    memory_task: int

    @staticmethod
    def of_passes(dataset: Dataset, passes: int) -> dict[str, Any]:
        """Return the fields that follow from the rows and a number of passes."""
        shape = {"n_rows": dataset.n_rows, "n_features": dataset.n_features}
        read = 0 if dataset.in_memory else passes * dataset.bytes_of((0, dataset.n_rows))
        return {**shape, "dtype": str(dataset.dtype), "passes": passes, "bytes_read": read}

    def memory(self, n_threads: int) -> int:
        """Return the bytes of one process with so many threads, at most."""
        return self.memory_driver + n_threads * self.memory_task

    def check_memory(self, engine: Engine) -> None:
        """Refuse work that takes more memory than threads of this process may use.

        Raises
        ------
        MemoryLimitError
        """
        if isinstance(engine, LocalEngine):
            check_limit(self.what, self.memory(engine.n_threads), engine.memory_limit)

    def lines(self) -> list[tuple[str, str]]:
        """Return what is specific to this work as lines of text."""
        return []


def centres_bytes(dataset: Dataset, n_clusters: int, *, wide: bool = False) -> int:
    """Return the bytes of `n_clusters` centres in the compute dtype or, with `wide`, in float64."""
    dtype = np.dtype(np.float64) if wide else compute_dtype(dataset.dtype)
    return n_clusters * dataset.n_features * dtype.itemsize


MakePlan = Callable[[Dataset, Mapping[str, Any]], Plan]
"""(dataset, constructor arguments without objects) -> plan. Raises the errors that `fit` would raise before
it starts. The catalogue names the function of each algorithm."""
