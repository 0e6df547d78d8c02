"""The demand of a fit for workers, shown to adaptive clusters.

Dask's adaptive scaling counts the tasks that wait. A fit has a pass of tasks at a time, often less than a
second of work, so its cluster would shrink to one worker although hundreds of passes are to come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import dask
from dask.utils import parse_timedelta

from daskcluster.annotations import unannotated
from daskcluster.engine.assignment import LEAST_MEASURED_SECONDS
from daskcluster.engine.work_items import count_rows
from daskcluster.typing import Range

if TYPE_CHECKING:
    from distributed import Client, Future

RESOURCE = "daskcluster-demand"
"""A resource that no worker has: tasks that require it wait, and the scheduler counts them."""
THREAD_SECONDS = 0.25
"""Least work of a thread in a pass for which one more thread is worth its cost."""
MOST_THREADS = 400
"""Threads that a fit asks for at most: each is ten tasks for the scheduler. A larger cluster stays."""


class Demand:
    """Tasks that wait on the scheduler while a fit needs workers, and are never run.

    They stand for the passes to come. `Scheduler.adaptive_target`, which `cluster.adapt` and the Kubernetes
    operator ask, then returns as many workers as the fit can use. The demand never shrinks: a worker that
    leaves takes its cached rows and state with it.

    Parameters
    ----------
    client : Client

    Notes
    -----
    Cost: ten waiting tasks per thread.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: list[Future] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, n_threads: int) -> None:
        """Raise the demand to `n_threads`."""
        missing = n_threads * _tasks_per_thread() - len(self._waiting)
        if missing > 0 and self._client.status == "running":
            self._waiting += unannotated(
                self._client.map,
                _nothing,
                range(missing),
                key=RESOURCE,
                resources={RESOURCE: 1},
                pure=False,
            )

    def learn(self, rows: int, seconds: float, spans: Sequence[Range]) -> None:
        """Raise the demand to what a pass over `spans` can use, after a task took `seconds`."""
        # The speed of very short tasks is noise.
        if rows and seconds > LEAST_MEASURED_SECONDS:
            self.show(useful_threads(seconds / rows * count_rows(spans), len(spans)))

    def close(self) -> None:
        """Withdraw the demand."""
        self._waiting.clear()


def useful_threads(pass_seconds: float, n_partitions: int) -> int:
    """Return how many threads are worth their cost in passes of so many seconds of one thread.

    Examples
    --------
    >>> useful_threads(0.1, 100), useful_threads(3.0, 100), useful_threads(3600.0, 100)
    (1, 12, 100)
    """
    return max(1, min(int(pass_seconds / THREAD_SECONDS), n_partitions, MOST_THREADS))


def _tasks_per_thread() -> int:
    """Return how many tasks of unknown duration make Dask ask for one thread."""
    target = parse_timedelta(dask.config.get("distributed.adaptive.target-duration"))
    unknown = parse_timedelta(dask.config.get("distributed.scheduler.unknown-task-duration"))
    return max(1, math.ceil(target / unknown))


def _nothing(number: int) -> None:
    """Stand for work to come; never run unless a worker offers the resource."""
