"""The cluster of a prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass

from daskcluster.errors import InvalidParameterError


@dataclass(frozen=True)
class Cluster:
    """Workers and the network between them.

    Attributes
    ----------
    workers : int
        Processes; 0 for threads of this process, without Dask.
    threads : int
        Threads of each worker.
    cores : int or None
        Cores of all workers together; None: one for each thread.
    one_host : bool
        Client, scheduler and workers share these cores.
    bandwidth : float
        Bytes per second into and out of each machine; no limit on one host.
    store_bandwidth : float
        Bytes per second from the store to all workers together.
    latency : float
        Seconds of a message between two machines.
    driver_threads : int
        Threads of the process that runs the fit, for work on few rows.

    Examples
    --------
    >>> Cluster(workers=8, threads=4).slots, Cluster(workers=8, threads=4, cores=2).busy_cores
    (32, 2)
    """

    workers: int
    threads: int = 1
    cores: int | None = None
    one_host: bool = False
    bandwidth: float = math.inf
    store_bandwidth: float = math.inf
    latency: float = 0.0
    driver_threads: int = 1

    def __post_init__(self) -> None:
        least = {"workers": 0, "threads": 1, "driver_threads": 1}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise InvalidParameterError(f"{name}={getattr(self, name)} should be >= {value}.")
        if self.cores is not None and self.cores < 1:
            raise InvalidParameterError(f"cores={self.cores} should be >= 1.")
        for name in ("bandwidth", "store_bandwidth"):
            if not getattr(self, name) > 0:
                raise InvalidParameterError(f"{name}={getattr(self, name)} should be > 0.")
        if not self.latency >= 0:
            raise InvalidParameterError(f"latency={self.latency} should be >= 0.")

    @property
    def slots(self) -> int:
        """Threads of all workers."""
        return max(1, self.workers) * self.threads

    @property
    def busy_cores(self) -> int:
        """Cores that the threads of the workers can use."""
        return self.slots if self.cores is None else min(self.slots, self.cores)

    @property
    def is_full(self) -> bool:
        """Whether the workers keep all cores of the host busy."""
        return self.cores is None or self.slots >= self.cores

    @property
    def is_crowded(self) -> bool:
        """Whether client and scheduler compete with the workers for cores."""
        return self.one_host and self.is_full

    @property
    def from_store(self) -> float:
        """Bytes per second from the store to all workers together."""
        return min(self.store_bandwidth, max(1, self.workers) * self.bandwidth)
