"""Progress messages of fits to the scheduler, for the page of `daskcluster.dashboard`.

They go to one topic of the scheduler's event log, which is bounded. Each says all that the page shows.
"""

from __future__ import annotations

import math
import time
import uuid
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
    Remaining,
    rows_passed,
    share_looked_at,
)

if TYPE_CHECKING:
    from distributed import Client

TOPIC = "daskcluster-fits"
_EVERY_SECONDS = 0.5
MOST_POINTS = 100
"""Most points of a curve; of more iterations, every second one is left out."""


class FitLog:
    """A callback that reports one fit to a scheduler: at its start, at its end, twice a second in between.

    A message is a mapping of plain values: the current state of the fit, and a curve of its objective.

    Parameters
    ----------
    client : distributed.Client
    name : str
        Name of the job that the fit belongs to, if any.
    """

    def __init__(self, client: Client, name: str = "") -> None:
        self._client = client
        self._name = name
        self._facts: dict[str, Any] = {}
        self._curve: list[tuple[int, float]] = []
        self._pass, self._remaining = PassShare(), Remaining()
        self._began, self._reported = 0.0, -math.inf

    def __call__(self, event: Event) -> None:
        self._pass(event)
        self._remaining(event)
        now = time.monotonic()
        if isinstance(event, FitStarted):
            self._began = now
            self._facts = {
                "fit": uuid.uuid4().hex,
                "title": self._name or event.estimator or event.algorithm,
                "state": "running",
                "iteration": 0,
                "objective": None,
                **vars(event),
                "max_iter": int(event.max_iter),
            }
        if not self._facts:
            return  # events before `FitStarted` are not about this fit
        ends = isinstance(event, FitEnded | FitFailed)
        if isinstance(event, IterationEnded):
            self._learn(event)
        elif isinstance(event, FitEnded):
            state = event.stop_reason.replace("_", " ")
            self._facts |= {"state": state, "objective": _finite(event.inertia)}
        elif isinstance(event, FitFailed):
            self._facts |= {"state": "failed", "reason": event.reason}
        if ends or isinstance(event, FitStarted) or now - self._reported >= _EVERY_SECONDS:
            self._reported = now
            self._post(now - self._began)

    def _learn(self, event: IterationEnded) -> None:
        value = _finite(event.free_energy if isinstance(event, EMStepEnded) else event.inertia)
        rows = rows_passed(event, self._facts["n_rows"])
        self._facts |= {
            "iteration": int(event.iteration),
            "objective": value,
            "rows_per_second": rows / event.seconds if event.seconds > 0 else None,
            "looked_at": share_looked_at(event, self._facts["n_rows"]),
        }
        if value is not None:
            self._curve.append((int(event.iteration), value))
        if len(self._curve) > MOST_POINTS:
            del self._curve[1:-1:2]

    def _post(self, seconds: float) -> None:
        if self._client.status != "running":
            return  # the client would wait for a scheduler that is gone
        at = {"phase": self._pass.name, "share": self._pass.done, "left": self._remaining.at_most}
        # A fit must not fail because a message cannot be delivered.
        with suppress(OSError, TimeoutError, RuntimeError):
            message = {**self._facts, **at, "seconds": seconds, "curve": list(self._curve)}
            self._client.log_event(TOPIC, message)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
