"""What all tests share: fixed hypothesis examples and one small Dask cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# The same examples in every run; compiling a kernel may take seconds, so no deadline.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fixed")

# A shell starts what it puts into the background deaf to Ctrl-C, and children stay so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """Yield a client of one cluster of two processes with one thread each, on loopback.

    Shared by all tests of a session: leave it as it was found. A test that kills or adds workers
    starts a cluster of its own.
    """
    from distributed import Client, LocalCluster

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
