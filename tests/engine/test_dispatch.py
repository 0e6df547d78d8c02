"""The order of events of a pass, with futures that finish when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from daskcluster.engine.dispatch import Batch, Dispatch, LostError, Port
from daskcluster.engine.homes import Lane, Tails
from daskcluster.engine.worker import Outcome
from daskcluster.errors import EngineError

A, B = Lane("a", 0), Lane("b", 0)
SPANS = [(10 * i, 10 * i + 10) for i in range(8)]


class KilledError(Exception):
    """Stands for distributed's KilledWorker."""


class FakeFuture:
    def __init__(self, key: str, status: str, payload: Any) -> None:
        self.key, self.status, self.payload = key, status, payload

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.status != "pending":
            callback(self)

    def exception(self) -> BaseException:
        return self.payload


class FakeCluster:
    """Answers every batch by `answer(batch)`: (status, outcome or exception)."""

    def __init__(self, answer: Callable[[Batch], tuple[str, Any]]) -> None:
        self.answer = answer
        self.sent: list[Batch] = []
        self.settled: list[int] = []
        self.renewed = 0
        self.cancelled: list[Any] = []
        self.gone: set[str] = set()
        self.ended: dict[str, int] = {}

    def run(self, tails: Tails) -> None:
        port = Port(
            send=self.send,
            fetch=self.fetch,
            locate=self.locate,
            idle=self.idle,
            deaths=self.deaths,
            renew=self.renew,
            cancel=self.cancel,
            killed=KilledError,
        )
        Dispatch(port, tails, SPANS, self.land).run()

    def send(self, batch: Batch) -> Any:
        self.sent.append(batch)
        return FakeFuture(f"key-{len(self.sent)}", *self.answer(batch))

    def fetch(self, future: Any) -> Outcome:
        if future.payload is None:
            raise LostError
        return future.payload

    def locate(self, lane: Lane) -> Lane:
        return B if lane.worker in self.gone else lane

    def idle(self, flying: Mapping[str, Batch]) -> list[str]:
        self.gone.add("a")
        return [key for key, batch in flying.items() if batch.lane == A]

    def deaths(self, key: str) -> int:
        return self.ended.get(key, 0)

    def renew(self) -> None:
        self.renewed += 1

    def cancel(self, futures: Sequence[Any]) -> None:
        self.cancelled += futures

    def land(self, batch: Batch, outcome: Outcome, future: Any) -> None:
        self.settled += batch.indices


def fine(batch: Batch) -> tuple[str, Any]:
    return "finished", Outcome()


def two_lanes() -> Tails:
    return Tails({A: (0, 1, 2), B: (4, 5, 6)}, {A: (3,), B: (7,)})


def test_every_partition_is_settled_once() -> None:
    cluster = FakeCluster(fine)
    cluster.run(two_lanes())
    assert sorted(cluster.settled) == list(range(8))
    assert [batch.indices for batch in cluster.sent] == [(0, 1, 2), (4, 5, 6), (3,), (7,)]
    assert [batch.is_head for batch in cluster.sent] == [True, True, False, False]


def test_a_tail_waits_behind_the_task_that_a_lane_works_on() -> None:
    before: list[list[Lane]] = []

    class Watched(FakeCluster):
        def land(self, batch: Batch, outcome: Outcome, future: Any) -> None:
            before.append([one.lane for one in self.sent])
            super().land(batch, outcome, future)

    Watched(fine).run(Tails({A: (0,), B: (1,)}, {A: (2, 3), B: (4, 5)}))
    assert before[0] == [A, B, A, B]
    assert [len(sent) for sent in before] == [4, 5, 6, 6, 6, 6]


def test_outcomes_that_arrive_together_are_fetched_together() -> None:
    both = threading.Barrier(2, timeout=30)

    class Far(FakeCluster):
        def fetch(self, future: Any) -> Outcome:
            both.wait()  # which one alone would never pass
            return super().fetch(future)

    cluster = Far(fine)
    cluster.run(Tails({A: (0, 1), B: (2,)}, {}))
    assert sorted(cluster.settled) == [0, 1, 2]


def test_of_outcomes_that_arrive_together_one_may_be_lost() -> None:
    calls = []

    def once(batch: Batch) -> tuple[str, Any]:
        calls.append(batch)
        return "finished", None if len(calls) == 1 else Outcome()

    class Lost(FakeCluster):
        def fetch(self, future: Any) -> Outcome:
            if future.payload is None:
                future.status = "lost"
            return super().fetch(future)

    cluster = Lost(once)
    cluster.run(Tails({A: (0, 1), B: (2,)}, {}))
    assert sorted(cluster.settled) == [0, 1, 2]
    assert cluster.renewed == 1


@pytest.mark.parametrize("status", ["cancelled", "lost"])
def test_what_was_lost_is_sent_again_and_nothing_else(status: str) -> None:
    lost = []

    def once(batch: Batch) -> tuple[str, Any]:
        if batch.lane == B and not lost:
            lost.append(batch)
            return status, None
        return fine(batch)

    cluster = FakeCluster(once)
    cluster.run(two_lanes())
    assert sorted(cluster.settled) == list(range(8))
    assert cluster.renewed == 1
    assert [batch.indices for batch in cluster.sent].count((4, 5, 6)) == 2
    assert [batch.indices for batch in cluster.sent].count((0, 1, 2)) == 1


def test_what_waits_for_a_worker_that_has_gone_is_sent_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daskcluster.engine.dispatch.POLL_SECONDS", 0.01)
    cluster = FakeCluster(lambda batch: ("pending", None) if batch.lane == A else fine(batch))
    cluster.run(two_lanes())
    assert sorted(cluster.settled) == list(range(8))
    assert [(batch.lane, batch.indices) for batch in cluster.sent if batch.sends] == [
        (B, (0, 1, 2)),
        (B, (3,)),
    ]
    assert len(cluster.cancelled) == 2


def test_what_no_lane_will_take_is_sent_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskcluster.engine.dispatch.POLL_SECONDS", 0.01)
    cluster = FakeCluster(lambda batch: ("pending", None) if batch.lane == A else fine(batch))
    cluster.run(Tails({A: (0, 1, 2), B: (4, 5, 6)}, {A: (3,), B: (7,)}, stay=True))
    assert sorted(cluster.settled) == list(range(8))
    # The tail of a lane whose worker has gone was for no other.
    assert (cluster.sent[-1].lane, cluster.sent[-1].indices) == (B, (3,))


@pytest.mark.parametrize("becomes", ["lost", "cancelled", "pending"])
def test_an_outcome_that_is_gone_when_fetched_is_sent_again(
    becomes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As well if Dask says that the task runs again, and it waits for a worker that has gone."""
    monkeypatch.setattr("daskcluster.engine.dispatch.POLL_SECONDS", 0.01)

    def fetch(future: Any) -> Outcome:
        if future.payload is None:
            future.status = becomes
        return FakeCluster.fetch(cluster, future)

    cluster = FakeCluster(
        lambda batch: ("finished", None if batch.lane == A and not batch.sends else Outcome())
    )
    cluster.fetch = fetch  # type: ignore[method-assign]
    cluster.run(two_lanes())
    assert sorted(cluster.settled) == list(range(8))


def test_an_outcome_that_is_gone_when_fetched_and_comes_back_is_not_sent_again() -> None:
    def fetch(future: Any) -> Outcome:
        if future.key not in lost:
            lost.add(future.key)
            raise LostError
        return future.payload

    lost: set[str] = set()
    cluster = FakeCluster(fine)
    cluster.fetch = fetch  # type: ignore[method-assign]
    cluster.run(two_lanes())
    assert sorted(cluster.settled) == list(range(8))
    assert len(cluster.sent) == len(lost) == 4


def test_sending_again_has_an_end() -> None:
    cluster = FakeCluster(lambda batch: ("cancelled", None))
    with pytest.raises(EngineError, match="rows 0 to 29 were sent to workers 8 times and lost"):
        cluster.run(two_lanes())


def test_a_list_that_kills_is_taken_apart_after_all_others_and_the_rows_named() -> None:
    def deadly(batch: Batch) -> tuple[str, Any]:
        return ("error", KilledError("boom")) if 5 in batch.indices else fine(batch)

    cluster = FakeCluster(deadly)
    with pytest.raises(
        EngineError, match=r"rows 50 to 59 end every worker .* smaller chunks"
    ) as caught:
        cluster.run(two_lanes())
    assert isinstance(caught.value.__cause__, KilledError)
    assert sorted(cluster.settled) == [0, 1, 2, 3, 4, 7]
    assert [batch.indices for batch in cluster.sent[-2:]] == [(4,), (5,)]
    assert all(batch.alone for batch in cluster.sent[-2:])


def deadly_cluster(ends: bool) -> FakeCluster:
    """Return a cluster in which what holds partition 5 is lost, as its worker leaves, or ends."""

    def answer(batch: Batch) -> tuple[str, Any]:
        if 5 not in batch.indices:
            return fine(batch)
        cluster.ended[f"key-{len(cluster.sent)}"] = int(ends)
        return "lost", None

    cluster = FakeCluster(answer)
    return cluster


def test_what_is_lost_with_its_worker_every_time_is_taken_apart_and_the_rows_named() -> None:
    cluster = deadly_cluster(ends=True)
    with pytest.raises(EngineError, match=r"rows 50 to 59 end every worker .* also alone"):
        cluster.run(two_lanes())
    assert sorted(cluster.settled) == [0, 1, 2, 3, 4, 7]
    assert [batch.indices for batch in cluster.sent].count((4, 5, 6)) == 3
    assert [batch.indices for batch in cluster.sent if batch.alone] == [(4,), (5,), (5,), (5,)]


def test_if_nobody_comes_any_more_the_rows_that_were_worked_on_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("daskcluster.engine.dispatch.POLL_SECONDS", 0.01)

    def nobody(flying: Mapping[str, Batch]) -> list[str]:
        raise EngineError("no Dask worker has come within 1 s.")

    def once(batch: Batch) -> tuple[str, Any]:
        cluster.ended["key-1"] = 1
        return ("lost" if len(cluster.sent) == 1 else "pending"), None

    cluster = FakeCluster(once)
    cluster.idle = nobody  # type: ignore[method-assign]
    with pytest.raises(EngineError, match=r"within 1 s\. Before, 1 worker.* had rows 0 to 29;"):
        cluster.run(two_lanes())


def test_workers_that_leave_as_planned_are_not_blamed_on_rows() -> None:
    cluster = deadly_cluster(ends=False)
    with pytest.raises(EngineError, match=r"rows 40 to 69 were sent .* 8 times .* workers left"):
        cluster.run(two_lanes())
    assert not any(batch.alone for batch in cluster.sent)


def test_partitions_that_do_not_kill_alone_are_settled() -> None:
    cluster = FakeCluster(
        lambda batch: ("error", KilledError()) if len(batch.indices) > 1 else fine(batch)
    )
    cluster.run(two_lanes())
    assert sorted(cluster.settled) == list(range(8))


def test_errors_of_the_work_end_the_pass_and_cancel_the_rest() -> None:
    error = ValueError("row 3 is NaN")
    cluster = FakeCluster(
        lambda batch: ("finished", Outcome(error=error)) if batch.lane == A else fine(batch)
    )
    with pytest.raises(ValueError, match="row 3 is NaN"):
        cluster.run(two_lanes())
    assert [future.key for future in cluster.cancelled] == ["key-2", "key-3", "key-4"]


def test_errors_of_dask_are_passed_on() -> None:
    cluster = FakeCluster(lambda batch: ("error", OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        cluster.run(two_lanes())


def test_lanes_without_a_head_start_with_a_tail() -> None:
    cluster = FakeCluster(fine)
    cluster.run(Tails({A: (0,), B: ()}, {A: (1, 2, 3)}))
    assert sorted(cluster.settled) == [0, 1, 2, 3]


def test_no_partition_at_all() -> None:
    cluster = FakeCluster(fine)
    cluster.run(Tails({A: ()}, {}))
    assert cluster.sent == []
