"""Read-ahead: order, window, laziness, errors, and no thread left behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from daskcluster.data.open import open_dataset
from daskcluster.data.readahead import WINDOW_BYTES, read_ahead


def readers() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("daskcluster-read")
    ]


@pytest.fixture(autouse=True)
def _nothing_before() -> None:
    """Let go of streams that the errors of tests before hold in cycles, and with them of their threads."""
    gc.collect()


def size(job: int) -> int:
    return 10


@pytest.mark.parametrize("n_threads", [1, 4])
def test_results_come_in_order(n_threads: int) -> None:
    def read(job: int) -> int:
        time.sleep(0.001 * (job % 3))
        return job

    assert list(read_ahead(range(30), read, size, n_threads=n_threads)) == list(range(30))
    assert readers() == []


@pytest.mark.parametrize(("window", "ahead"), [(40, 4), (1, 2)])
def test_jobs_are_drawn_lazily_within_the_window(window: int, ahead: int) -> None:
    drawn: list[int] = []
    where: list[str] = []

    def jobs() -> Iterator[int]:
        for job in range(100):
            drawn.append(job)
            where.append(threading.current_thread().name)
            yield job

    stream = read_ahead(jobs(), lambda job: job, size, window_bytes=window)
    assert next(stream) == 0
    assert len(drawn) == ahead
    assert next(stream) == 1
    assert len(drawn) == ahead + 1
    stream.close()
    assert set(where) == {threading.current_thread().name}


def test_reading_runs_ahead_of_the_consumer() -> None:
    second = threading.Event()

    def read(job: int) -> int:
        if job == 1:
            second.set()
        return job

    stream = read_ahead(range(3), read, size)
    next(stream)
    assert second.wait(5), "the second block was not read while the first was in use"
    stream.close()


def test_errors_arrive_in_their_turn() -> None:
    def read(job: int) -> int:
        if job == 2:
            raise OSError("disk on fire")
        return job

    stream = read_ahead(range(9), read, size, window_bytes=1000)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(OSError, match=r"disk on fire"):
        next(stream)
    assert readers() == []


def test_error_of_the_ranges_reaches_the_caller() -> None:
    def jobs() -> Iterator[int]:
        yield 0
        raise RuntimeError("queue closed")

    with pytest.raises(RuntimeError, match=r"queue closed"):
        list(read_ahead(jobs(), lambda job: job, size))
    assert readers() == []


@pytest.mark.parametrize("how", ["close", "break", "forget", "raise"])
def test_no_thread_outlives_a_consumer_that_stops_early(how: str, tmp_path: Any) -> None:
    import zarr

    zarr.create_array(str(tmp_path / "x.zarr"), data=np.ones((5000, 4)), chunks=(100, 4))
    dataset = open_dataset(str(tmp_path / "x.zarr"))
    stream = dataset.chunks([(start, start + 100) for start in range(0, 5000, 100)])
    if how == "close":
        next(stream)
        stream.close()  # type: ignore[attr-defined]
    elif how == "break":
        for _ in stream:
            break
        del stream
    elif how == "forget":
        next(stream)
        del stream
    else:
        with pytest.raises(ZeroDivisionError):
            sum(1 // 0 for _ in stream)
        del stream
    assert readers() == []


def test_blocks_are_not_kept_alive() -> None:
    import weakref

    alive: list[weakref.ref[Any]] = []

    def read(job: int) -> np.ndarray:
        block = np.zeros(1000)
        alive.append(weakref.ref(block))
        return block

    most = 0
    for block in read_ahead(range(50), read, lambda job: 8000, window_bytes=16_000):
        del block
        most = max(most, sum(ref() is not None for ref in alive))
    assert most <= 4


def noted(drawn: list[int]) -> Iterator[int]:
    for job in range(1000):
        drawn.append(job)
        yield job


def in_flight(stream: Iterator[int], drawn: list[int]) -> int:
    """Take some jobs; return how many more have been drawn."""
    last = [next(stream) for _ in range(20)][-1]
    return len(drawn) - 1 - last


@pytest.mark.parametrize(("n_threads", "shared"), [(2, 3), (6, 5)])
def test_consumers_share_the_window_of_the_process(n_threads: int, shared: int) -> None:
    """Six readers hide latency: they all get a block, the one that was taken among them."""

    def blocks(drawn: list[int]) -> Any:
        return read_ahead(
            noted(drawn), lambda job: job, lambda _: WINDOW_BYTES // 8, n_threads=n_threads
        )

    alone: list[int] = []
    both: list[int] = []
    with closing(blocks(alone)) as first:
        assert in_flight(first, alone) == 7
        with closing(blocks(both)) as second:
            assert in_flight(second, both) == in_flight(first, alone) == shared
        assert in_flight(first, alone) == 7


def test_the_window_opens_block_by_block() -> None:
    drawn: list[int] = []
    with closing(read_ahead(noted(drawn), lambda job: job, lambda _: 1)) as stream:  # type: ignore[type-var]
        assert [(next(stream), len(drawn)) for _ in range(4)] == [(0, 2), (1, 4), (2, 6), (3, 8)]


@pytest.mark.parametrize(("n_threads", "at_once"), [(2, 3), (4, 8)])
def test_readers_without_latency_take_turns(n_threads: int, at_once: int) -> None:
    """Two consumers have three readers at work, as each holds a block in two forms; of buckets, all."""
    started, go = threading.Semaphore(0), threading.Event()
    most, at_work, lock = 0, 0, threading.Lock()

    def read(job: int) -> int:
        nonlocal most, at_work
        with lock:
            at_work += 1
            most = max(most, at_work)
        started.release()
        assert go.wait(30)
        with lock:
            at_work -= 1
        return job

    def consume() -> None:
        assert list(read_ahead(range(40), read, size, n_threads=n_threads)) == list(range(40))

    consumers = [threading.Thread(target=consume) for _ in range(2)]
    for consumer in consumers:
        consumer.start()
    for _ in range(at_once):
        assert started.acquire(timeout=30)
    go.set()
    for consumer in consumers:
        consumer.join()
    assert most == at_once
