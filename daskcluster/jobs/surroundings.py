"""Where a job runs: who has not imported distributed is in no Dask task, and has no client."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from daskcluster.jobs.board import Board


def in_task() -> bool:
    """Whether this thread runs a Dask task."""
    if "distributed" not in sys.modules:
        return False
    from daskcluster.engine import connect

    return connect.in_task()


def task_key() -> str | None:
    """Return the key of the Dask task that this thread runs; None if it runs none."""
    if not in_task():
        return None
    from daskcluster.engine.connect import key_of_task

    return str(key_of_task())


def worker_here() -> str:
    """Return the address of the worker whose task this thread runs; empty if it runs none."""
    if not in_task():
        return ""
    from daskcluster.engine.connect import worker_of_task

    return worker_of_task()


def board_of(engine: Any) -> Board | None:
    """Return the board of the scheduler that a job has to do with, if it has to do with one."""
    client: Client | None = None
    if in_task():
        from daskcluster.engine.connect import client_here

        client = client_here()
    elif "distributed" in sys.modules:
        from daskcluster.engine.connect import Client as AnyClient

        given = getattr(engine, "client", engine)
        client = given if isinstance(given, AnyClient) else None
    if client is None:
        return None
    from daskcluster.jobs.board import Board

    return Board(client)
