"""Read-ahead: order, window, laziness, errors, and no thread left behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from daskcluster import open_dataset
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


def test_errors_arrive_in_their_turn() -> None:
    def read(job: int) -> int:
        if job == 2:
            raise OSError("disk on fire")
        return job

    stream = read_ahead(range(9), read, size)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(OSError, match=r"disk on fire"):
        next(stream)
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
    for block in read_ahead(range(50), read, lambda job: 8000, shares_window=False):
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
