from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import dask
import pytest
from distributed import Client

from daskcluster.engine import compat, connect
from daskcluster.errors import EngineError, InvalidParameterError, SchedulerUnreachableError


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Yield a port that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        yield listener.getsockname()[1]


def test_a_scheduler_that_is_not_there_fails_within_the_timeout() -> None:
    """The client is collected at once: later it might close itself where Dask holds a lock."""

    def clients() -> set[int]:
        return {id(each) for each in gc.get_objects() if type(each) is Client}

    gc.collect()
    before, began = clients(), time.monotonic()
    gc.disable()
    try:
        with pytest.raises(
            SchedulerUnreachableError,
            match=r"no Dask scheduler answered at tcp://127.0.0.1:1 within 1 s .* check the address",
        ):
            connect.connect("tcp://127.0.0.1:1", timeout=1)
        assert time.monotonic() - began < connect.TIMEOUT
        assert clients() <= before  # those of other tests may go meanwhile
    finally:
        gc.enable()


def test_a_port_that_never_answers_fails_within_the_timeout(silent_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(
        SchedulerUnreachableError, match=r"no Dask scheduler answers there|Timed out"
    ):
        connect.connect(f"tcp://127.0.0.1:{silent_port}", timeout=1)
    assert time.monotonic() - began < connect.TIMEOUT


def test_malformed_addresses_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match=r"'no address' should be an address such as"):
        connect.connect("no address")


def test_a_client_that_comes_too_late_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, waits = threading.Event(), threading.Event()
    found: list[Client] = []

    def slow(*args: Any, **kwargs: Any) -> Client:
        waits.wait(60)
        found.append(Client(*args, **{**kwargs, "timeout": 30}))
        late.set()
        return found[0]

    monkeypatch.setattr(connect, "Client", slow)
    with pytest.raises(SchedulerUnreachableError):
        connect.connect(client.scheduler.address, timeout=0.2)
    waits.set()
    assert late.wait(60)
    for _ in range(600):
        if found[0].status == "closed":
            break
        time.sleep(0.1)
    assert found[0].status == "closed"


@pytest.mark.parametrize(("failures", "answers"), [(2, True), (3, False)])
def test_a_failed_handshake_is_repeated_twice(
    client: Client, monkeypatch: pytest.MonkeyPatch, failures: int, answers: bool
) -> None:
    def crowded(*args: Any, **kwargs: Any) -> Client:
        calls.append(args)
        assert len(calls) > failures
        return Client(*args, **kwargs)

    calls: list[Any] = []
    monkeypatch.setattr(connect, "Client", crowded)
    if answers:
        connect.connect(client.scheduler.address, timeout=30).close()
    else:
        with pytest.raises(SchedulerUnreachableError, match="AssertionError"):
            connect.connect(client.scheduler.address, timeout=30)


@pytest.mark.parametrize(("workers", "threads"), [(0, 1), (1, 0)])
def test_a_cluster_has_workers_with_threads(workers: int, threads: int) -> None:
    with (
        pytest.raises(InvalidParameterError, match="should be >= 1"),
        connect.local_cluster(workers, threads),
    ):
        pass


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}


@pytest.mark.usefixtures("spawned")
def test_a_local_cluster_keeps_its_limit_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Left behind by a cluster that was started in another way.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    before = environment()
    with connect.local_cluster(1, 2, memory_limit=1 << 30) as client:
        (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
        assert worker["memory_limit"] == 1 << 30
        assert worker["nthreads"] == 2
        assert worker["host"] == "127.0.0.1"
        (found,) = client.run(environment).values()
        assert found["MALLOC_ARENA_MAX"] == "1"
        assert found["MALLOC_TRIM_THRESHOLD_"] == str(1 << 27)
        assert found["MALLOC_MMAP_THRESHOLD_"] == str(1 << 25)
        (interval,) = client.run(dask.config.get, "distributed.admin.tick.interval").values()
        assert interval == "500ms"
        (profiled,) = client.run(dask.config.get, "distributed.worker.profile.enabled").values()
        assert not profiled
    assert dask.config.get("distributed.worker.profile.enabled")
    assert environment() == before


class Reports:
    """A client whose workers report what they run."""

    def __init__(self, **other: str | None) -> None:
        here = {"python": "3.11.7.final.0", "dask": "2026.8.0", "distributed": "2026.8.0"}
        here |= {"numpy": "2.4.6", "daskcluster": "0.1.0"}
        self.report = {
            "client": {"packages": here},
            "scheduler": {"packages": here},
            "workers": {"tcp://w:1": {"packages": here | other}, "tcp://w:2": {"packages": here}},
        }

    def get_versions(self, packages: list[str]) -> object:
        return self.report


def test_versions_that_go_together() -> None:
    for other in ({}, {"python": "3.11.9.final.0"}, {"numpy": "2.4.0"}, {"daskcluster": None}):
        connect.check_versions(Reports(**other))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"dask": "2026.7.0"}, "dask 2026.7.0 on tcp://w:1, 2026.8.0 here"),
        ({"daskcluster": "0.2.0"}, "daskcluster 0.2.0 on tcp://w:1, 0.1.0 here"),
        ({"python": "3.12.1.final.0"}, "python 3.12.1.final.0 on tcp://w:1"),
        ({"numpy": "2.3.9"}, "numpy 2.3.9 on tcp://w:1"),
    ],
)
def test_versions_that_do_not(other: dict[str, str | None], text: str) -> None:
    with pytest.raises(EngineError, match="should run the same software") as caught:
        connect.check_versions(Reports(**other))  # type: ignore[arg-type]
    assert text in str(caught.value)


def test_versions_of_a_real_cluster(client: Client) -> None:
    connect.check_versions(client)


def whereabouts() -> tuple[bool, bool, bool]:
    from distributed import secede

    before = compat.has_seceded()
    secede()
    return connect.in_task(), before, compat.has_seceded()


def test_inside_a_task(client: Client) -> None:
    assert client.submit(whereabouts, pure=False).result() == (True, False, True)
