"""Dask still does what we use of it beyond its documentation; a failure says what has changed."""

from __future__ import annotations

import inspect
import os
import threading
import time
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
from distributed import Client, LocalCluster, Lock, secede
from distributed.node import ServerNode

import daskcluster
from daskcluster.engine import compat
from tests.engine.test_dask import eventually

PREFIX = "daskcluster-compat"


def addresses(client: Client) -> list[str]:
    return list(client.scheduler_info(n_workers=-1)["workers"])


def test_the_installed_release_is_one_that_we_know() -> None:
    """Where it is newer, and the tests below pass, say so in `SEEN_IN`."""
    first, last, here = (
        tuple(map(int, release.split(".")[:2]))
        for release in (*compat.SEEN_IN, distributed.__version__)
    )
    assert first <= here <= last


def test_undocumented_parts_are_used_in_one_module_only() -> None:
    words = (
        "import distributed.", "from distributed.protocol", "from distributed.threadpoolexecutor",
        "from distributed.scheduler", "from distributed.client", "from distributed.core",
        ".processing()", ".has_what(", "get_task_status", "nbytes(summary", "http_application",
        "scheduler_rpc", "dask_worker.", "remove-worker", "thread_state",
    )  # fmt: skip
    package = Path(daskcluster.__file__).parent
    found = {
        f"{path.relative_to(package)}: {word}"
        for path in package.rglob("*.py")
        if path != Path(compat.__file__)
        for word in words
        if word in path.read_text()
    }
    assert not found


def test_the_scheduler_says_what_workers_have(client: Client) -> None:
    workers = compat.running_workers(client)
    assert list(workers) == addresses(client)
    for info in workers.values():
        fields = {"status", "nthreads", "memory_limit"} - set(info)
        assert not fields, f"Client.scheduler_info no longer has {fields} of a worker"
        assert info["status"] == "running", "a worker that takes tasks has another status"


def test_a_worker_says_how_many_threads_it_has(client: Client) -> None:
    found = client.run(_threads_here)
    expected = {a: info["nthreads"] for a, info in compat.running_workers(client).items()}
    assert found == expected, "worker.state.nthreads is no longer the number of task threads"
    assert compat.threads_of(None) == 1


def test_the_scheduler_says_which_of_our_tasks_are_with_a_worker(
    client: Client, tmp_path: Path
) -> None:
    flag = str(tmp_path / "go")
    busy = client.submit(_wait_for, flag, pure=False)
    assert eventually(lambda: compat.processing_keys(client, {busy.key}) == {busy.key}), (
        "get_task_status no longer calls a task that a worker has 'processing'"
    )
    waiting = client.submit(_same, busy, pure=False)
    assert compat.processing_keys(client, {busy.key, waiting.key, "unknown"}) == {busy.key}, (
        "get_task_status calls tasks 'processing' that no worker has"
    )
    Path(flag).touch()
    client.gather([waiting])
    assert compat.processing_keys(client, {busy.key, waiting.key}) == set()


def test_the_scheduler_tells_names_hosts_and_resources(client: Client) -> None:
    info = next(iter(compat.running_workers(client).values()))
    assert {"name", "host", "resources"} <= set(info)


def test_workers_say_what_they_store(client: Client) -> None:
    """They name our own keys alone, with the size that an object reports."""
    workers = addresses(client)
    home = workers[0]
    with Client(client.scheduler.address, set_as_default=False) as other:
        ours = other.submit(_Sized, key=f"{PREFIX}-1", workers=[home])
        theirs = other.submit(_Sized, key="another-1", workers=[home])
        other.gather([ours, theirs])
        found = compat.stored_bytes(client, workers, PREFIX)
        assert set(found) == set(workers)
        assert set(found[home]) == {f"{PREFIX}-1"}, "worker.data no longer has the keys of results"
        assert found[home][f"{PREFIX}-1"] >= 10**6, (
            "state.tasks[key].nbytes is not what sizeof says"
        )
        del ours, theirs
    assert eventually(lambda: not any(compat.stored_bytes(client, workers, PREFIX).values())), (
        "workers keep results that nobody has a future of"
    )
    assert compat.stored_bytes(client, [], PREFIX) == {}
    with dask.config.set(
        {"distributed.comm.timeouts.connect": "300ms"}
    ):  # the scheduler is in this process
        assert compat.stored_bytes(client, ["tcp://127.0.0.1:1"], PREFIX) == {
            "tcp://127.0.0.1:1": {}
        }


@pytest.mark.kills
@pytest.mark.parametrize("is_retired", [False, True])
def test_the_end_of_a_worker_is_an_event(tmp_path: Path, is_retired: bool) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        (worker,) = addresses(client)
        future = client.submit(_note_and_wait, str(tmp_path), pure=False)
        assert eventually(lambda: any(tmp_path.iterdir()))
        if is_retired:
            client.retire_workers([worker], close_workers=True)
        else:
            os.kill(int(next(tmp_path.iterdir()).name), 9)
        assert eventually(lambda: worker not in addresses(client), 30)
        ends = [
            event
            for _, event in client.get_events(worker)
            if isinstance(event, dict) and event.get("action") == "remove-worker"
        ]
        assert ends, "the scheduler no longer logs 'remove-worker' under the address of the worker"
        missing = {"processing-tasks", "expected"} - set(ends[0])
        assert not missing, f"the event 'remove-worker' no longer has {missing}"
        found = compat.ended_unexpectedly(client, worker, future.key)
        assert found is not is_retired, "'expected' no longer tells which workers are retired"
        assert not compat.ended_unexpectedly(client, worker, "another task")
        client.cancel([future], force=True)


def test_a_task_that_secedes_no_longer_proceeds(client: Client) -> None:
    before, after = client.submit(_secede, pure=False).result(timeout=30)
    assert (before, after) == (False, True), "thread_state.proceed no longer says who has seceded"
    assert not compat.has_seceded()


def test_a_lock_works_in_any_thread_of_a_client(client: Client) -> None:
    acquired: list[bool] = []

    def acquire() -> None:
        one = compat.lock(client, PREFIX)
        acquired.append(one.acquire(timeout=0.2))
        if acquired[-1]:
            one.release()

    with Lock(PREFIX, scheduler_rpc=client.scheduler, loop=client.loop):
        thread = threading.Thread(target=acquire)
        thread.start()
        thread.join()
    acquire()
    assert acquired == [False, True], "Lock no longer takes scheduler_rpc and loop"


def test_data_for_a_worker_that_has_left_raises_one_of_the_known_errors(client: Client) -> None:
    with pytest.raises(compat.SCATTER_ERRORS):
        client.scatter(b"data", workers=["tcp://127.0.0.1:1"], hash=False, timeout=1)


def test_functions_that_cannot_be_imported_are_pickled_by_value() -> None:
    shift = 3
    assert distributed.protocol.pickle.loads(compat.dumps(lambda x: x + shift))(1) == 4


def test_a_scheduler_has_an_application_that_takes_pages() -> None:
    assert "self.http_application" in inspect.getsource(ServerNode), (
        "a server no longer has its pages in http_application"
    )


def test_what_a_nanny_sets_before_it_starts_a_worker() -> None:
    found = dask.config.get("distributed.nanny.pre-spawn-environ")
    found = {name: str(value) for name, value in found.items()}
    assert found.items() >= compat.NANNY_ENVIRONMENT.items(), (
        "the nanny's defaults of malloc have changed: measure anew what `connect` sets instead"
    )


# -- tasks -----------------------------------------------------------------------------------------


class _Sized:
    def __sizeof__(self) -> int:
        return 10**6


def _same(value: Any) -> Any:
    return value


def _threads_here(dask_worker: Any) -> int:
    return compat.threads_of(dask_worker)


def _wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def _note_and_wait(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(3600)


def _secede() -> tuple[bool, bool]:
    before = compat.has_seceded()
    secede()
    return before, compat.has_seceded()
