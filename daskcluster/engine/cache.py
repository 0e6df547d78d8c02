"""Caches on workers between passes: resident rows and per-row state, one handle per partition.

A `CachedPartition` is the result of a Dask task, so Dask knows its size, keeps it, and frees it when the
client leaves. Its copies are empty: if Dask moves it, or steals the task that needs it, this costs a cache
miss and nothing else. A handle that was spilled is filled again. The version of the state in it says
whether that is the state of the previous call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from distributed import get_worker, wait

from daskcluster.annotations import unannotated
from daskcluster.chunk import Chunk
from daskcluster.engine.compat import lock, stored_bytes
from daskcluster.engine.memory import admit
from daskcluster.engine.operations import CacheSlot
from daskcluster.host import process_token

if TYPE_CHECKING:
    from distributed import Client, Future

PREFIX = "daskcluster-held"
_LOCK = "daskcluster-admission"
_ADMISSION_SECONDS = 10.0
_ATTEMPTS = 3
"""Attempts to create a handle on its worker: Dask may create it elsewhere if the worker is busy."""


class CachedPartition(CacheSlot):
    """Cache on one worker for the rows, or for the state, of one partition.

    Parameters
    ----------
    n_bytes : int
        Size when full; reported to Dask from the start.
    process : int, optional
        Token of the process that created it. A copy in another process has size 0 and stores nothing. A
        copy in the same process is one that Dask spilled and read back: it is empty and can be filled
        again.
    """

    def __init__(self, n_bytes: int = 0, process: int | None = None) -> None:
        super().__init__()
        self._n_bytes = n_bytes if process in (None, process_token()) else 0
        self.keeps = self._n_bytes > 0

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._n_bytes

    def __reduce__(self) -> tuple[type[CachedPartition], tuple[int, int]]:
        return CachedPartition, (self._n_bytes, process_token())

    def keep_rows(self, chunks: Sequence[Chunk]) -> None:
        if self.keeps and self._rows is None:
            # Copy: a view would keep the whole buffer alive.
            self._rows = [chunk.owned() for chunk in chunks]


def build(n_bytes: int, home: str) -> CachedPartition:
    """Create the handle of a partition; runs on a worker.

    On another worker than `home` (because that one died), the handle stores nothing: no room was reserved.
    """
    return CachedPartition(n_bytes if get_worker().address == home else 0)


class _Handles:
    """Futures of the handles of one kind (rows or state), by partition index.

    Parameters
    ----------
    client : Client
    n_rows : sequence of int
        Rows of every partition.
    bytes_per_row : int
        0 for no handles.
    sizes : sequence of int, optional
        Bytes of every partition, if rows differ in size.
    is_strict : bool
        Other workers than the one asked for must not be used.
    """

    def __init__(
        self,
        client: Client,
        n_rows: Sequence[int],
        bytes_per_row: int,
        sizes: Sequence[int] | None = None,
        *,
        is_strict: bool = False,
    ) -> None:
        self.bytes_per_row = bytes_per_row
        self._is_strict = is_strict
        self._sizes = sizes
        self._client = client
        self._n_rows = n_rows
        self._futures: dict[int, Future] = {}
        # Keys that Dask will free soon: their bytes no longer count.
        self.leaving: set[str] = set()

    def __contains__(self, index: int) -> bool:
        return index in self._futures

    def get(self, index: int) -> Future | None:
        return self._futures.get(index)

    def keys(self) -> set[str]:
        """Return the keys of the handles."""
        return {str(future.key) for future in self._futures.values()}

    def drop(self, indices: Iterable[int]) -> None:
        for index in list(indices):
            future = self._futures.pop(index, None)
            if future is not None:
                self.leaving.add(future.key)

    def drop_misplaced(
        self, home: Mapping[int, str], places: Mapping[str, Collection[str]]
    ) -> list[int]:
        """Drop the handles that are not on their home worker; return their partitions."""
        misplaced = [
            index
            for index, future in self._futures.items()
            if (at := places.get(str(future.key))) and home[index] not in at
        ]
        self.drop(misplaced)
        return misplaced

    def size(self, indices: Iterable[int]) -> int:
        """Return the bytes of these partitions, whether cached or not."""
        if self._sizes is not None and self.bytes_per_row:
            return sum(self._sizes[index] for index in indices)
        return sum(self._n_rows[index] for index in indices) * self.bytes_per_row

    def fill(self, worker: str, indices: Sequence[int], room: int) -> list[Future]:
        """Create handles on `worker` for the partitions that fit; return the new ones."""
        sizes = {i: self.size([i]) for i in indices if i not in self._futures}
        admitted = admit(sizes, room)
        if not admitted:
            return []
        futures: list[Future] = unannotated(
            self._client.map,
            build,
            list(admitted.values()),
            home=worker,
            key=PREFIX,
            workers=[worker],
            allow_other_workers=not self._is_strict,
            pure=False,
        )
        self._futures.update(zip(admitted, futures, strict=True))
        return futures


class ResidentCache:
    """The cached rows and state of one placement on the workers.

    Parameters
    ----------
    client : Client
    n_rows : sequence of int
        Rows of every partition.
    sizes : sequence of int
        Bytes of every partition to keep resident; empty for rows that workers have in memory already.
    state_bytes : int
        Bytes of state per row.
    is_strict : bool
        Other workers than those of the arrangement must not be used.
    """

    def __init__(
        self,
        client: Client,
        n_rows: Sequence[int],
        sizes: Sequence[int],
        state_bytes: int,
        *,
        is_strict: bool = False,
    ) -> None:
        self._client = client
        row_bytes = sum(sizes) // max(1, sum(n_rows))
        self._rows = _Handles(client, n_rows, row_bytes, sizes, is_strict=is_strict)
        self._state = _Handles(client, n_rows, state_bytes, is_strict=is_strict)
        self._home: dict[int, str] = {}
        self._is_arranged = False

    def reserve_state(self, state_bytes: int) -> None:
        """Make room for `state_bytes` of state per row; drop smaller handles."""
        if state_bytes > self._state.bytes_per_row:
            self._state.drop(self._home)
            self._state.bytes_per_row = state_bytes
            self._is_arranged = False

    def drop_state(self) -> None:
        """Drop the handles of state: Dask frees their content, and the room becomes available to rows."""
        self._state.drop(self._home)
        self._state.bytes_per_row = 0
        self._is_arranged = False

    def state_room(self, room: Mapping[str, int]) -> int:
        """Return the bytes of state that fit on all workers if this placement drops its rows.

        Parameters
        ----------
        room : mapping of worker address to bytes
            Bytes that all runs together may cache there.
        """
        own = self._rows.keys() | self._state.keys()
        taken = cached_bytes(self._client, room, excluded=own)
        return sum(max(0, room[worker] - taken[worker]) for worker in room)

    def arrange(
        self, assignment: Mapping[str, Sequence[int]], room_of: Callable[[], Mapping[str, int]]
    ) -> None:
        """Create a handle for every partition that fits on its home worker.

        Parameters
        ----------
        assignment : mapping of worker address to partitions
        room_of : callable () -> mapping of worker address to bytes
            Bytes that all runs together may cache there; called while this driver holds the admission lock.
        """
        home = {index: worker for worker, indices in assignment.items() for index in indices}
        moved = [index for index in self._home if home.get(index) != self._home[index]]
        if self._is_arranged and home == self._home:
            return
        for handles in (self._rows, self._state):
            handles.drop(moved)
        self._home, self._is_arranged = home, True
        if not (self._rows.bytes_per_row or self._state.bytes_per_row):
            return
        # One driver at a time checks which room is taken and reserves some of the rest.
        admission = lock(self._client, _LOCK)
        if not admission.acquire(timeout=_ADMISSION_SECONDS):
            # Without the lock, two drivers could reserve the same room: cache nothing for now.
            self._is_arranged = False
            return
        try:
            for _ in range(_ATTEMPTS):
                room, leaving = room_of(), self._rows.leaving | self._state.leaving
                taken = cached_bytes(self._client, room, excluded=leaving)
                made: list[Future] = []
                for worker, indices in assignment.items():
                    made += self._fill(worker, indices, room.get(worker, 0) - taken.get(worker, 0))
                with self._client.as_current():
                    wait(made, timeout=_ADMISSION_SECONDS)
                # Handles created away from home store nothing.
                places = self._client.who_has(made) if made else {}
                both = self._rows, self._state
                if not sum(len(each.drop_misplaced(self._home, places)) for each in both):
                    break
        except TimeoutError:
            pass  # workers are busy: the handles appear when a thread is free
        finally:
            admission.release()

    def _fill(self, worker: str, indices: Sequence[int], room: int) -> list[Future]:
        """Create the handles that fit on one worker: state first, for which rows may be dropped."""
        wanted = self._state.size(i for i in indices if i not in self._state)
        for index in reversed(indices):
            if room >= wanted:
                break
            if index in self._rows:
                room += self._rows.size([index])
                self._rows.drop([index])
        new = self._state.fill(worker, indices, room)
        room -= min(room, wanted)
        return new + self._rows.fill(worker, indices, room)

    def on(
        self, worker: str, indices: Iterable[int]
    ) -> tuple[list[Future | None], list[Future | None]]:
        """Return the handles of rows and of state of partitions whose home is `worker`.

        Other partitions get None: a handle from another worker would arrive empty.
        """
        here = [index if self._home.get(index) == worker else -1 for index in indices]
        return [self._rows.get(i) for i in here], [self._state.get(i) for i in here]

    def close(self) -> None:
        """Let Dask free everything."""
        for handles in (self._rows, self._state):
            handles.drop(self._home)
        self._home = {}


def cached_bytes(
    client: Client, workers: Iterable[str], excluded: Collection[str] = ()
) -> dict[str, int]:
    """Return the bytes reserved by the handles of all runs on the cluster, by worker.

    Parameters
    ----------
    client : Client
    workers : iterable of str
        Addresses.
    excluded : collection of str
        Keys of handles to leave out.
    """
    stored = stored_bytes(client, workers, PREFIX)
    return {
        worker: sum(size for key, size in found.items() if key not in excluded)
        for worker, found in stored.items()
    }
