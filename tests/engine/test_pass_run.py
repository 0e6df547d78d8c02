"""The order of events of a pass, with futures that finish when a test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import KilledWorker

from daskcluster.engine.assignment import Slot, Task, TaskQueue
from daskcluster.engine.operations import TaskResult
from daskcluster.engine.pass_run import LostError, PassRun
from daskcluster.errors import EngineError

A, B = Slot("a", 0), Slot("b", 0)
KILLED = KilledWorker("pass", None, 3)
SPANS = [(10 * i, 10 * i + 10) for i in range(8)]


class FakeFuture:
    def __init__(self, key: str, status: str, payload: Any) -> None:
        self.key, self.status, self.payload = key, status, payload

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.status != "pending":
            callback(self)

    def exception(self) -> BaseException:
        return self.payload


class FakeCluster(PassRun):
    """Answers every task by `answer(task)`: (status, result or exception)."""

    def __init__(self, answer: Callable[[Task], tuple[str, Any]]) -> None:
        nobody: Any = SimpleNamespace(spans=SPANS, name="rows", operation=None, client=None)
        super().__init__(nobody, nobody, None, nobody, n_threads={}, on_rows=lambda rows: None)
        self.answer = answer
        self.sent: list[Task] = []
        self.settled: list[int] = []
        self.renewed = 0
        self.cancelled: list[Any] = []
        self.gone: set[str] = set()
        self.ended: dict[str, int] = {}
        self.workers: set[str] = set()
        self._registry: Any = SimpleNamespace(present=lambda: self.workers, refresh=self.refresh)

    def submit(self, task: Task) -> Any:
        self.sent.append(task)
        return FakeFuture(f"key-{len(self.sent)}", *self.answer(task))

    def fetch(self, future: Any) -> TaskResult:
        if future.payload is None:
            raise LostError
        return future.payload

    def locate(self, slot: Slot) -> Slot:
        return B if slot.worker in self.gone else slot

    def stranded(self, in_flight: Mapping[str, Task]) -> list[str]:
        self.gone.add("a")
        return [key for key, task in in_flight.items() if task.slot == A]

    def deaths(self, key: str) -> int:
        return self.ended.get(key, 0)

    def renew(self) -> None:
        self.renewed += 1

    def cancel(self, futures: Sequence[Any]) -> None:
        self.cancelled += futures

    def refresh(self) -> Mapping[str, Any]:
        return {worker: SimpleNamespace(n_threads=1) for worker in self.workers}

    def take_result(self, task: Task, result: TaskResult, future: Any) -> None:
        self.settled += task.indices


def fine(task: Task) -> tuple[str, Any]:
    return "finished", TaskResult()


def two_slots() -> TaskQueue:
    return TaskQueue({A: (0, 1, 2), B: (4, 5, 6)}, {A: (3,), B: (7,)})


def test_every_partition_is_settled_once() -> None:
    cluster = FakeCluster(fine)
    cluster.settle(two_slots())
    assert sorted(cluster.settled) == list(range(8))
    assert [task.indices for task in cluster.sent] == [(0, 1, 2), (4, 5, 6), (3,), (7,)]
    assert [task.is_initial for task in cluster.sent] == [True, True, False, False]


def test_a_tail_waits_behind_the_task_that_a_slot_works_on() -> None:
    before: list[list[Slot]] = []

    class Watched(FakeCluster):
        def take_result(self, task: Task, result: TaskResult, future: Any) -> None:
            before.append([one.slot for one in self.sent])
            super().take_result(task, result, future)

    Watched(fine).settle(TaskQueue({A: (0,), B: (1,)}, {A: (2, 3), B: (4, 5)}))
    assert before[0] == [A, B, A, B]
    assert [len(sent) for sent in before] == [4, 5, 6, 6, 6, 6]


def test_outcomes_that_arrive_together_are_fetched_together() -> None:
    both = threading.Barrier(2, timeout=30)

    class Far(FakeCluster):
        def fetch(self, future: Any) -> TaskResult:
            both.wait()  # which one alone would never pass
            return super().fetch(future)

    cluster = Far(fine)
    cluster.settle(TaskQueue({A: (0, 1), B: (2,)}, {}))
    assert sorted(cluster.settled) == [0, 1, 2]


def test_one_of_several_outcomes_may_be_lost() -> None:
    calls = []

    def once(task: Task) -> tuple[str, Any]:
        calls.append(task)
        return "finished", None if len(calls) == 1 else TaskResult()

    class Lost(FakeCluster):
        def fetch(self, future: Any) -> TaskResult:
            if future.payload is None:
                future.status = "lost"
            return super().fetch(future)

    cluster = Lost(once)
    cluster.settle(TaskQueue({A: (0, 1), B: (2,)}, {}))
    assert sorted(cluster.settled) == [0, 1, 2]
    assert cluster.renewed == 1


@pytest.mark.parametrize("status", ["cancelled", "lost"])
def test_only_lost_tasks_are_sent_again(status: str) -> None:
    lost = []

    def once(task: Task) -> tuple[str, Any]:
        if task.slot == B and not lost:
            lost.append(task)
            return status, None
        return fine(task)

    cluster = FakeCluster(once)
    cluster.settle(two_slots())
    assert sorted(cluster.settled) == list(range(8))
    assert cluster.renewed == 1
    assert [task.indices for task in cluster.sent].count((4, 5, 6)) == 2
    assert [task.indices for task in cluster.sent].count((0, 1, 2)) == 1


def test_tasks_of_a_worker_that_has_left_are_sent_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daskcluster.engine.pass_run.POLL_SECONDS", 0.01)
    cluster = FakeCluster(lambda task: ("pending", None) if task.slot == A else fine(task))
    cluster.settle(two_slots())
    assert sorted(cluster.settled) == list(range(8))
    assert [(task.slot, task.indices) for task in cluster.sent if task.sends] == [
        (B, (0, 1, 2)),
        (B, (3,)),
    ]
    assert len(cluster.cancelled) == 2


def test_tails_of_a_worker_that_has_left_are_sent_last_where_state_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daskcluster.engine.pass_run.POLL_SECONDS", 0.01)
    cluster = FakeCluster(lambda task: ("pending", None) if task.slot == A else fine(task))
    cluster.settle(TaskQueue({A: (0, 1, 2), B: (4, 5, 6)}, {A: (3,), B: (7,)}, stay=True))
    assert sorted(cluster.settled) == list(range(8))
    # The tail of a slot whose worker has gone was for no other.
    assert (cluster.sent[-1].slot, cluster.sent[-1].indices) == (B, (3,))


@pytest.mark.parametrize("becomes", ["lost", "cancelled", "pending"])
def test_a_task_whose_outcome_is_lost_before_it_is_fetched_is_sent_again(
    becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As well if Dask says that the task runs again, and it waits for a worker that has gone."""
    monkeypatch.setattr("daskcluster.engine.pass_run.POLL_SECONDS", 0.01)

    def fetch(future: Any) -> TaskResult:
        if future.payload is None:
            future.status = becomes
        return FakeCluster.fetch(cluster, future)

    cluster = FakeCluster(
        lambda task: ("finished", None if task.slot == A and not task.sends else TaskResult())
    )
    cluster.fetch = fetch  # type: ignore[method-assign]
    cluster.settle(two_slots())
    assert sorted(cluster.settled) == list(range(8))


def test_an_outcome_that_can_be_fetched_at_the_second_try_is_not_sent_again() -> None:
    def fetch(future: Any) -> TaskResult:
        if future.key not in lost:
            lost.add(future.key)
            raise LostError
        return future.payload

    lost: set[str] = set()
    cluster = FakeCluster(fine)
    cluster.fetch = fetch  # type: ignore[method-assign]
    cluster.settle(two_slots())
    assert sorted(cluster.settled) == list(range(8))
    assert len(cluster.sent) == len(lost) == 4


def test_a_task_is_sent_eight_times_at_most() -> None:
    cluster = FakeCluster(lambda task: ("cancelled", None))
    with pytest.raises(EngineError, match="rows 0 to 29 were sent to workers 8 times and lost"):
        cluster.settle(two_slots())


def test_a_task_that_kills_workers_is_divided_last_and_its_rows_are_named() -> None:
    def deadly(task: Task) -> tuple[str, Any]:
        return ("error", KILLED) if 5 in task.indices else fine(task)

    cluster = FakeCluster(deadly)
    with pytest.raises(
        EngineError, match=r"rows 50 to 59 kill every worker .* smaller chunks"
    ) as caught:
        cluster.settle(two_slots())
    assert isinstance(caught.value.__cause__, KilledWorker)
    assert sorted(cluster.settled) == [0, 1, 2, 3, 4, 7]
    assert [task.indices for task in cluster.sent[-2:]] == [(4,), (5,)]
    assert all(task.alone for task in cluster.sent[-2:])


def deadly_cluster(ends: bool) -> FakeCluster:
    """Return a cluster in which what holds partition 5 is lost, as its worker leaves, or ends."""

    def answer(task: Task) -> tuple[str, Any]:
        if 5 not in task.indices:
            return fine(task)
        cluster.ended[f"key-{len(cluster.sent)}"] = int(ends)
        return "lost", None

    cluster = FakeCluster(answer)
    return cluster


def test_a_task_that_is_lost_with_every_worker_is_divided_and_its_rows_are_named() -> None:
    cluster = deadly_cluster(ends=True)
    with pytest.raises(
        EngineError, match=r"rows 50 to 59 kill every worker .* even when nothing else runs"
    ):
        cluster.settle(two_slots())
    assert sorted(cluster.settled) == [0, 1, 2, 3, 4, 7]
    assert [task.indices for task in cluster.sent].count((4, 5, 6)) == 3
    assert [task.indices for task in cluster.sent if task.alone] == [(4,), (5,), (5,), (5,)]


def test_workers_that_leave_as_planned_are_not_blamed_on_rows() -> None:
    cluster = deadly_cluster(ends=False)
    with pytest.raises(EngineError, match=r"rows 40 to 69 were sent .* 8 times .* workers left"):
        cluster.settle(two_slots())
    assert not any(task.alone for task in cluster.sent)


def test_partitions_that_do_not_kill_alone_are_settled() -> None:
    cluster = FakeCluster(lambda task: ("error", KILLED) if len(task.indices) > 1 else fine(task))
    cluster.settle(two_slots())
    assert sorted(cluster.settled) == list(range(8))


def test_errors_of_the_work_end_the_pass_and_cancel_the_rest() -> None:
    error = ValueError("row 3 is NaN")
    cluster = FakeCluster(
        lambda task: ("finished", TaskResult(error=error)) if task.slot == A else fine(task)
    )
    with pytest.raises(ValueError, match="row 3 is NaN"):
        cluster.settle(two_slots())
    assert [future.key for future in cluster.cancelled] == ["key-2", "key-3", "key-4"]


def test_errors_of_dask_are_passed_on() -> None:
    cluster = FakeCluster(lambda task: ("error", OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        cluster.settle(two_slots())


def test_slots_without_a_first_task_start_with_one_of_the_last() -> None:
    cluster = FakeCluster(fine)
    cluster.settle(TaskQueue({A: (0,), B: ()}, {A: (1, 2, 3)}))
    assert sorted(cluster.settled) == [0, 1, 2, 3]


@pytest.mark.parametrize("stay", [False, True])
def test_a_worker_that_joins_within_a_pass_gets_tasks(
    stay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskcluster.engine.registry.JOIN_SECONDS", 0)

    def slowly(task: Task) -> tuple[str, Any]:
        cluster.workers.add("b")
        time.sleep(0.02)
        return fine(task)

    cluster = FakeCluster(slowly)
    queue = TaskQueue({A: (0,)}, {A: tuple(range(1, 8))}, stay=stay, limit=1)
    cluster.settle(queue)
    assert sorted(cluster.settled) == list(range(8))
    assert {task.slot for task in cluster.sent} == ({A} if stay else {A, B})
