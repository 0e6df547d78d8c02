"""The monitor of a running job: counts events, reports to the scheduler, stops the job on request."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from daskcluster.errors import JobCancelledError
from daskcluster.events import (
    CycleEnded,
    Event,
    FitsMade,
    FitStarted,
    IterationEnded,
    PassEnded,
    PassProgress,
    PassShare,
    PassStarted,
)
from daskcluster.models.fitted import created_with
from daskcluster.reports.progress import ProgressLines
from daskcluster.storage.lease import Lease
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.jobs.registry import JobRegistry


CANCEL_SECONDS = 0.25
"""Most seconds between two checks for a cancel request, while there are events."""
LEASE_SECONDS = 2.0
_REPORT_SECONDS = 0.5


class JobMonitor:
    """A callback that reports progress, and raises if the job must stop.

    Parameters
    ----------
    name : str
        Name of the job.
    registry : JobRegistry or None
    lease : Lease or None
        Checked from time to time once it is held.

    Raises
    ------
    JobCancelledError
        The job was cancelled.
    LeaseError
        Another run of the job has taken over.
    """

    def __init__(self, name: str, registry: JobRegistry | None, lease: Lease | None) -> None:
        self._name = name
        self._registry = registry
        self._lease = lease
        self._lines = ProgressLines(self._hear)
        self._line = ""
        self._facts: dict[str, Any] = {}
        self._pass = PassShare()
        self._rows_seen = -1
        self._reported = self._asked = self._checked = 0.0

    def __call__(self, event: Event) -> None:
        self._lines(event)
        self._facts |= self._learned(event)
        now = time.monotonic()
        # Passes and iterations may be short and many; all other events are reported at once.
        often = isinstance(event, PassStarted | PassProgress | PassEnded | IterationEnded)
        if now - self._reported >= _REPORT_SECONDS or (self._line and not often):
            self._report(now)
        self.look(now)

    def look(self, now: float | None = None) -> None:
        """Raise if the job was cancelled or restarted; checks at most once per interval."""
        now = time.monotonic() if now is None else now
        self.listen(now)
        if self._lease is not None and self._lease.is_held and now - self._checked >= LEASE_SECONDS:
            self._checked = now
            self._lease.check()

    def listen(self, now: float) -> None:
        """Raise if the job was cancelled."""
        if self._registry is not None and now - self._asked >= CANCEL_SECONDS:
            self._asked = now
            if self._registry.is_cancelled(self._name):
                raise JobCancelledError(
                    f"the job {self._name!r} was cancelled; submit it again under its name to resume from "
                    "its checkpoint."
                )

    def rest(self, seconds: float) -> None:
        """Sleep; raise if the job is cancelled meanwhile. Makes no requests to the store."""
        until = time.monotonic() + seconds
        while (left := until - (now := time.monotonic())) > 0:
            self.listen(now)
            time.sleep(min(left, CANCEL_SECONDS))

    def _hear(self, line: str) -> None:
        self._line = line

    def _report(self, now: float) -> None:
        if not (self._line or self._facts):
            return
        self._reported = now
        if self._registry is not None:
            self._registry.report(self._name, self._line, **self._facts)
        self._line, self._facts = "", {}

    def _learned(self, event: Event) -> Mapping[str, Any]:
        if isinstance(event, FitStarted):
            return {"iteration": 0, "max_iter": event.max_iter}
        if isinstance(event, IterationEnded):
            inertia = float(event.inertia)
            finite = inertia if math.isfinite(inertia) else None
            return {"iteration": int(event.iteration), "inertia": finite}
        if isinstance(event, CycleEnded):
            is_news = event.n_rows != self._rows_seen  # cycles without new rows are not reported
            self._rows_seen = event.n_rows
            return {"rows_seen": event.n_rows} if is_news else {}
        if isinstance(event, FitsMade):
            return {"phase": "fits", "share": event.done / event.total}
        self._pass(event)
        of_pass = isinstance(event, PassStarted | PassProgress | PassEnded)
        return {"phase": self._pass.name, "share": self._pass.done} if of_pass else {}


class JobCounters:
    """Counts passes and bytes from the events of a job."""

    def __init__(self) -> None:
        self.passes = 0
        self.bytes_read = 0
        self._began = time.perf_counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event, PassEnded):
            self.passes += 1
            self.bytes_read += event.bytes_read

    def at_least(self, passes: int, bytes_read: int) -> None:
        """Include the passes and bytes that a resumed fit made before the interruption."""
        self.passes = max(self.passes, passes)
        self.bytes_read = max(self.bytes_read, bytes_read)

    def common(self, dataset: Dataset) -> dict[str, Any]:
        """Return the fields that all records share."""
        return {
            "n_rows": dataset.n_rows,
            "n_features": dataset.n_features,
            "passes": self.passes,
            "bytes_read": self.bytes_read,
            "seconds": time.perf_counter() - self._began,
            "versions": created_with(),
        }
