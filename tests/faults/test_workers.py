"""Workers die, come and go; results stay the same bits, and what cannot go on says why."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from daskcluster import open_dataset
from daskcluster.chunk import Chunk
from daskcluster.engine.cache import cached_bytes
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.pass_run import PassRun
from daskcluster.errors import EngineError, SchedulerUnreachableError
from tests.engine import reductions as r

PATIENT = {"distributed.deploy.lost-worker-timeout": "1 hour"}
"""By default, a cluster drops a nanny if its worker is dead 15 s after an earlier death."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return 25 partitions of 4,000 rows of integers."""
    import zarr

    rows = np.random.default_rng(3).integers(-50, 50, (100_000, 64)).astype(np.float32)
    path = str(tmp_path_factory.mktemp("faults") / "rows.zarr")
    array = zarr.create_array(path, shape=rows.shape, chunks=(4_000, 64), dtype="f4")
    array[:] = rows
    return open_dataset(path)


@pytest.fixture(scope="module")
def truth(dataset: Any) -> int:
    return int(dataset.to_numpy().sum())


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Yield a cluster whose workers may be killed: its nannies start them again."""
    settings = {"distributed.scheduler.allowed-failures": 1, **PATIENT}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=30)
        yield client


def pids(client: Client) -> dict[str, int]:
    return client.run(os.getpid)


def soon(condition: Callable[[], bool], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill_when_busy(folder: Path, pid: int) -> threading.Thread:
    """Kill a worker as soon as it has started a slow pass."""

    def kill() -> None:
        if soon(lambda: (folder / str(pid)).exists()):
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_worker_killed_in_the_middle_of_a_pass(
    client: Client, dataset: Any, truth: int, tmp_path: Path
) -> None:
    with DaskEngine(client, timeout=60).place(dataset) as placed:
        expected = placed.reduce(r.SUM, {"factor": 1})
        assert expected[1] == truth
        victim = sorted(pids(client).values())[0]
        killer = kill_when_busy(tmp_path, victim)
        got = placed.reduce(r.SLOW, {"factor": 1, "seconds": 0.05, "folder": str(tmp_path)})
        killer.join()
        assert np.array_equal(got, expected)
        assert victim not in pids(client).values()
        assert np.array_equal(placed.reduce(r.SUM, {"factor": 1}), expected)


def test_a_worker_killed_while_its_broadcast_and_rows_are_there(
    client: Client, dataset: Any, truth: int, tmp_path: Path
) -> None:
    rows = open_dataset(dataset.to_numpy())
    with DaskEngine(client, timeout=60).place(rows) as placed:
        killer = kill_when_busy(tmp_path, sorted(pids(client).values())[1])
        params = {"factor": 1, "seconds": 0.05, "folder": str(tmp_path), "b": np.ones(400_000)}
        assert placed.reduce(r.SLOW, params)[1] == truth
        killer.join()
        assert placed.reduce(r.SUM, {"factor": 1})[1] == truth


def test_lost_state_is_rebuilt(client: Client, dataset: Any, truth: int, tmp_path: Path) -> None:
    def rebuilt(calls: int) -> int:
        return len(list(tmp_path.glob(f"{calls}-*")))

    with DaskEngine(client, timeout=60).place(dataset) as placed:
        for calls in range(4):
            if calls == 2:
                os.kill(sorted(pids(client).values())[0], signal.SIGKILL)
            params = {"calls": calls, "folder": str(tmp_path)}
            assert placed.map_state(r.NOTED, params)[1] == truth * (calls + 1)
        assert rebuilt(0) == 25
        # Only what the dead worker held.
        assert 0 < rebuilt(2) < 25


@pytest.mark.slow
def test_a_worker_that_freezes_is_given_up(dataset: Any, truth: int, tmp_path: Path) -> None:
    """A worker that neither works nor ends: Dask drops it when its heartbeat is missing for a while."""
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "15s", **PATIENT}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        DaskEngine(client, timeout=60).place(dataset) as placed,
    ):  # fmt: skip
        victim = sorted(pids(client).values())[0]

        def freeze() -> None:
            assert soon(lambda: (tmp_path / str(victim)).exists())
            os.kill(victim, signal.SIGSTOP)

        freezer = threading.Thread(target=freeze)
        freezer.start()
        try:
            got = placed.reduce(r.SLOW, {"factor": 1, "seconds": 0.1, "folder": str(tmp_path)})
            freezer.join()
            assert got[1] == truth
            assert placed.reduce(r.SUM, {"factor": 1})[1] == truth
        finally:
            with suppress(ProcessLookupError):  # its nanny has killed it, and started another one
                os.kill(victim, signal.SIGCONT)


def spill(dask_worker: Any) -> int:
    """Spill all data of a worker to disk, as Dask does when memory is full."""
    before = len(dask_worker.data.fast)
    while dask_worker.data.fast:
        dask_worker.data.evict()
    return before


def test_spilled_rows_are_read_again(
    client: Client, dataset: Any, truth: int, tmp_path: Path
) -> None:
    """Rows and state are dropped instead of being spilled and read again."""
    with DaskEngine(client, timeout=60).place(dataset) as placed:
        read = []
        for calls in range(3):
            if calls == 2:
                assert all(client.run(spill).values())
            before = placed.traffic.bytes_read
            params = {"calls": calls, "folder": str(tmp_path)}
            assert placed.map_state(r.NOTED, params)[1] == truth * (calls + 1)
            read.append(placed.traffic.bytes_read - before)
        assert len(list(tmp_path.glob("2-*"))) == 25
        assert read == [read[0], 0, read[0]]


def test_lost_state_is_rebuilt_where_passes_leave_rows_unread(
    client: Client, dataset: Any, tmp_path: Path
) -> None:
    rows = dataset.to_numpy()
    everything, few = [(0, 100_000)], [(5_000, 9_000), (99_000, 99_001)]
    calls: list[list[tuple[int, int]]] = []
    with DaskEngine(client, timeout=60).place(dataset) as placed:
        placed._cache._rows.bytes_per_row = 0
        read = []
        for spans in (everything, few, few, few):
            calls.append(spans)
            if len(calls) == 3:
                os.kill(sorted(pids(client).values())[0], signal.SIGKILL)
            before = placed.traffic.bytes_read
            got = placed.map_state(r.CACHED, {"wanted": calls, "folder": str(tmp_path)})
            read.append(placed.traffic.bytes_read - before)
            truth = r.row_values(Chunk(rows), len(calls) - 1, {"wanted": calls}).sum()
            assert got[:2].tolist() == [100_000, int(truth)]
    assert read[0] == rows.nbytes
    # Rows 4,000 to 11,999 and the last 4,000; then what the dead worker held as well.
    assert read[1] == 12_000 * 256
    assert read[1] < read[2] < read[0]
    assert len(list(tmp_path.iterdir())) > 25


def test_workers_join_and_leave(dataset: Any, truth: int) -> None:
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        DaskEngine(client, timeout=60).place(dataset) as placed,
    ):
        for calls, workers in enumerate((1, 2, 4, 1)):
            cluster.scale(workers)
            assert soon(
                lambda n=workers: len(client.scheduler_info(n_workers=-1)["workers"]) == n  # type: ignore[misc]
            )
            assert placed.reduce(r.SUM, {"factor": 1})[1] == truth
            assert placed.map_state(r.STATE, {"calls": calls})[1] == truth * (calls + 1)
            assignment = placed._rows.assignment.by_worker()
            assert len(assignment) == workers
            # How many each one has follows the speed that was measured; that nobody is left out does not.
            assert sorted(chain.from_iterable(assignment.values())) == list(range(25))
            assert min(map(len, assignment.values())) >= 1
            held = cached_bytes(client, assignment)
            assert all(held.values())


def test_an_adaptive_cluster_starts_from_nothing(dataset: Any, truth: int) -> None:
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        cluster.adapt(minimum=0, maximum=1, interval="100ms")
        engine = DaskEngine(client, timeout=60)
        assert engine.n_workers == 1
        first = set(client.scheduler_info(n_workers=-1)["workers"])
        time.sleep(1)  # ten decisions, before the fit has a task
        with engine.place(dataset) as placed:
            assert placed.reduce(r.SUM, {"factor": 1})[1] == truth
            assert set(client.scheduler_info(n_workers=-1)["workers"]) == first
        assert soon(lambda: not client.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.kills
@pytest.mark.parametrize("start", [0, 3])
def test_an_adaptive_cluster_has_the_workers_that_a_fit_can_use(
    start: int, dataset: Any, truth: int
) -> None:
    """Each pass is a second of work, for which Dask alone would keep one worker."""
    with (
        LocalCluster(
            n_workers=start, threads_per_worker=1, host="127.0.0.1",
            dashboard_address="127.0.0.1:0", silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        cluster.adapt(minimum=0, maximum=3, interval="100ms")

        def workers() -> int:
            return len(client.scheduler_info(n_workers=-1)["workers"])

        with DaskEngine(client, timeout=60).place(dataset) as placed:
            params = {"factor": 1, "folder": tempfile.gettempdir(), "seconds": 0.04}
            assert placed.reduce(r.SLOW, params)[1] == truth
            assert soon(lambda: workers() == 3)
            time.sleep(1)  # ten decisions without a task
            assert workers() == 3
            assert placed.reduce(r.SLOW, params)[1] == truth
        assert soon(lambda: workers() == 0)


@pytest.mark.kills
def test_an_operator_scales_a_cluster_by_what_a_fit_can_use(
    dataset: Any, truth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator of Kubernetes asks the scheduler for a target, and retires workers by name."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        DaskEngine(client, timeout=60).place(dataset) as placed,
    ):  # fmt: skip
        params = {"factor": 1, "folder": str(tmp_path), "seconds": 0.3}
        monkeypatch.setattr("daskcluster.engine.assignment._UNMEASURED_PARTITIONS", 2)
        seen: list[bool] = []

        def operator() -> None:
            target = client.scheduler.adaptive_target
            seen.append(soon(lambda: client.sync(target) >= 3, 30))
            cluster.scale(2)
            seen.append(soon(lambda: len(list(tmp_path.iterdir())) == 2, 30))  # both work
            names = client.sync(client.scheduler.workers_to_close, n=1, attribute="name")
            client.sync(client.scheduler.retire_workers, names=names)

        thread = threading.Thread(target=operator)
        thread.start()
        assert placed.reduce(r.SLOW, params)[1] == truth
        thread.join()
        assert seen == [True, True]
        assert placed.reduce(r.SUM, {"factor": 1})[1] == truth


def test_rows_that_end_their_worker_are_named(client: Client, dataset: Any, truth: int) -> None:
    with DaskEngine(client, timeout=60).place(dataset) as placed:
        with pytest.raises(EngineError, match=r"rows 48000 to 51999 kill every worker that reads"):
            placed.reduce(r.DEADLY, {"factor": 1, "row": 50_000})
        assert placed.reduce(r.SUM, {"factor": 1})[1] == truth


@pytest.mark.kills
@pytest.mark.parametrize("ballast", [1, 400_000], ids=["inline", "broadcast"])
def test_rows_that_end_the_only_worker_are_named(
    dataset: Any, truth: int, ballast: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time, the task is lost with its data, and must be sent again under another key."""
    monkeypatch.setattr("daskcluster.engine.pass_run._MOST_DEATHS", 2)  # enough, and sooner
    with (
        dask.config.set(PATIENT),
        LocalCluster(
            n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        DaskEngine(client, timeout=60).place(dataset) as placed,
    ):  # fmt: skip
        with pytest.raises(EngineError, match=r"rows 48000 to 51999 kill every worker that reads"):
            placed.reduce(r.DEADLY, {"factor": 1, "row": 50_000, "b": np.ones(ballast)})
        assert placed.reduce(r.SUM, {"factor": 1})[1] == truth


@pytest.mark.kills
def test_an_outcome_that_is_lost_with_the_only_worker_before_it_is_fetched(
    dataset: Any, truth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask alone would run the task again only on the lost worker."""
    killed: list[int] = []
    fetch = PassRun.fetch

    def kill_first(run: PassRun, future: Any) -> Any:
        if not killed:
            killed.extend(pids(client).values())
            os.kill(killed[0], signal.SIGKILL)
            assert soon(lambda: not client.scheduler_info(n_workers=-1)["workers"])
        return fetch(run, future)

    monkeypatch.setattr(PassRun, "fetch", kill_first)
    with (
        dask.config.set(PATIENT),
        LocalCluster(
            n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        DaskEngine(client, timeout=60).place(dataset) as placed,
    ):  # fmt: skip
        assert placed.reduce(r.SUM, {"factor": 1})[1] == truth
    assert len(killed) == 1


@pytest.mark.kills
def test_a_worker_that_is_retired_is_blamed_on_no_rows(
    dataset: Any, truth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only worker is lost in the middle of a task, and for a while there is none."""
    monkeypatch.setattr("daskcluster.engine.pass_run._MOST_DEATHS", 1)
    suspected: list[Any] = []
    monkeypatch.setattr(PassRun, "_quarantine", lambda self, *blamed: suspected.append(blamed))

    def retire() -> None:
        assert soon(lambda: any(tmp_path.iterdir()))
        client.retire_workers(list(pids(client)), close_workers=True)
        cluster.scale(0)
        assert soon(lambda: not client.scheduler_info(n_workers=-1)["workers"])
        cluster.scale(1)

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        DaskEngine(client, timeout=60).place(dataset) as placed,
    ):  # fmt: skip
        # A worker that alone holds something would not retire.
        placed._cache._rows.bytes_per_row = 0
        retirer = threading.Thread(target=retire)
        retirer.start()
        got = placed.reduce(r.SLOW, {"factor": 1, "seconds": 0.2, "folder": str(tmp_path)})
        retirer.join()
        assert got[1] == truth
        assert len(list(tmp_path.iterdir())) == 2
        assert not suspected


@pytest.mark.kills
def test_without_any_worker_a_pass_ends_within_the_timeout(dataset: Any, tmp_path: Path) -> None:
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        DaskEngine(client, timeout=2).place(dataset) as placed,
    ):
        pid = next(iter(pids(client).values()))

        def leave() -> None:
            soon(lambda: (tmp_path / str(pid)).exists())
            cluster.scale(0)

        leaver = threading.Thread(target=leave)
        leaver.start()
        began = time.monotonic()
        with pytest.raises(EngineError, match="no Dask worker appeared within 2 s; start workers"):
            placed.reduce(r.SLOW, {"factor": 1, "seconds": 0.2, "folder": str(tmp_path)})
        leaver.join()
        assert time.monotonic() - began < 30
        with pytest.raises(EngineError, match="no Dask worker appeared within 2 s"):
            placed.reduce(r.SUM, {"factor": 1})


@pytest.mark.slow
def test_without_its_scheduler_a_pass_ends_within_the_timeout(dataset: Any, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    dask_command = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": Path.cwd()}
    scheduler = subprocess.Popen(
        [*dask_command, "scheduler", "--host", address, "--no-dashboard"], **quiet
    )
    worker = subprocess.Popen(
        [*dask_command, "worker", address, "--no-nanny", "--nthreads=1", "--death-timeout=5"],
        **quiet,
    )
    try:
        engine = DaskEngine(Client(address, set_as_default=False, timeout=20), timeout=5)
        engine.client.wait_for_workers(1, timeout=20)

        killed_at = []

        def kill() -> None:
            soon(lambda: any(tmp_path.iterdir()))
            scheduler.kill()
            killed_at.append(time.monotonic())

        killer = threading.Thread(target=kill)
        with engine.place(dataset) as placed:
            killer.start()
            with pytest.raises(SchedulerUnreachableError, match="no longer answers"):
                placed.reduce(r.SLOW, {"factor": 1, "seconds": 0.2, "folder": str(tmp_path)})
            assert time.monotonic() - killed_at[0] < 10
            killer.join()
        engine.client.close()
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()
