"""A scheduler and workers in separate processes, whose CPU time can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from daskcluster.engine.connect import connect
from daskcluster.errors import EngineError

_STARTING_SECONDS = 120.0
_STEP_SECONDS = 0.05


class Processes:
    """A Dask cluster on this machine for measurements; only the client is in this process.

    A context manager: leaving it ends the processes.

    Parameters
    ----------
    memory_limit : int
        Bytes of each worker.
    within : sequence of str
        Words before the command of each process, such as those that enter a network namespace; in
        them ``{name}`` becomes ``scheduler``, or the name of the process of workers.
    host_of : mapping of str to str, optional
        Addresses to listen on, by the same names. Default: loopback.

    Attributes
    ----------
    client : distributed.Client
    n_workers : int
        That were started.
    """

    def __init__(
        self,
        memory_limit: int,
        *,
        within: Sequence[str] = (),
        host_of: dict[str, str] | None = None,
    ) -> None:
        self._memory_limit, self._within = memory_limit, tuple(within)
        self._host_of = host_of or {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self.n_workers = 0
        self.client: Any = None

    def __enter__(self) -> Self:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="daskcluster-"))
        self._folder = Path(folder)
        self._stack.callback(self._end)
        try:
            self._start(
                "scheduler", "scheduler", "--port", "0", "--scheduler-file", str(self._file),
                "--host", self._host("scheduler"), "--no-dashboard",
            )  # fmt: skip
            self.client = self._stack.enter_context(connect(self._address(), _STARTING_SECONDS))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def add(self, name: str, n_workers: int = 1, n_threads: int = 1) -> None:
        """Start a process with one or more workers, and wait until they are connected."""
        options = {
            "nthreads": n_threads,
            "memory_limit": self._memory_limit,
            "host": self._host(name),
            "local_directory": str(self._folder),
        }
        workers = {
            f"{name}-{i}": {"cls": "distributed.Worker", "opts": {**options, "name": f"{name}-{i}"}}
            for i in range(n_workers)
        }
        self.n_workers += n_workers
        self._start(name, "spec", self._address(), "--spec", json.dumps(workers))
        self.client.wait_for_workers(self.n_workers, timeout=_STARTING_SECONDS)

    def seconds(self) -> tuple[float, float, float]:
        """Return the CPU seconds so far of this process, of the scheduler, and of all workers."""
        used = {name: _cpu(process.pid) for name, process in self._running.items()}
        scheduler = used.pop("scheduler")
        return _cpu(os.getpid()), scheduler, sum(used.values())

    @property
    def _file(self) -> Path:
        return self._folder / "scheduler.json"

    def _start(self, name: str, role: str, *arguments: str) -> None:
        words = [word.format(name=name) for word in self._within]
        dask = [sys.executable, "-m", "dask", role, *arguments]
        with (self._folder / "log").open("ab") as log:
            self._running[name] = subprocess.Popen([*words, *dask], stdout=log, stderr=log)

    def _host(self, name: str) -> str:
        return self._host_of.get(name, "127.0.0.1")

    def _address(self) -> str:
        deadline = time.monotonic() + _STARTING_SECONDS
        while time.monotonic() < deadline and self._running["scheduler"].poll() is None:
            try:
                return str(json.loads(self._file.read_text(encoding="utf-8"))["address"])
            except (OSError, ValueError):
                time.sleep(_STEP_SECONDS)
        log = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        raise EngineError(
            f"the Dask scheduler did not start within {_STARTING_SECONDS:g} s; its log ends with "
            f"{log[-500:]!r}."
        )

    def _end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
