"""Workers that join during a pass."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future as Joining
from concurrent.futures import ThreadPoolExecutor

from daskcluster.engine.registry import WorkerInfo, WorkerRegistry

JOIN_SECONDS = 1.0
"""How often a pass looks for workers that have joined."""


class Newcomers:
    """Finds workers that join during a pass, and prepares them in a thread of the driver.

    A new worker opens the dataset and loads the kernels first, which may take seconds.

    Parameters
    ----------
    registry : WorkerRegistry
    pool : ThreadPoolExecutor
    """

    def __init__(self, registry: WorkerRegistry, pool: ThreadPoolExecutor) -> None:
        self._registry, self._pool = registry, pool
        self._joining: Joining[Mapping[str, WorkerInfo]] | None = None
        self._looked = time.monotonic()

    def ready(self, known: Iterable[str]) -> dict[str, int]:
        """Return the threads of the workers that can take tasks now and are not `known`, by address."""
        if self._joining is not None and self._joining.done():
            workers, self._joining = self._joining.result(), None
            return {a: workers[a].n_threads for a in sorted(workers.keys() - set(known))}
        if self._joining is None and time.monotonic() - self._looked > JOIN_SECONDS:
            self._looked = time.monotonic()
            if self._registry.present() - set(known):
                self._joining = self._pool.submit(self._registry.refresh)
        return {}
