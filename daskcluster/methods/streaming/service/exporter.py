"""Metrics of a stream for Prometheus, and its health check, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from daskcluster.errors import EngineError, MissingExtraError
from daskcluster.events import Event
from daskcluster.extras import install_command
from daskcluster.methods.streaming.service.ledger import Oddity
from daskcluster.methods.streaming.service.state import Cycle

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


class HealthCheck:
    """A callback that detects a stuck loop: events are signs of work.

    A long fold publishes an event per piece; a loop that waits for its next cycle publishes none.

    Parameters
    ----------
    patience : float
        Seconds without an event after which the loop counts as stuck.
    rest : float
        Seconds that the loop waits between two cycles; added to `patience`.
    clock : callable () -> float
        Monotonic seconds.

    Examples
    --------
    >>> seconds = iter([0.0, 40.0, 90.0, 200.0])
    >>> health_check = HealthCheck(60, rest=30, clock=lambda: next(seconds))
    >>> health_check(Event())
    >>> health_check.complaint() is None
    True
    >>> health_check.complaint()
    'no sign of work for 160 s; 90 s are allowed'
    """

    def __init__(
        self, patience: float, rest: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._allowed = patience + rest
        self._clock = clock
        self._last = clock()

    def __call__(self, event: Event) -> None:
        self._last = self._clock()

    def complaint(self) -> str | None:
        """Return a message if the loop is stuck, else None."""
        silence = self._clock() - self._last
        if silence <= self._allowed:
            return None
        return f"no sign of work for {silence:.0f} s; {self._allowed:.0f} s are allowed"


_GAUGES = {
    "rows_seen": "Number of rows folded.",
    "objects": "Number of entries in the ledger.",
    "remembered": "Weight of all rows after forgetting.",
    "n_clusters": "Number of clusters of the latest model.",
    "model_version": "Number of rows that the latest model has seen.",
    "seconds": "Duration of the last cycle in seconds.",
    "drift_error": "Mean squared distance of the last leaf to the centres before it.",
    "drift_baseline": "Mean error of earlier leaves.",
    "drift_ratio": "The error divided by its baseline.",
}


class StreamMetrics:
    """Serves the metrics of the last cycle at /metrics, and the health of the loop at /health.

    Parameters
    ----------
    health_check : HealthCheck
        Health check of the loop: /health answers 503 while it has a complaint, else 200.
    address : str
        Address to listen at.
    port : int
        0 takes a free one; see the attribute `port`.

    Raises
    ------
    MissingExtraError
        prometheus_client is not installed.
    EngineError
        The port is in use.
    """

    def __init__(
        self, health_check: HealthCheck, address: str = "127.0.0.1", port: int = 0
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as error:
            raise MissingExtraError(
                f"Metrics need prometheus_client. Remedy: {install_command('metrics')}."
            ) from error
        registry = CollectorRegistry()
        self._gauges: dict[str, Any] = {
            name: Gauge(f"daskcluster_stream_{name}", text, registry=registry)
            for name, text in _GAUGES.items()
        }
        self._updated: Any = Gauge(
            "daskcluster_stream_updated_seconds", "End time of the last cycle.", registry=registry
        )
        self._jumps: Any = Counter(
            "daskcluster_stream_drifts", "Number of drifts found.", registry=registry
        )
        self._odd: Any = Gauge(
            "daskcluster_stream_odd_objects",
            "Number of odd objects in the last cycle.",
            ["what"],
            registry=registry,
        )
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            raise EngineError(
                f"metrics cannot be served at {address}:{port} ({error}); choose another port."
            ) from error
        metrics = self._server.get_app()
        assert metrics is not None

        def answer(request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            if request["PATH_INFO"] != "/health":
                return metrics(request, start)
            complaint = health_check.complaint()
            status = "200 OK" if complaint is None else "503 Service Unavailable"
            start(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [(complaint or "ok").encode()]

        self._server.set_app(answer)
        self.port = int(self._server.server_port)

    def update(self, cycle: Cycle) -> None:
        """Set the metrics to those of a cycle."""
        figures = vars(cycle) | {f"drift_{name}": value for name, value in cycle.drift.items()}
        for name, gauge in self._gauges.items():
            gauge.set(float(figures.get(name) or 0.0))
        self._jumps.inc(len(cycle.drifts))
        for oddity in Oddity:
            count = sum(finding.oddity == oddity for finding in cycle.findings)
            self._odd.labels(str(oddity)).set(count)
        self._updated.set(time.time())

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
