"""What all tests share: fixed hypothesis examples and one small Dask cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import dask
import pytest
from distributed import LocalCluster
from hypothesis import settings

from tests.faults import processes

# The same examples in every run; compiling a kernel may take seconds, so no deadline.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fixed")

METHOD = "distributed.worker.multiprocessing-method"

# A shell starts what it puts into the background deaf to Ctrl-C, and children stay so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Let clusters that tests start here fork their workers from a process that has imported everything.

    Otherwise each worker imports for seconds. Programs that tests start spawn theirs, as those of users do.
    """
    begin = LocalCluster.__init__

    def begin_with_server(cluster: Any, *arguments: Any, **named: Any) -> None:
        own: dict[str, Any] = {}
        if dask.config.get(METHOD) == "forkserver":
            processes.serve()
            # The environment of this process as it is now; that of the server is older.
            own["distributed.nanny.environ"] = dict(os.environ)
        with dask.config.set(own):
            begin(cluster, *arguments, **named)

    with dask.config.set({METHOD: "forkserver"}), pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalCluster, "__init__", begin_with_server)
        yield


@pytest.fixture
def spawned() -> Iterator[None]:
    """Spawn workers: the C library of a forked one does not look at its environment."""
    with dask.config.set({METHOD: "spawn"}):
        yield


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """Yield a client of one cluster of two processes with one thread each, on loopback.

    Shared by all tests of a session: leave it as it was found. A test that kills or adds workers
    starts a cluster of its own.
    """
    from distributed import Client

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        # Not the default client: tests that name no engine mean threads, before and after this.
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
