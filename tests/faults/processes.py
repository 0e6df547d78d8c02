"""Processes to kill: a scheduler, workers, and commands."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 1 << 30

_server = multiprocessing.get_context("forkserver")
_preloaded = ["tests.faults.preload"]


@contextmanager
def _path_of_this_checkout() -> Any:
    """Put this checkout on the path of the fork server, which starts with the first process."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([before] if before else [])])
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def serve() -> None:
    """Start the fork server, unless it runs."""
    _server.set_forkserver_preload(_preloaded)
    with _path_of_this_checkout():
        multiprocessing.forkserver.ensure_running()


def start(target: Any, *arguments: Any, daemon: bool = True) -> Any:
    """Start a process that calls `target`; a `daemon` ends with this process."""
    serve()
    process = _server.Process(target=target, args=arguments, daemon=daemon)
    process.start()
    return process


def preload(module: str) -> None:
    """Let the fork server import `module`, too, before it forks the first process."""
    _preloaded.append(module)


def kill(process: Any) -> None:
    """Kill a process with SIGKILL, and wait until it has ended."""
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join(30)


class Command:
    """The command ``daskcluster`` in a separate process.

    Parameters
    ----------
    arguments : list of str
    folder : Path
        Folder for its output.
    name : str
        Of the files there.
    environment : mapping, optional
        Its own. Default: that of the process that first started one of those here, as it was then.
    """

    def __init__(
        self,
        arguments: list[str],
        folder: Path,
        name: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._files = folder / f"{name}.out", folder / f"{name}.err"
        for file in self._files:
            file.touch()
        self.began = time.monotonic()
        # A daemon may not start processes.
        alone = "--workers" not in arguments
        own = None if environment is None else dict(environment)
        self.process = start(_run_command, arguments, *map(str, self._files), own, daemon=alone)

    def running_after(self, seconds: float) -> bool:
        """Wait until `seconds` after its start; return False if it ended before."""
        self.process.join(max(0.0, self.began + seconds - time.monotonic()))
        return bool(self.process.is_alive())

    def end(self, timeout: float) -> tuple[int, float]:
        """Return its exit code and its total seconds.

        Raises
        ------
        TimeoutError
            It did not end in time, and was killed.
        """
        self.process.join(timeout)
        if self.process.is_alive():
            kill(self.process)
            raise TimeoutError(f"the command did not end within {timeout:g} s:\n{self.stderr}")
        return int(self.process.exitcode), time.monotonic() - self.began

    @property
    def stdout(self) -> str:
        return self._files[0].read_text()

    @property
    def stderr(self) -> str:
        return self._files[1].read_text()


def _redirect(out: str, err: str) -> None:
    for path, number in ((out, 1), (err, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)


def _run_command(
    arguments: list[str], out: str, err: str, environment: dict[str, str] | None
) -> None:
    _redirect(out, err)
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    sys.argv = ["daskcluster", *arguments]
    from daskcluster.cli.main import main

    main(arguments, prog_name="daskcluster")


class Cluster:
    """A scheduler and workers, each a process; only this class replaces lost workers.

    Parameters
    ----------
    folder : Path
        For scratch files and logs.
    n_workers : int
        Of one thread each.
    """

    def __init__(self, folder: Path, n_workers: int) -> None:
        self._folder = folder
        self._started = 0
        folder.mkdir(parents=True, exist_ok=True)
        here, there = _server.Pipe(duplex=False)
        self.scheduler = start(_run_scheduler, there, str(folder / "scheduler.log"))
        if not here.poll(120):
            raise TimeoutError("the scheduler did not start")
        self.address: str = here.recv()
        self._names: dict[int, str] = {}
        self.workers = [self._start_worker(place) for place in range(n_workers)]

    def _start_worker(self, place: int) -> Any:
        self._started += 1
        name = self._names[place] = f"worker-{self._started}"
        log = str(self._folder / f"{name}.log")
        return start(_run_worker, self.address, name, str(self._folder / name), log)

    def kill_workers(self, places: list[int]) -> None:
        for place in places:
            kill(self.workers[place])

    def replace_lost_workers(self) -> None:
        """Start a worker for each lost one, as a supervisor does."""
        for place, worker in enumerate(self.workers):
            if not worker.is_alive():
                self.workers[place] = self._start_worker(place)

    def wait_for_workers(self, timeout: float = 120) -> None:
        """Wait until the scheduler knows all workers."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=timeout) as client:
            deadline = time.monotonic() + timeout
            while time.monotonic() < deadline:
                known = client.scheduler_info(n_workers=-1)["workers"].values()
                if {info["name"] for info in known} == set(self._names.values()):
                    return
                time.sleep(0.02)
        raise TimeoutError(
            f"expected the workers {sorted(self._names.values())}; not all of them registered"
        )

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            kill(process)


def _run_scheduler(connection: Connection, log: str) -> None:
    _redirect(log, log)
    from distributed import Scheduler

    async def serve() -> None:
        options: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
        async with Scheduler(host="127.0.0.1", port=0, **options) as scheduler:
            connection.send(scheduler.address)
            await scheduler.finished()

    asyncio.run(serve())


def _run_worker(address: str, name: str, folder: str, log: str) -> None:
    _redirect(log, log)
    from distributed import Worker

    async def serve() -> None:
        options: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
        async with Worker(
            address,
            nthreads=1,
            name=name,
            host="127.0.0.1",
            memory_limit=MEMORY,
            local_directory=folder,
            **options,
        ) as worker:
            await worker.finished()

    asyncio.run(serve())
