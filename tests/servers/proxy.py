"""A line to an HTTP server that is cut, slow, or answered by somebody who is overloaded."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_ANSWERS = {
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "503": (503, "SlowDown", "Please reduce your request rate."),
    "denied": (403, "AccessDenied", "Access Denied"),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
}
STALL_SECONDS = 3.0
"""Longer than the clients of the tests wait."""


class Line:
    """Faults that are due on a line.

    Attributes
    ----------
    url : str
        Of the proxy.
    met : Counter
        How often each happened.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.met: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._due: tuple[str, int, Callable[[str, str], bool]] | None = None

    @contextmanager
    def failing(
        self, name: str, times: int = 10**9, on: Callable[[str, str], bool] = lambda m, p: True
    ) -> Iterator[None]:
        """Fail the first `times` requests for which ``on(method, path)``."""
        self.met.clear()
        self._due = (name, times, on)
        try:
            yield
        finally:
            self._due = None

    def next_fault(self, method: str, path: str) -> str:
        with self._lock:
            if self._due is None:
                return ""
            name, times, on = self._due
            if self.met[name] >= times or not on(method, path):
                return ""
            self.met[name] += 1
            return name


@contextmanager
def proxied(host: str, port: int) -> Iterator[Line]:
    """Yield a line to the server at a port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    line = Line(f"http://127.0.0.1:{server.server_address[1]}")
    server.line, server.upstream = line, (host, port)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield line
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.line.next_fault(self.command, self.path)  # type: ignore[attr-defined]
        if fault in _ANSWERS:
            self._answer(*_ANSWERS[fault])
        elif fault == "reset":
            self.close_connection = True
            self.connection.close()
        else:
            if fault == "stall":
                time.sleep(STALL_SECONDS)
            self._forward(body, cut=fault == "cut body")

    def _answer(self, status: int, code: str, text: str) -> None:
        content = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _forward(self, body: bytes, *, cut: bool) -> None:
        upstream = http.client.HTTPConnection(*self.server.upstream, timeout=30)  # type: ignore[attr-defined]
        upstream.request(self.command, self.path, body, dict(self.headers))
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve
