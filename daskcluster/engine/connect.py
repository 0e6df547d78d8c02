"""Connections to Dask: clients with a timeout, local clusters, version checks."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

import dask
from distributed import Client as Client
from distributed import KilledWorker as KilledWorker
from distributed import LocalCluster, get_client, get_worker, secede
from distributed.security import Security

from daskcluster.engine.compat import GREETING_ERROR, NANNY_ENVIRONMENT, has_seceded
from daskcluster.engine.tls import address_under
from daskcluster.errors import EngineError, InvalidParameterError, SchedulerUnreachableError
from daskcluster.host import MOST_KEPT_BLOCK

TIMEOUT = 10.0
"""Default seconds to wait for a scheduler, and for a first worker."""

_PARTS = {"dask": None, "distributed": None, "daskcluster": None, "python": 2, "numpy": 2}
"""Packages whose versions should agree, in so many parts; None for all."""
# Dask makes glibc return every freed page to the system, so each read of a chunk faults its pages in
# again: decoding becomes 2 to 3 times slower (measured). These settings allocate buffers up to 32 MiB on
# the heap, which keeps a part of the worker's limit. All threads share one heap: every pass has new reader
# threads, and one heap per thread would keep the largest buffer of each.
_TRIM_MOST = 256 * 1024**2
_TRIM_SHARE = 1 / 8
# By default, each process of a cluster checks the delay of its event loop every 20 ms, and each worker
# profiles its threads every 10 ms. An idle cluster of two workers takes 12 % of a core with these checks,
# and 4 % without (measured).
_QUIET = {"distributed.admin.tick.interval": "500ms", "distributed.worker.profile.enabled": False}


def connect(address: str, timeout: float = TIMEOUT, *, security: Security | None = None) -> Client:
    """Connect a client to the scheduler at `address`.

    Parameters
    ----------
    address : str
        In Dask's notation, e.g. ``"tcp://10.0.0.5:8786"``.
    timeout : float
        Seconds to wait for an answer.
    security : distributed.security.Security, optional
        Certificates, see `daskcluster.engine.tls.client_security`. Default: those of Dask's configuration.
        With certificates, an address that would not be encrypted is refused.

    Raises
    ------
    SchedulerUnreachableError
        No scheduler answered in time, or client and scheduler do not trust each other's certificates.
    InvalidParameterError
        `address` is not an address, needs certificates, or would not be encrypted.
    """
    address = address_under(security, address)
    try:
        return _create_within(address, timeout, security)
    except ValueError as error:
        raise InvalidParameterError(
            f"scheduler={address!r} should be an address such as 'tcp://host:8786' ({error})."
        ) from error
    except Exception as error:  # a server that is not a scheduler may cause any error
        raise SchedulerUnreachableError(
            f"no Dask scheduler answered at {address} within {timeout:g} s ({type(error).__name__}: "
            f"{error}); check {_to_check(error)}."
        ) from error


def _to_check(error: Exception) -> str:
    reason = f"{type(error).__name__} {error} {error.__cause__}"
    if "TLS" in reason or "SSL" in reason or "certificate" in reason:
        return "that each side trusts the authority that signed the certificate of the other"
    return "the address, that the scheduler runs, and that nothing blocks the port"


def _create_within(address: str, timeout: float, security: Security | None) -> Client:
    # In a daemon thread, because Client waits forever on a port that accepts connections but never answers.
    answer: Future[Client] = Future()

    def create() -> None:
        for is_last in (False, False, True):
            try:
                answer.set_result(
                    Client(address, timeout=0.9 * timeout, set_as_default=False, security=security)
                )
                return
            except Exception as error:  # raised in the caller's thread
                failed = error
            # Frames hold the client, since Python 3.13 also those of the errors that led to this one.
            causes: list[BaseException | None] = [failed]
            while causes:
                if (each := causes.pop()) is not None:
                    causes += {each.with_traceback(None).__cause__, each.__context__}
            # A failed client closes itself when it is garbage-collected. If that happened while Dask
            # starts an event loop, it would deadlock on a lock of its own thread, so collect it now.
            gc.collect()
            if is_last or not isinstance(failed, GREETING_ERROR):
                answer.set_exception(failed)
                return

    threading.Thread(target=create, name="daskcluster-connect", daemon=True).start()
    if not wait([answer], timeout).done:
        answer.add_done_callback(lambda late: None if late.exception() else late.result().close())
        raise TimeoutError("the port is open but no Dask scheduler answers there")
    return answer.result()


@contextmanager
def local_cluster(
    n_workers: int, threads_per_worker: int = 1, memory_limit: int | None = None
) -> Iterator[Client]:
    """Start worker processes on this machine, yield a client, and stop them again.

    Scheduler, workers and dashboard listen on loopback only. Dask's profiler is off and its event loop
    checks are rare, since both take time from the computing threads.

    Parameters
    ----------
    n_workers, threads_per_worker : int
    memory_limit : int, optional
        Bytes that all workers together may use. Default: the machine's memory.

    Examples
    --------
    >>> from daskcluster.engine.connect import local_cluster
    >>> with local_cluster(2) as client:  # doctest: +SKIP
    ...     KMeans(n_clusters=8, engine=client).fit("rows.zarr")
    """
    for name, value in (("n_workers", n_workers), ("threads_per_worker", threads_per_worker)):
        if value < 1:
            raise InvalidParameterError(f"{name}={value} should be >= 1; give at least one.")
    share = None if memory_limit is None else max(1, memory_limit // n_workers)
    with (
        dask.config.set(_QUIET),
        _malloc_settings(share),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            memory_limit="auto" if share is None else share,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=40,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _malloc_settings(limit: int | None) -> Iterator[None]:
    # Workers inherit the environment when they are spawned. Dask does not override variables that are
    # already set, and leaves its own set in this process, so save the environment and restore it
    # afterwards.
    trim = _TRIM_MOST if limit is None else min(_TRIM_MOST, int(limit * _TRIM_SHARE))
    wanted = {
        "MALLOC_ARENA_MAX": 1,
        "MALLOC_TRIM_THRESHOLD_": trim,
        "MALLOC_MMAP_THRESHOLD_": min(trim, MOST_KEPT_BLOCK),
    }
    before = {name: os.environ.get(name) for name in wanted}
    for name, left in NANNY_ENVIRONMENT.items():
        if os.environ.get(name) == left:
            del os.environ[name]
    key = "distributed.nanny.pre-spawn-environ"
    try:
        with dask.config.set({key: {**dask.config.get(key, {}), **wanted}}):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def check_versions(client: Client) -> None:
    """Compare the versions of Python and key packages on client, scheduler and workers.

    Raises
    ------
    EngineError
        Versions differ; the error names every difference.
    """
    found = client.get_versions(packages=["daskcluster", "numpy"])
    here = found["client"]["packages"]
    places = {"scheduler": found["scheduler"], **found["workers"]}
    wrong = [
        f"{name} {there} on {place}, {here[name]} here"
        for place, report in places.items()
        for name, there in (report["packages"] if report else {}).items()
        # A checkout on PYTHONPATH has no version, and a scheduler may lack numpy and this package.
        if name in _PARTS and there and here.get(name)
        if there.split(".")[: _PARTS[name]] != here[name].split(".")[: _PARTS[name]]
    ]
    if wrong:
        raise EngineError(
            f"client, scheduler and workers should run the same software: {'; '.join(wrong)}; install "
            "the same versions everywhere (use the same image)."
        )


def in_task() -> bool:
    """Return True inside a task that runs on a Dask worker."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def current_client() -> Client | None:
    """Return the client that `distributed` would use here, or None."""
    if in_task():
        return None
    try:
        return Client.current()
    except ValueError:
        return None


# -- inside a task ---------------------------------------------------------------------------------


def client_here() -> Client:
    """Return the client of the worker that runs this task."""
    return get_client()


def client_of_task() -> Client:
    """Secede from the worker's thread pool (once) and return the worker's client.

    After that, the task may wait for other tasks of the same cluster.
    """
    if not has_seceded():
        secede()
    return client_here()


def key_of_task() -> str:
    """Return the key of the task that runs here; it stays the same when Dask runs the task again."""
    return str(get_worker().get_current_task())


def worker_of_task() -> str:
    """Return the address of the worker that runs this task."""
    return str(get_worker().address)
