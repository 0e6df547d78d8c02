"""Progress messages of fits to the scheduler, for the pages of `daskcluster.dashboard`.

They go to one topic of the scheduler's event log, which is bounded.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from daskcluster.events import (
    EMStepEnded,
    Event,
    FitEnded,
    FitFailed,
    FitStarted,
    IterationEnded,
    PassShare,
    SeedingEnded,
    rows_passed,
    share_looked_at,
)

if TYPE_CHECKING:
    from distributed import Client

TOPIC = "daskcluster-fits"
_EVERY_SECONDS = 0.5
_MOST_ITERATIONS = 200
"""Most iterations in one message. If there were more since the last one, the newest are sent."""


class FitLog:
    """A callback that reports one fit to a scheduler: at its start, at its end, twice a second in between.

    A message holds plain values: the current state of the fit, and the iterations since the previous
    message, each ``[iteration, objective, seconds, rows passed, share of the rows visited]``.

    Parameters
    ----------
    client : distributed.Client
    name : str
        Name of the job that the fit belongs to, if any.
    """

    def __init__(self, client: Client, name: str = "") -> None:
        self._client = client
        self._facts: dict[str, Any] = {"fit": uuid.uuid4().hex, "name": name}
        self._iterations: list[list[Any]] = []
        self._n_rows = 0
        self._pass = PassShare()
        self._reported = -math.inf

    def __call__(self, event: Event) -> None:
        self._pass(event)
        self._facts |= self._learned(event)
        if "algorithm" not in self._facts:
            return  # events before `FitStarted` are not about this fit
        now = time.monotonic()
        if (
            isinstance(event, FitStarted | FitEnded | FitFailed)
            or now - self._reported >= _EVERY_SECONDS
        ):
            self._reported = now
            self._post()

    def _post(self) -> None:
        del self._iterations[:-_MOST_ITERATIONS]
        if self._client.status != "running":
            return  # the client would wait for a scheduler that is gone
        at = {"phase": self._pass.name, "share": self._pass.done}
        message = {**self._facts, **at, "iterations": self._iterations}
        # A fit must not fail because a message cannot be delivered.
        with suppress(OSError, TimeoutError, RuntimeError):
            self._client.log_event(TOPIC, message)
            self._iterations = []

    def _learned(self, event: Event) -> Mapping[str, Any]:
        if isinstance(event, FitStarted):
            self._n_rows = event.n_rows
            shape = {"n_rows": event.n_rows, "n_features": event.n_features}
            return {
                "state": "running",
                "estimator": event.estimator,
                "algorithm": event.algorithm,
                "n_clusters": event.n_clusters,
                "max_iter": int(event.max_iter),
                **shape,
            }
        if isinstance(event, IterationEnded):
            return self._of_iteration(event)
        if isinstance(event, SeedingEnded):
            return {"seeding": event.method}
        if isinstance(event, FitEnded):
            return {
                "state": "ended",
                "stop_reason": str(event.stop_reason),
                "inertia": _finite(event.inertia),
                "passes": int(event.passes),
                "bytes_read": int(event.bytes_read),
                "seconds": float(event.seconds),
            }
        if isinstance(event, FitFailed):
            return {"state": "failed", "reason": event.reason}
        return {}

    def _of_iteration(self, event: IterationEnded) -> Mapping[str, Any]:
        of_mixture = isinstance(event, EMStepEnded)
        value = event.free_energy if isinstance(event, EMStepEnded) else event.inertia
        passed = int(rows_passed(event, self._n_rows))
        looked_at = share_looked_at(event, self._n_rows)
        self._iterations.append(
            [int(event.iteration), _finite(value), float(event.seconds), passed, _finite(looked_at)]
        )
        return {"objective": "free energy" if of_mixture else "inertia"}


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
