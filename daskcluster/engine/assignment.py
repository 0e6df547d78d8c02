"""Assignment of partitions to the threads of workers.

A slot is one thread of one worker. Partitions are assigned to slots in contiguous runs at first. They move
only when workers come or go, or when the measured rates of slots differ by a fifth in two passes running;
then as few as possible move, for a partition that moves loses what is cached of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

REMAINING_SHARE = 10
"""A slot gets its partitions but for a tenth at once; the rest is handed out as slots finish."""
MIN_REMAINING_SECONDS = 0.02
"""Work that takes less is not worth a round trip to the scheduler."""
TASK_SECONDS, TASK_BYTE_SECONDS = 0.0025, 4e-9
"""What a task, and each byte that it takes along or brings back, costs the driver (client and scheduler
together), which hands out the tasks of all slots one after the other; measured by
`python -m tests.benchmarks calibrate`."""
MAX_REMAINING_TASKS = 4
"""The rest of a slot is handed out in about as many tasks, at most."""
LEAST_MEASURED_SECONDS = 0.1
_UNEVEN = 1.2
_UNEVEN_PASSES = 2


class Slot(NamedTuple):
    """One thread of one worker (by address)."""

    worker: str
    thread: int


class Assignment:
    """Who works on the partitions of a placement.

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
        """Estimate how long a slot takes for partitions; None before it was measured."""
        rate = self._rates.get(slot)
        return None if not rate else self._count(indices) / rate

    def settle(self, threads: Mapping[str, int]) -> None:
        """Assign every partition to a slot of the workers that are there now.

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
        """Note how fast slots were in a pass; move partitions if rates stay too uneven.

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

    def _targets(self) -> dict[Slot, float]:
        """Return the rows each slot should have: in proportion to its rate."""
        known = list(self._trusted.values())
        mean = sum(known) / len(known) if known else 1.0
        rates = {slot: self._trusted.get(slot, mean) for slot in self._lists}
        share = sum(self._n_rows) / sum(rates.values())
        return {slot: rate * share for slot, rate in rates.items()}

    def _level(self, pool: list[int]) -> None:
        """Move what exceeds a slot's target, and `pool`, to the slots below theirs."""
        targets = self._targets()
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
    """The partitions that a slot is sent at a time.

    Attributes
    ----------
    slot : Slot
    indices : tuple of int
    is_initial : bool
        The first task of the slot in this pass: its speed is the slot's.
    alone : bool
        One partition of a task that killed its workers, run while nothing else runs.
    sends : int
        How often it was sent before.
    deaths : int
        How many workers have ended without notice while they had it.
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
        The rest goes to slots of the same worker alone: elsewhere state would have to be made anew, there
        in this pass and here in the next.
    """

    def __init__(
        self,
        initial: Mapping[Slot, Sequence[int]],
        rest: Mapping[Slot, Sequence[int]],
        *,
        stay: bool = False,
    ) -> None:
        self.initial = {slot: tuple(indices) for slot, indices in initial.items()}
        self._rest = {slot: deque(indices) for slot, indices in rest.items()}
        self._stay = stay

    @classmethod
    def cut(
        cls,
        assignment: Assignment,
        *,
        stay: bool = False,
        only: Collection[int] | None = None,
        n_bytes: int = 0,
    ) -> TaskQueue:
        """Cut an assignment into initial tasks and the rest; of some partitions `only`, if given.

        `n_bytes` is what each task takes along and brings back.
        """
        lists = {
            slot: own if only is None else [index for index in own if index in only]
            for slot, own in assignment.lists.items()
        }
        cuts = {
            slot: len(own)
            - _rest_length(assignment, slot, own, n_bytes) * _has_help(assignment, slot, stay)
            for slot, own in lists.items()
        }
        return cls(
            {slot: own[: cuts[slot]] for slot, own in lists.items()},
            {slot: own[cuts[slot] :] for slot, own in lists.items()},
            stay=stay,
        )

    @property
    def n_tasks(self) -> int:
        """About how many tasks there will be."""
        left = sum(map(len, self._rest.values()))
        return len(self.initial) + min(left, MAX_REMAINING_TASKS * len(self._rest))

    def again(self) -> TaskQueue:
        """Return the same tasks, none of them taken."""
        return TaskQueue(self.initial, self._rest, stay=self._stay)

    def take(self, slot: Slot) -> tuple[int, ...]:
        """Return the next partitions for a slot: its own, else those of the slot with most left.

        Half of an even share each time, so that the last tasks are small.
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
        count = min(len(rest), -(-left // (2 * len(shared))))
        return tuple(rest.popleft() for _ in range(count))

    def take_rest(self) -> dict[Slot, tuple[int, ...]]:
        """Return all that is left, where the slots that might have taken it have gone."""
        left = {slot: tuple(rest) for slot, rest in self._rest.items() if rest}
        self._rest.clear()
        return left


def count_remaining_tasks(length: int) -> int:
    """Return in about how many tasks the rest of a slot is handed out: half of it each time.

    Examples
    --------
    >>> [count_remaining_tasks(length) for length in (1, 3, 100)]
    [1, 2, 4]
    """
    return min(MAX_REMAINING_TASKS, length.bit_length())


def min_remaining_seconds(n_slots: int, length: int = 1, n_bytes: int = 0) -> float:
    """Return how long the rest of a slot must take at least, to be handed out in tasks of its own.

    While slots work on these, the driver hands out those of all slots and takes what comes back.

    Parameters
    ----------
    n_slots : int
    length : int
        Partitions of the rest.
    n_bytes : int
        What a task takes along and brings back.

    Examples
    --------
    >>> min_remaining_seconds(2), min_remaining_seconds(1000)
    (0.02, 2.5)
    >>> min_remaining_seconds(2, length=3, n_bytes=1_500_000)
    0.034
    """
    each = TASK_SECONDS + n_bytes * TASK_BYTE_SECONDS
    return max(MIN_REMAINING_SECONDS, n_slots * count_remaining_tasks(length) * each)


def _has_help(assignment: Assignment, slot: Slot, stay: bool) -> bool:
    return any(
        other != slot and (not stay or other.worker == slot.worker) for other in assignment.lists
    )


def _rest_length(assignment: Assignment, slot: Slot, own: Sequence[int], n_bytes: int) -> int:
    length = max(1, len(own) // REMAINING_SHARE) if len(own) >= 4 else 0
    seconds = assignment.seconds(slot, own[len(own) - length :])
    least = min_remaining_seconds(len(assignment.lists), length, n_bytes)
    return 0 if seconds is not None and seconds < least else length
