"""Everything that this package uses of Dask beyond its documentation.

Each part names what it relies on. `tests/engine/test_compat.py` checks it against the Dask that is
installed, so a release that changes something is met there by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distributed import Lock
from distributed.protocol.pickle import dumps
from distributed.threadpoolexecutor import thread_state

if TYPE_CHECKING:
    from distributed import Client, Scheduler

__all__ = [
    "GREETING_ERROR",
    "NANNY_ENVIRONMENT",
    "SCATTER_ERRORS",
    "SEEN_IN",
    "add_pages",
    "dumps",
    "ended_unexpectedly",
    "has_seceded",
    "lock",
    "processing_keys",
    "running_workers",
    "stored_bytes",
    "threads_of",
]

SEEN_IN = "2026.3.0", "2026.8.0"
"""First and last release of distributed in which all this was seen."""

NANNY_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": "65536"}
"""What Dask sets before it starts a worker, where it is not set already, and leaves behind."""

GREETING_ERROR = AssertionError
"""A client that connects wants the scheduler's greeting alone; a busy one sends more along with it."""

SCATTER_ERRORS = KeyError, OSError, ValueError, TimeoutError
"""Errors of ``Client.scatter`` to a worker that has just left."""


def has_seceded() -> bool:
    """Whether the task that runs in this thread has given it back: ``thread_state.proceed``."""
    return not getattr(thread_state, "proceed", True)


def threads_of(dask_worker: Any) -> int:
    """Return the task threads of the worker that runs a function of ``Client.run``: ``state.nthreads``."""
    return 1 if dask_worker is None else int(dask_worker.state.nthreads)


def running_workers(client: Client) -> dict[str, Mapping[str, Any]]:
    """Return what the scheduler says of every worker that takes tasks, by address.

    Relies on the fields ``status``, ``nthreads`` and ``memory_limit`` of ``Client.scheduler_info``.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {a: info for a, info in workers.items() if info.get("status", "running") == "running"}


def processing_keys(client: Client, keys: Collection[str]) -> set[str]:
    """Return which of some tasks a worker has been given: the scheduler's handler ``get_task_status``.

    ``Client.processing`` would list the tasks of all users of the cluster.
    """
    states = client.sync(client.scheduler.get_task_status, keys=list(keys))
    return {key for key, state in states.items() if state == "processing"}


def ended_unexpectedly(client: Client, worker: str, key: str) -> bool:
    """Whether a worker ended without notice while it had a task.

    Relies on the scheduler's events of a worker: ``remove-worker``, with ``processing-tasks`` and with
    ``expected``, which is true of a worker that leaves because a cluster is scaled down.
    """
    events = [event for _, event in client.get_events(worker) if isinstance(event, dict)]
    return any(
        key in event.get("processing-tasks", ()) and not event.get("expected")
        for event in events
        if event.get("action") == "remove-worker"
    )


def stored_bytes(client: Client, workers: Iterable[str], prefix: str) -> dict[str, dict[str, int]]:
    """Return the keys with a prefix that workers store, from any client, and their bytes.

    Each worker looks through its own: ``data``, and ``nbytes`` of ``state.tasks``. The scheduler could
    only list the keys of all users of the cluster. Empty for a worker that has just left.
    """
    addresses = list(workers)
    if not addresses:
        return {}
    found = client.run(_stored_here, prefix, workers=addresses, on_error="return")
    return {
        address: found[address] if isinstance(found.get(address), dict) else {}
        for address in addresses
    }


def _stored_here(prefix: str, dask_worker: Any) -> dict[str, int]:
    keys = [key for key in dask_worker.data if isinstance(key, str) and key.startswith(prefix)]
    tasks = dask_worker.state.tasks
    return {key: tasks[key].nbytes or 0 for key in keys if key in tasks}


def lock(client: Client, name: str) -> Any:
    """Return a lock of the cluster for this client, in any thread: ``scheduler_rpc`` and ``loop``."""
    return Lock(name, scheduler_rpc=client.scheduler, loop=client.loop)


def add_pages(scheduler: Scheduler, pages: Sequence[tuple[Any, ...]]) -> None:
    """Serve pages next to Dask's dashboard, under any prefix: ``Scheduler.http_application``."""
    scheduler.http_application.add_handlers(".*$", list(pages))
