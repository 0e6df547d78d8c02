"""Which thread of which worker a partition is at home with, and when homes move.

A lane is one thread of one worker. Homes are contiguous at first; they move only when workers come
or go, or when the measured rates of lanes differ by a fifth in two passes running, and then as few
partitions as possible move: a partition that moves loses what is held for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

TAIL_SHARE = 10
"""A lane is sent its list less a tenth; the rest is handed out as lanes finish."""
LEAST_TAIL_SECONDS = 0.02
"""Tails that take less are not worth a round trip to the scheduler."""
TAIL_TASK_SECONDS, TAIL_BYTE_SECONDS = 0.0025, 4e-9
"""What a task, and each byte that comes along or back with it, take of the driver: of client and
scheduler together (`daskcluster calibrate`), which hand out the tails of all lanes one after the other."""
MOST_TAIL_TASKS = 4
"""About as many as a lane's tail is handed out in, at most."""
LEAST_MEASURED_SECONDS = 0.1
_UNEVEN = 1.2
_PATIENCE = 2


class Lane(NamedTuple):
    """One thread of one worker (by address)."""

    worker: str
    slot: int


class Homes:
    """The home lists of a placement.

    Parameters
    ----------
    n_rows : sequence of int
        Rows of every partition.
    """

    def __init__(self, n_rows: Sequence[int]) -> None:
        self._n_rows = n_rows
        self._lists: dict[Lane, list[int]] = {}
        self._rates: dict[Lane, float] = {}
        self._trusted: dict[Lane, float] = {}
        self._uneven_passes = 0

    @property
    def lists(self) -> Mapping[Lane, Sequence[int]]:
        return self._lists

    def by_worker(self) -> dict[str, list[int]]:
        """Return the partitions at home on every worker, lane by lane."""
        homes: dict[str, list[int]] = {}
        for lane, indices in self._lists.items():
            homes.setdefault(lane.worker, []).extend(indices)
        return homes

    def seconds(self, lane: Lane, indices: Sequence[int]) -> float | None:
        """Estimate how long a lane takes for partitions; None before it was measured."""
        rate = self._rates.get(lane)
        return None if not rate else self._count(indices) / rate

    def settle(self, threads: Mapping[str, int]) -> None:
        """Give every partition a home on the workers that are there now.

        Parameters
        ----------
        threads : mapping of worker address to number of threads
        """
        lanes = [
            Lane(worker, slot) for worker in sorted(threads) for slot in range(threads[worker])
        ]
        if set(lanes) == set(self._lists):
            return
        orphans = [i for lane, own in self._lists.items() if lane not in lanes for i in own]
        if not self._lists:
            orphans = list(range(len(self._n_rows)))
        self._lists = {lane: self._lists.get(lane, []) for lane in lanes}
        for rates in (self._rates, self._trusted):
            for lane in set(rates) - set(lanes):
                del rates[lane]
        self._uneven_passes = 0
        self._level(sorted(orphans))

    def learn(self, measured: Mapping[Lane, tuple[int, float]]) -> None:
        """Take note of how fast lanes were in a pass; move homes if they are too uneven.

        Parameters
        ----------
        measured : mapping of lane to (rows, seconds)
        """
        for lane, (rows, seconds) in measured.items():
            if lane in self._lists and rows and seconds > 0:
                self._rates[lane] = rows / seconds
        slowest = max((seconds for _, seconds in measured.values()), default=0.0)
        uneven = False
        # The speed of very short tasks is noise.
        if slowest > LEAST_MEASURED_SECONDS:
            self._trusted = dict(self._rates)
            uneven = max(self._trusted.values()) > _UNEVEN * min(self._trusted.values())
        self._uneven_passes = self._uneven_passes + 1 if uneven else 0
        if self._uneven_passes >= _PATIENCE:
            self._uneven_passes = 0
            self._level([])

    def _count(self, indices: Sequence[int]) -> int:
        return sum(self._n_rows[index] for index in indices)

    def _targets(self) -> dict[Lane, float]:
        """Return the rows each lane should have: in proportion to its rate."""
        known = list(self._trusted.values())
        mean = sum(known) / len(known) if known else 1.0
        rates = {lane: self._trusted.get(lane, mean) for lane in self._lists}
        share = sum(self._n_rows) / sum(rates.values())
        return {lane: rate * share for lane, rate in rates.items()}

    def _level(self, pool: list[int]) -> None:
        """Move what exceeds a lane's target, and `pool`, to the lanes below theirs."""
        targets = self._targets()
        for lane, own in self._lists.items():
            excess = self._count(own) - targets[lane]
            while own and excess >= self._n_rows[own[-1]] / 2 > 0:
                excess -= self._n_rows[own[-1]]
                pool.append(own.pop())
        pool.sort()
        waiting = deque(pool)
        missing = {lane: targets[lane] - self._count(own) for lane, own in self._lists.items()}
        for lane, own in self._lists.items():
            while waiting and missing[lane] >= self._n_rows[waiting[0]] / 2:
                missing[lane] -= self._n_rows[waiting[0]]
                own.append(waiting.popleft())
        for index in waiting:
            lane = max(missing, key=lambda lane: missing[lane])
            missing[lane] -= self._n_rows[index]
            self._lists[lane].append(index)
        for own in self._lists.values():
            own.sort()


class Tails:
    """The tasks of a pass: a head for every lane, and tails that are handed out as lanes get on.

    Parameters
    ----------
    heads : mapping of lane to partitions
    left : mapping of lane to partitions
    stay : bool
        Tails go to lanes of their own worker alone: elsewhere their state would have to be made anew,
        there in this pass and at home in the next.
    """

    def __init__(
        self,
        heads: Mapping[Lane, Sequence[int]],
        left: Mapping[Lane, Sequence[int]],
        *,
        stay: bool = False,
    ) -> None:
        self.heads = {lane: tuple(head) for lane, head in heads.items()}
        self._left = {lane: deque(tail) for lane, tail in left.items()}
        self._stay = stay

    @classmethod
    def cut(
        cls,
        homes: Homes,
        *,
        stay: bool = False,
        only: Collection[int] | None = None,
        n_bytes: int = 0,
    ) -> Tails:
        """Cut the home lists; of some partitions `only`, if these are given.

        `n_bytes` is what each task takes along and brings back.
        """
        lists = {
            lane: own if only is None else [index for index in own if index in only]
            for lane, own in homes.lists.items()
        }
        cuts = {
            lane: len(own) - _tail_length(homes, lane, own, n_bytes) * _has_help(homes, lane, stay)
            for lane, own in lists.items()
        }
        return cls(
            {lane: own[: cuts[lane]] for lane, own in lists.items()},
            {lane: own[cuts[lane] :] for lane, own in lists.items()},
            stay=stay,
        )

    @property
    def n_tasks(self) -> int:
        """About how many tasks there will be."""
        left = sum(len(tail) for tail in self._left.values())
        return len(self.heads) + min(left, MOST_TAIL_TASKS * len(self._left))

    def again(self) -> Tails:
        """Return the same tasks, none of them taken."""
        return Tails(self.heads, self._left, stay=self._stay)

    def take(self, lane: Lane) -> tuple[int, ...]:
        """Return the next partitions for a lane: its own, else those of the longest tail.

        Half of an even share each time, so that the last pieces are small.
        """
        tails = [
            tail
            for owner, tail in self._left.items()
            if not self._stay or owner.worker == lane.worker
        ]
        left = sum(map(len, tails))
        if not left:
            return ()
        tail = self._left.get(lane) or max(tails, key=len)
        count = min(len(tail), -(-left // (2 * len(tails))))
        return tuple(tail.popleft() for _ in range(count))

    def take_rest(self) -> dict[Lane, tuple[int, ...]]:
        """Return what no lane will take any more, because those that might have gone."""
        rest = {lane: tuple(tail) for lane, tail in self._left.items() if tail}
        self._left.clear()
        return rest


def count_tail_tasks(length: int) -> int:
    """Return about how many tasks a tail of some partitions is handed out in: half of it each time.

    Examples
    --------
    >>> [count_tail_tasks(length) for length in (1, 3, 100)]
    [1, 2, 4]
    """
    return min(MOST_TAIL_TASKS, length.bit_length())


def least_tail_seconds(n_lanes: int, length: int = 1, n_bytes: int = 0) -> float:
    """Return how long a tail must take at least, for each of some lanes to keep one back.

    While lanes work on their tails, the driver hands out all of them and takes what comes back.

    Parameters
    ----------
    n_lanes : int
    length : int
        Partitions of the tail.
    n_bytes : int
        What a task takes along and brings back.

    Examples
    --------
    >>> least_tail_seconds(2), least_tail_seconds(1000)
    (0.02, 2.5)
    >>> least_tail_seconds(2, length=3, n_bytes=1_500_000)
    0.034
    """
    each = TAIL_TASK_SECONDS + n_bytes * TAIL_BYTE_SECONDS
    return max(LEAST_TAIL_SECONDS, n_lanes * count_tail_tasks(length) * each)


def _has_help(homes: Homes, lane: Lane, stay: bool) -> bool:
    return any(other != lane and (not stay or other.worker == lane.worker) for other in homes.lists)


def _tail_length(homes: Homes, lane: Lane, own: Sequence[int], n_bytes: int) -> int:
    length = max(1, len(own) // TAIL_SHARE) if len(own) >= 4 else 0
    seconds = homes.seconds(lane, own[len(own) - length :])
    least = least_tail_seconds(len(homes.lists), length, n_bytes)
    return 0 if seconds is not None and seconds < least else length
