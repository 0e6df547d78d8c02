"""Read-ahead: threads fetch the next blocks while the caller computes on the current one.

A storage chunk of which several readers want a part is read and decoded once.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Self, TypeVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.typing import Range

T = TypeVar("T")
R = TypeVar("R")

WINDOW_BYTES = 32 << 20
"""Decoded bytes that may be read ahead in a process: its consumers share them."""

LEAST_AHEAD = 2
"""Blocks in flight however large they are, so that reading and computing overlap."""


class Share:
    """A consumer's part of the window of this process, from ``with`` on.

    A reader holds a block as it is stored and as it is decoded. So there is one reader at a time for each
    consumer, and one more; but readers that hide latency do not wait for each other.

    Parameters
    ----------
    n_readers : int
        Number of readers. More than `LEAST_AHEAD` have latency to hide: they all get a block, as long as
        the window would be wide enough for these alone.
    """

    _changed = threading.Condition()
    _consumers = 0
    _reading = 0

    def __init__(self, n_readers: int) -> None:
        self._n_readers = n_readers
        self._most = max(LEAST_AHEAD, n_readers)

    def __enter__(self) -> Self:
        with Share._changed:
            Share._consumers += 1
            Share._changed.notify()
        return self

    def __exit__(self, *_: object) -> None:
        with Share._changed:
            Share._consumers -= 1

    def has_room(self, n_blocks: int, n_bytes: int) -> bool:
        """Return True if one more read may start in addition to those in flight."""
        if n_blocks >= self._most:
            return False
        hides_latency = n_blocks < self._n_readers and n_bytes < WINDOW_BYTES
        return hides_latency or n_bytes < WINDOW_BYTES // Share._consumers

    def took(self) -> None:
        """Allow one more block in flight, since one was taken."""
        # Not all at once: consumers that begin together would each find itself alone.
        self._most += 1

    def read(self, read: Callable[[T], R], job: T) -> R:
        """Return ``read(job)``, in its turn."""
        if self._n_readers > LEAST_AHEAD:
            return read(job)
        with Share._changed:
            Share._changed.wait_for(lambda: Share._reading <= Share._consumers)
            Share._reading += 1
        try:
            return read(job)
        finally:
            with Share._changed:
                Share._reading -= 1
                Share._changed.notify()


def read_ahead(
    jobs: Iterable[T],
    read: Callable[[T], R],
    size: Callable[[T], int],
    *,
    n_threads: int = 1,
    shares_window: bool = True,
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
        Jobs that are read at the same time; more than one hides latency. With 0 none is read ahead.
    shares_window : bool
        Jobs in flight take a share of the window of this process, and are two at least. False: two.

    Notes
    -----
    Leaving the iterator early (``close``, ``break``, garbage collection) drops the jobs that have not
    started and waits for those that have: no thread outlives it.

    Examples
    --------
    >>> list(read_ahead(range(4), lambda i: i * i, lambda i: 8))
    [0, 1, 4, 9]
    """
    if not n_threads:
        yield from map(read, jobs)
        return
    jobs = iter(jobs)
    pending: deque[tuple[Future[R], int]] = deque()
    in_flight = 0
    exhausted = False
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="daskcluster-read")
    with Share(n_threads) if shares_window else nullcontext() as window:
        try:
            while True:
                while not exhausted and (
                    len(pending) < LEAST_AHEAD
                    or (window is not None and window.has_room(len(pending), in_flight))
                ):
                    try:
                        job = next(jobs)
                    except StopIteration:
                        exhausted = True
                        break
                    work = read if window is None else partial(window.read, read)
                    pending.append((pool.submit(work, job), size(job)))
                    in_flight += pending[-1][1]
                if not pending:
                    return
                future, taken = pending.popleft()
                result = future.result()
                in_flight -= taken
                if window is not None:
                    window.took()
                del future  # the block belongs to the consumer alone
                yield result
                del result
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


Read = Callable[[Range], Chunk]


class SharedReads:
    """Chunks that readers of one dataset share.

    Parameters
    ----------
    edges : ndarray of int64, shape (n_chunks + 1,)
        Row indices at which storage chunks begin, and n.
    reads : sequence of (start, stop)
        Everything that will be read, once each. Chunks are shared by reads that lie within one.

    Examples
    --------
    >>> import numpy as np
    >>> asked = []
    >>> def read(span):
    ...     asked.append(span)
    ...     return Chunk(np.arange(*span)[:, None], span[0])
    >>> shared = SharedReads(np.array([0, 10, 20]), [(0, 10), (10, 14), (14, 20)])
    >>> [shared.read(span, read).rows.ravel().tolist() for span in [(10, 14), (14, 20)]]
    [[10, 11, 12, 13], [14, 15, 16, 17, 18, 19]]
    >>> asked
    [(10, 20)]
    """

    def __init__(self, edges: np.ndarray, reads: Sequence[Range]) -> None:
        self._edges = edges
        chunk_counts = Counter(
            chunk_key for chunk_key in map(self._chunk_key, reads) if chunk_key is not None
        )
        self._left = {chunk_key: count for chunk_key, count in chunk_counts.items() if count > 1}
        self._read: dict[Range, Future[Chunk]] = {}
        self._lock = threading.Lock()

    def read(self, span: Range, read: Read) -> Chunk:
        """Return the rows of `span`, with ``read(...)`` of them or of the chunk that they are in."""
        chunk_key = self._chunk_key(span)
        with self._lock:
            if chunk_key is None or chunk_key not in self._left:
                chunk_key = None
            else:
                is_first = chunk_key not in self._read
                future = self._read.setdefault(chunk_key, Future())
        if chunk_key is None:
            return read(span)
        if is_first:
            self._fill(future, chunk_key, read)
        try:
            whole = future.result()
        finally:
            self._came(chunk_key)
        return whole.slice(span[0] - chunk_key[0], span[1] - chunk_key[0])

    def _fill(self, future: Future[Chunk], chunk_key: Range, read: Read) -> None:
        try:
            future.set_result(read(chunk_key))
        except BaseException as error:
            # Who waits has the same error; who comes later tries again.
            with self._lock:
                self._read.pop(chunk_key, None)
            future.set_exception(error)

    def _came(self, chunk_key: Range) -> None:
        with self._lock:
            left = self._left.get(chunk_key, 1) - 1
            if left:
                self._left[chunk_key] = left
            else:
                self._left.pop(chunk_key, None)
                self._read.pop(chunk_key, None)

    def _chunk_key(self, span: Range) -> Range | None:
        """Return the storage chunk of which `span` is a part, if it is of one."""
        number = int(np.searchsorted(self._edges, span[0], side="right")) - 1
        chunk_key = int(self._edges[number]), int(self._edges[number + 1])
        return chunk_key if span[1] <= chunk_key[1] and span != chunk_key else None
