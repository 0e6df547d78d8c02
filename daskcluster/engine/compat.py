"""All uses of undocumented parts of Dask.

Each function names the internals that it relies on. `tests/engine/test_compat.py` checks them against the
installed Dask, so a release that changes one fails a test that names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distributed import Lock
from distributed.protocol.pickle import dumps as dumps
from distributed.threadpoolexecutor import thread_state

if TYPE_CHECKING:
    from distributed import Client, Scheduler

SEEN_IN = "2026.3.0", "2026.8.0"
"""First and last release of distributed that these functions were checked against."""

NANNY_ENVIRONMENT = {"MALLOC_TRIM_THRESHOLD_": "65536"}
"""Variables that Dask sets before it starts a worker unless they exist, and does not remove."""

GREETING_ERROR = AssertionError
"""Raised by a connecting client when a busy scheduler sends other messages with its greeting."""

SCATTER_ERRORS = KeyError, OSError, ValueError, TimeoutError
"""Errors of ``Client.scatter`` to a worker that has just left."""


def has_seceded() -> bool:
    """Return whether the task in this thread has seceded: ``thread_state.proceed``."""
    return not getattr(thread_state, "proceed", True)


def threads_of(dask_worker: Any) -> int:
    """Return the number of task threads of a worker, inside ``Client.run``: ``state.nthreads``."""
    return 1 if dask_worker is None else int(dask_worker.state.nthreads)


def running_workers(client: Client) -> dict[str, Mapping[str, Any]]:
    """Return the scheduler's information on every worker that accepts tasks, by address.

    Relies on the fields ``status``, ``nthreads``, ``memory_limit``, ``name``, ``host`` and ``resources`` of
    ``Client.scheduler_info``.
    """
    return _workers(client, "running")


def paused_workers(client: Client) -> dict[str, tuple[int, int]]:
    """Return the memory that paused workers use and may use, in bytes, by address.

    Dask pauses a worker that uses more than ``distributed.worker.memory.pause`` of its limit, as ``memory``
    of its ``metrics`` in ``Client.scheduler_info``.
    """
    found = _workers(client, "paused")
    return {
        address: (int(info.get("metrics", {}).get("memory", 0)), int(info.get("memory_limit") or 0))
        for address, info in found.items()
    }


def _workers(client: Client, status: str) -> dict[str, Mapping[str, Any]]:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {a: info for a, info in workers.items() if info.get("status", "running") == status}


def processing_keys(client: Client, keys: Collection[str]) -> set[str]:
    """Return which of `keys` are assigned to a worker: the scheduler's handler ``get_task_status``.

    ``Client.processing`` would list the tasks of all users of the cluster.
    """
    states = client.sync(client.scheduler.get_task_status, keys=list(keys))
    return {key for key, state in states.items() if state == "processing"}


def ended_unexpectedly(client: Client, worker: str, key: str) -> bool:
    """Return whether a worker died while it had the task `key`.

    Relies on the scheduler's ``remove-worker`` events with ``processing-tasks`` and ``expected``; the
    latter is true if the worker was retired, as when a cluster is scaled down.
    """
    events = [event for _, event in client.get_events(worker) if isinstance(event, dict)]
    return any(
        key in event.get("processing-tasks", ()) and not event.get("expected")
        for event in events
        if event.get("action") == "remove-worker"
    )


def stored_bytes(client: Client, workers: Iterable[str], prefix: str) -> dict[str, dict[str, int]]:
    """Return the keys with a prefix that workers store, and their bytes, by worker.

    Keys of all clients count. Each worker searches its own ``data``, and ``nbytes`` of ``state.tasks``; the
    scheduler could only list the keys of all users of the cluster. Empty for a worker that has just left.
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
    """Return a cluster-wide lock of this client, usable in any thread: ``scheduler_rpc`` and ``loop``."""
    return Lock(name, scheduler_rpc=client.scheduler, loop=client.loop)


def add_pages(scheduler: Scheduler, pages: Sequence[tuple[Any, ...]]) -> None:
    """Add pages to Dask's dashboard, under any prefix: ``Scheduler.http_application``."""
    scheduler.http_application.add_handlers(".*$", list(pages))
