"""Storage chunks of which several readers in one process want a part each: read and decoded once.

Whoever comes first reads the whole chunk; the others wait for it and take their rows from it. It is kept
until the last of those who were announced has come.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.typing import Range

Read = Callable[[Range], Chunk]


class SharedReads:
    """What readers of one dataset share.

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
        homes = Counter(home for home in map(self._home, reads) if home is not None)
        self._left = {home: count for home, count in homes.items() if count > 1}
        self._read: dict[Range, Future[Chunk]] = {}
        self._lock = threading.Lock()

    def read(self, span: Range, read: Read) -> Chunk:
        """Return the rows of `span`, with ``read(...)`` of them or of the chunk that they are in."""
        home = self._home(span)
        with self._lock:
            if home is None or home not in self._left:
                home = None
            else:
                is_first = home not in self._read
                future = self._read.setdefault(home, Future())
        if home is None:
            return read(span)
        if is_first:
            self._fill(future, home, read)
        try:
            whole = future.result()
        finally:
            self._came(home)
        return whole.slice(span[0] - home[0], span[1] - home[0])

    def _fill(self, future: Future[Chunk], home: Range, read: Read) -> None:
        try:
            future.set_result(read(home))
        except BaseException as error:
            # Who waits has the same error; who comes later tries again.
            with self._lock:
                self._read.pop(home, None)
            future.set_exception(error)

    def _came(self, home: Range) -> None:
        with self._lock:
            left = self._left.get(home, 1) - 1
            if left:
                self._left[home] = left
            else:
                self._left.pop(home, None)
                self._read.pop(home, None)

    def _home(self, span: Range) -> Range | None:
        """Return the storage chunk of which `span` is a part, if it is of one."""
        number = int(np.searchsorted(self._edges, span[0], side="right")) - 1
        home = int(self._edges[number]), int(self._edges[number + 1])
        return home if span[1] <= home[1] and span != home else None
