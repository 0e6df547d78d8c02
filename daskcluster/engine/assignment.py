"""Assignment of partitions to the threads of workers.

A slot is one thread of one worker. Partitions are assigned to slots in contiguous runs at first. They move
only when workers join or leave, or when the measured rates of slots differ by a fifth in two passes in a
row. As few as possible move, since a partition that moves loses its cached rows and state.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

REMAINING_SHARE = 10
"""A slot gets all but a tenth of its partitions at once; the rest is handed out as slots finish."""
MIN_REMAINING_SECONDS = 0.02
"""Shorter work is not worth a round trip to the scheduler."""
TASK_SECONDS, TASK_BYTE_SECONDS = 0.0025, 4e-9
"""Time that the driver (client and scheduler) spends on a task, and on each byte sent or returned with it.
The driver handles the tasks of all slots one after the other. Measured by `python -m tests.benchmarks
calibrate`."""
MAX_REMAINING_TASKS = 4
"""About the largest number of tasks in which the rest of a slot is handed out."""
LEAST_MEASURED_SECONDS = 0.1
TASK_LIMIT_SECONDS = 5.0
"""About the longest task: a lost worker costs no more, and a worker that joins finds work soon."""
_DRIVER_SHARE = 0.1
"""Most of its time that the driver may spend on tasks that are cut for that reason."""
_UNMEASURED_PARTITIONS, _UNMEASURED_TASKS = 32, 8
_UNEVEN = 1.2
_UNEVEN_PASSES = 2


class Slot(NamedTuple):
    """One thread of one worker (by address)."""

    worker: str
    thread: int


class Assignment:
    """Assigns the partitions of a placement to slots.

    Parameters
    ----------
    n_rows : sequence of int
        Rows of every partition.
    """

    def __init__(self, n_rows: Sequence[int]) -> None:
        self._n_rows = n_rows
        self._lists: dict[Slot, list[int]] = {}
        self._rates: dict[Slot, float] = {}
        self._trusted: dict[Slot, float] = {}
        self._uneven_passes = 0

    @property
    def lists(self) -> Mapping[Slot, Sequence[int]]:
        """The partitions of every slot."""
        return self._lists

    def by_worker(self) -> dict[str, list[int]]:
        """Return the partitions of every worker, slot by slot."""
        found: dict[str, list[int]] = {}
        for slot, indices in self._lists.items():
            found.setdefault(slot.worker, []).extend(indices)
        return found

    def seconds(self, slot: Slot, indices: Sequence[int]) -> float | None:
        """Estimate the seconds that a slot takes for partitions; None if it was not measured yet."""
        rate = self._rates.get(slot)
        return None if not rate else self._count(indices) / rate

    def task_limit(self, n_bytes: int = 0) -> int:
        """Return the most partitions of a task, for about `TASK_LIMIT_SECONDS` of work.

        Until a speed is measured, that is an eighth of a slot's partitions, at least 32.

        Parameters
        ----------
        n_bytes : int
            Sent and returned with each task.
        """
        n_slots = max(1, len(self._lists))
        share = len(self._n_rows) / n_slots
        if not self._rates or not sum(self._n_rows):
            return max(_UNMEASURED_PARTITIONS, math.ceil(share / _UNMEASURED_TASKS))
        each = n_slots * (TASK_SECONDS + n_bytes * TASK_BYTE_SECONDS)
        rate = sum(self._rates.values()) / len(self._rates)
        rows = rate * max(TASK_LIMIT_SECONDS, each / _DRIVER_SHARE)
        return max(1, int(rows * len(self._n_rows) / sum(self._n_rows)))

    def settle(self, threads: Mapping[str, int]) -> None:
        """Assign every partition to a slot of the current workers.

        Parameters
        ----------
        threads : mapping of worker address to number of threads
        """
        slots = [
            Slot(worker, thread) for worker in sorted(threads) for thread in range(threads[worker])
        ]
        if set(slots) == set(self._lists):
            return
        lost = [i for slot, own in self._lists.items() if slot not in slots for i in own]
        if not self._lists:
            lost = list(range(len(self._n_rows)))
        self._lists = {slot: self._lists.get(slot, []) for slot in slots}
        for rates in (self._rates, self._trusted):
            for slot in set(rates) - set(slots):
                del rates[slot]
        self._uneven_passes = 0
        self._level(sorted(lost))

    def learn(self, measured: Mapping[Slot, tuple[int, float]]) -> None:
        """Record the speed of slots in a pass; move partitions if the rates stay uneven.

        Parameters
        ----------
        measured : mapping of slot to (rows, seconds)
        """
        for slot, (rows, seconds) in measured.items():
            if slot in self._lists and rows and seconds > 0:
                self._rates[slot] = rows / seconds
        slowest = max((seconds for _, seconds in measured.values()), default=0.0)
        uneven = False
        # The speed of very short tasks is noise.
        if slowest > LEAST_MEASURED_SECONDS:
            self._trusted = dict(self._rates)
            uneven = max(self._trusted.values()) > _UNEVEN * min(self._trusted.values())
        self._uneven_passes = self._uneven_passes + 1 if uneven else 0
        if self._uneven_passes >= _UNEVEN_PASSES:
            self._uneven_passes = 0
            self._level([])

    def _count(self, indices: Sequence[int]) -> int:
        return sum(self._n_rows[index] for index in indices)

    def _level(self, pool: list[int]) -> None:
        """Move partitions beyond a slot's target, and those of `pool`, to slots below their target."""
        # Rows that each slot should have, in proportion to its rate.
        known = list(self._trusted.values())
        mean = sum(known) / len(known) if known else 1.0
        rates = {slot: self._trusted.get(slot, mean) for slot in self._lists}
        share = sum(self._n_rows) / sum(rates.values())
        targets = {slot: rate * share for slot, rate in rates.items()}
        for slot, own in self._lists.items():
            excess = self._count(own) - targets[slot]
            while own and excess >= self._n_rows[own[-1]] / 2 > 0:
                excess -= self._n_rows[own[-1]]
                pool.append(own.pop())
        pool.sort()
        waiting = deque(pool)
        missing = {slot: targets[slot] - self._count(own) for slot, own in self._lists.items()}
        for slot, own in self._lists.items():
            while waiting and missing[slot] >= self._n_rows[waiting[0]] / 2:
                missing[slot] -= self._n_rows[waiting[0]]
                own.append(waiting.popleft())
        for index in waiting:
            slot = max(missing, key=lambda slot: missing[slot])
            missing[slot] -= self._n_rows[index]
            self._lists[slot].append(index)
        for own in self._lists.values():
            own.sort()


@dataclass(frozen=True)
class Task:
    """Partitions sent to a slot together.

    Attributes
    ----------
    slot : Slot
    indices : tuple of int
    is_initial : bool
        The first task of the slot in this pass, which measures the slot's speed.
    alone : bool
        A single partition of a task that killed its workers, run while no other task runs.
    sends : int
        Number of earlier attempts.
    deaths : int
        Number of workers that died while they had it.
    """

    slot: Slot
    indices: tuple[int, ...]
    is_initial: bool = False
    alone: bool = False
    sends: int = 0
    deaths: int = 0


class TaskQueue:
    """The partitions of a pass: an initial task for every slot, and the rest, handed out as slots finish.

    Parameters
    ----------
    initial, rest : mapping of slot to partitions
    stay : bool
        Hand the rest only to slots of the same worker. On another worker, state would have to be rebuilt in
        this pass, and here again in the next.
    limit : int, optional
        Most partitions of a task of the rest. Default: no limit.
    """

    def __init__(
        self,
        initial: Mapping[Slot, Sequence[int]],
        rest: Mapping[Slot, Sequence[int]],
        *,
        stay: bool = False,
        limit: int | None = None,
    ) -> None:
        self.initial = {slot: tuple(indices) for slot, indices in initial.items()}
        self._rest = {slot: deque(indices) for slot, indices in rest.items()}
        self._stay = stay
        self._limit = limit

    @classmethod
    def cut(
        cls,
        assignment: Assignment,
        *,
        stay: bool = False,
        only: Collection[int] | None = None,
        n_bytes: int = 0,
    ) -> TaskQueue:
        """Split an assignment into initial tasks and the rest; `only` restricts the partitions.

        `n_bytes` are sent and returned with each task.
        """
        lists = {
            slot: own if only is None else [index for index in own if index in only]
            for slot, own in assignment.lists.items()
        }
        limit = assignment.task_limit(n_bytes)
        cuts = {}
        for slot, own in lists.items():
            others = (other for other in lists if other != slot)
            has_help = any(not stay or other.worker == slot.worker for other in others)
            rest = _rest_length(assignment, slot, own, n_bytes) if has_help else 0
            cuts[slot] = min(limit, len(own) - rest)
        return cls(
            {slot: own[: cuts[slot]] for slot, own in lists.items()},
            {slot: own[cuts[slot] :] for slot, own in lists.items()},
            stay=stay,
            limit=limit,
        )

    @property
    def n_tasks(self) -> int:
        """Approximate number of tasks."""
        left = sum(map(len, self._rest.values()))
        most = MAX_REMAINING_TASKS * len(self._rest) + left // (self._limit or max(1, left))
        return len(self.initial) + min(left, most)

    @property
    def is_shared(self) -> bool:
        """True if partitions are left for the slots of any worker."""
        return not self._stay and any(self._rest.values())

    def again(self) -> TaskQueue:
        """Return a copy in which no task is taken yet."""
        return TaskQueue(self.initial, self._rest, stay=self._stay, limit=self._limit)

    def take(self, slot: Slot) -> tuple[int, ...]:
        """Return the next partitions for a slot: its own, or those of the slot with the most left.

        Each call takes half of an even share, so that the last tasks are small, and at most the limit.
        """
        shared = [
            rest
            for owner, rest in self._rest.items()
            if not self._stay or owner.worker == slot.worker
        ]
        left = sum(map(len, shared))
        if not left:
            return ()
        rest = self._rest.get(slot) or max(shared, key=len)
        count = min(len(rest), -(-left // (2 * len(shared))), self._limit or left)
        return tuple(rest.popleft() for _ in range(count))

    def take_rest(self) -> dict[Slot, tuple[int, ...]]:
        """Return the partitions of which no remaining slot will ask."""
        left = {slot: tuple(rest) for slot, rest in self._rest.items() if rest}
        self._rest.clear()
        return left


def count_remaining_tasks(length: int) -> int:
    """Return about how many tasks hand out the rest of a slot, half of what is left each time.

    Examples
    --------
    >>> [count_remaining_tasks(length) for length in (1, 3, 100)]
    [1, 2, 4]
    """
    return min(MAX_REMAINING_TASKS, length.bit_length())


def min_remaining_seconds(n_slots: int, length: int = 1, n_bytes: int = 0) -> float:
    """Return the least seconds of work for which the rest of a slot is worth separate tasks.

    In that time, the driver must be able to send the tasks of all slots and receive their results.

    Parameters
    ----------
    n_slots : int
    length : int
        Number of partitions in the rest.
    n_bytes : int
        Sent and returned with each task.

    Examples
    --------
    >>> min_remaining_seconds(2), min_remaining_seconds(1000)
    (0.02, 2.5)
    >>> min_remaining_seconds(2, length=3, n_bytes=1_500_000)
    0.034
    """
    each = TASK_SECONDS + n_bytes * TASK_BYTE_SECONDS
    return max(MIN_REMAINING_SECONDS, n_slots * count_remaining_tasks(length) * each)


def _rest_length(assignment: Assignment, slot: Slot, own: Sequence[int], n_bytes: int) -> int:
    length = max(1, len(own) // REMAINING_SHARE) if len(own) >= 4 else 0
    seconds = assignment.seconds(slot, own[len(own) - length :])
    least = min_remaining_seconds(len(assignment.lists), length, n_bytes)
    return 0 if seconds is not None and seconds < least else length
