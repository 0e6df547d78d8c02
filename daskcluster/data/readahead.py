"""Read-ahead: the next blocks are fetched by plain threads while the caller computes on this one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

WINDOW_BYTES = 32 << 20
"""Decoded bytes that may be read ahead of a consumer."""

LEAST_AHEAD = 2
"""Blocks in flight however large they are, so that reading and computing overlap."""


def read_ahead(
    jobs: Iterable[T],
    read: Callable[[T], R],
    size: Callable[[T], int],
    *,
    n_threads: int = 1,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[R]:
    """Yield ``read(job)`` for every job, in order, with a window of jobs running ahead.

    Parameters
    ----------
    jobs : iterable
        Drawn lazily, in the consumer's thread, and only when the window has room.
    read : callable
        Runs in a reading thread; what it raises is raised here, in the job's turn.
    size : callable
        Bytes that the result of a job will take.
    n_threads : int
        Jobs that are read at the same time; more than one hides latency.
    window_bytes : int
        Bytes in flight, at least two jobs.

    Notes
    -----
    Leaving the iterator early (``close``, ``break``, garbage collection) drops the jobs that have not
    started and waits for those that have: no thread outlives it.

    Examples
    --------
    >>> list(read_ahead(range(4), lambda i: i * i, lambda i: 8))
    [0, 1, 4, 9]
    """
    jobs = iter(jobs)
    pending: deque[tuple[Future[R], int]] = deque()
    in_flight = 0
    exhausted = False
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster-read")
    try:
        while True:
            while not exhausted and (in_flight < window_bytes or len(pending) < LEAST_AHEAD):
                try:
                    job = next(jobs)
                except StopIteration:
                    exhausted = True
                    break
                pending.append((pool.submit(read, job), size(job)))
                in_flight += pending[-1][1]
            if not pending:
                return
            future, taken = pending.popleft()
            result = future.result()
            in_flight -= taken
            del future  # the block belongs to the consumer alone
            yield result
            del result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
