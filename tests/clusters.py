"""A cluster of processes whose workers a test may kill, and what clusters in this process leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def patient_cluster(
    n_workers: int, threads: int = 1, settings: Mapping[str, Any] | None = None
) -> Iterator[Client]:
    """Yield a client of workers on loopback, which are started again however often they die.

    Parameters
    ----------
    n_workers, threads : int
        Processes, and threads in each.
    settings : mapping, optional
        Of Dask's configuration.
    """
    import dask

    from daskcluster.engine.connect import local_cluster

    # By default a cluster gives a nanny up whose worker happens to be dead 15 s after it died once.
    patience = {"distributed.deploy.lost-worker-timeout": "1 hour"}
    with (
        dask.config.set({**patience, **(settings or {})}),
        local_cluster(n_workers, threads) as client,
    ):
        yield client


@contextmanager
def default_scheduler_kept() -> Iterator[None]:
    """Keep Dask's default scheduler, which clients of several workers of this process leave changed."""
    import dask

    before = dask.config.get("scheduler", None)
    try:
        yield
    finally:
        dask.config.config.pop("scheduler", None)
        if before is not None:
            dask.config.set(scheduler=before)
