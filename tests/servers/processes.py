"""Programs of other projects that serve for the length of a test."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path


class ServerError(RuntimeError):
    """A server did not start; the message has the end of its log."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program within the block, its output in a file."""
    with log.open("wb") as out, ExitStack() as stack:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)
        yield process


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Return when something listens at a port of this machine.

    Raises
    ------
    ServerError
    """
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise ServerError(f"nothing listens at port {port}: {log.read_text(errors='replace')[-2000:]}")


def call(command: Sequence[str], seconds: float = 60) -> str:
    """Run a program to its end and return its output.

    Raises
    ------
    ServerError
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"{command[0]} does not end within {seconds:g} s") from error
    if done.returncode:
        raise ServerError(f"{' '.join(command[:4])} failed: {done.stdout}{done.stderr}"[-2000:])
    return done.stdout
