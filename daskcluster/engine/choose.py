"""Choose the engine for the `engine` argument of a caller."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import EngineError, WrongTypeError
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.engine.dask import DaskEngine

_connected: dict[str, DaskEngine] = {}


def choose_engine(engine: Any, dataset: Dataset) -> Engine:
    """Return the engine to use for work on `dataset`.

    Parameters
    ----------
    engine : None, Engine, distributed.Client or str
        A string is ``"local"`` or the address of a scheduler. None means: inside a Dask task, one thread of
        this process; otherwise the current Dask client, if there is one and its workers can read the
        dataset; otherwise the threads of this process.
    dataset : Dataset

    Raises
    ------
    EngineError
        A cluster is requested inside a Dask task that has not seceded: the task would wait for tasks that
        wait for its thread.
    SchedulerUnreachableError
        No scheduler answered at the address.
    WrongTypeError
        `engine` is none of these.

    Examples
    --------
    >>> from daskcluster.engine.choose import choose_engine
    >>> choose_engine("local", None)
    LocalEngine(n_threads=...)
    """
    if engine is None:
        return _default(dataset)
    if isinstance(engine, str):
        return LocalEngine() if engine == "local" else _at(engine)
    if isinstance(engine, Engine):
        if engine.name == "dask":
            _refuse_unseceded()
        return engine
    if "distributed" in sys.modules:
        from daskcluster.engine.connect import Client

        if isinstance(engine, Client):
            return _dask(engine)
    raise WrongTypeError(
        f"engine={engine!r} should be None, 'local', the address of a scheduler, a distributed.Client "
        "or an Engine."
    )


def _default(dataset: Dataset) -> Engine:
    # If distributed was never imported, there is no client, and the slow import is saved.
    if "distributed" not in sys.modules:
        return LocalEngine()
    from daskcluster.engine.connect import current_client, in_task

    if in_task():
        return LocalEngine(n_threads=1)
    client = current_client()
    if client is None or client.asynchronous or client.status != "running":
        return LocalEngine()
    engine = _dask(client)
    # Rows that only this process can read stay local unless the caller names a cluster.
    return engine if engine.can_read(dataset) else LocalEngine()


def _dask(client: Any) -> DaskEngine:
    from daskcluster.engine.dask import DaskEngine

    _refuse_unseceded()
    return DaskEngine(client)


def _at(address: str) -> DaskEngine:
    """Return the engine for an address; all fits of this process share one connection."""
    from daskcluster.engine.dask import DaskEngine

    _refuse_unseceded()
    engine = _connected.get(address)
    if engine is None or engine.client.status != "running":
        engine = _connected[address] = DaskEngine(address)
    return engine


def _refuse_unseceded() -> None:
    from daskcluster.engine.compat import has_seceded
    from daskcluster.engine.connect import in_task

    if in_task() and not has_seceded():
        raise EngineError(
            "a task that occupies a thread of a Dask cluster cannot run work on that cluster: it could "
            "wait for itself. Leave engine=None (one thread of the worker), call distributed.secede() "
            "first, or use daskcluster.jobs."
        )
