from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.engine.assignment import Assignment, Slot, TaskQueue

A, B, C = Slot("a", 0), Slot("b", 0), Slot("c", 0)


def settled(n: int = 20, **threads: int) -> Assignment:
    assignment = Assignment([100] * n)
    assignment.settle(threads)
    return assignment


def everything(assignment: Assignment) -> list[int]:
    return sorted(index for own in assignment.lists.values() for index in own)


def test_homes_are_contiguous_and_even_at_first() -> None:
    assert settled(a=1, b=1).lists == {A: list(range(10)), B: list(range(10, 20))}


def test_partitions_stay_with_their_workers_when_another_joins() -> None:
    assignment = settled(a=1, b=1)
    before = {slot: set(own) for slot, own in assignment.lists.items()}
    assignment.settle({"a": 1, "b": 1, "c": 1})
    assert everything(assignment) == list(range(20))
    assert [len(assignment.lists[slot]) for slot in (A, B, C)] == [7, 7, 6]
    assert set(assignment.lists[A]) <= before[A]
    assert set(assignment.lists[B]) <= before[B]


def test_the_partitions_of_a_worker_that_leaves_are_divided() -> None:
    assignment = settled(n=30, a=1, b=1, c=1)
    kept = set(assignment.lists[A])
    assignment.settle({"a": 1, "b": 1})
    assert everything(assignment) == list(range(30))
    assert kept <= set(assignment.lists[A])
    assert [len(own) for own in assignment.lists.values()] == [15, 15]


def test_homes_move_after_two_uneven_passes_only() -> None:
    assignment = settled(a=1, b=1)
    fast = {A: (1000, 1.0), B: (1000, 3.0)}
    assignment.learn(fast)
    assert len(assignment.lists[A]) == 10
    assignment.learn(fast)
    assert (len(assignment.lists[A]), len(assignment.lists[B])) == (15, 5)
    assert everything(assignment) == list(range(20))


@pytest.mark.parametrize(
    "measured",
    [
        pytest.param({A: (1000, 1.0), B: (1000, 1.1)}, id="nearly even"),
        pytest.param({A: (1000, 0.01), B: (1000, 0.05)}, id="too short to tell"),
        pytest.param({A: (1000, 1.0)}, id="one slot"),
        pytest.param({}, id="none"),
    ],
)
def test_homes_stay(measured: dict[Slot, tuple[int, float]]) -> None:
    assignment = settled(a=1, b=1)
    for _ in range(3):
        assignment.learn(measured)
    assert assignment.lists == {A: list(range(10)), B: list(range(10, 20))}


def test_an_even_pass_in_between_resets_the_count() -> None:
    assignment = settled(a=1, b=1)
    for rates in ({A: (1000, 1.0), B: (1000, 2.0)}, {A: (1000, 1.0), B: (1000, 1.0)}) * 3:
        assignment.learn(rates)
    assert len(assignment.lists[A]) == 10


def drained(tasks: TaskQueue, slots: list[Slot]) -> list[tuple[Slot, tuple[int, ...]]]:
    taken = []
    while True:
        for slot in slots:
            piece = tasks.take(slot)
            if not piece:
                return taken
            taken.append((slot, piece))


def test_a_tenth_is_kept_back_and_pieces_get_smaller() -> None:
    assignment = settled(n=80, a=1, b=1)
    assignment.learn({A: (4000, 1.0), B: (4000, 1.0)})
    tasks = TaskQueue.cut(assignment)
    assert [len(head) for head in tasks.initial.values()] == [36, 36]
    pieces = drained(tasks, [A, B])
    assert [len(piece) for _, piece in pieces] == [2, 2, 1, 1, 1, 1]
    assert all(set(piece) <= set(assignment.lists[slot]) for slot, piece in pieces)


def test_an_idle_slot_helps_the_longest_tail() -> None:
    assignment = settled(n=64, a=1, b=1)
    taken = drained(TaskQueue.cut(assignment), [A])
    assert sorted(i for _, piece in taken for i in piece) == [29, 30, 31, 61, 62, 63]


def test_tasks_of_a_long_pass_take_seconds() -> None:
    assignment = settled(n=400, a=1, b=1)
    # Not measured yet: an eighth of the partitions of a slot, at least 32.
    assert assignment.task_limit() == 32
    assert settled(n=4000, a=1, b=1).task_limit() == 250
    assignment.learn({A: (2_000, 10.0), B: (2_000, 20.0)})  # 150 rows a second
    assert assignment.task_limit() == 7
    tasks = TaskQueue.cut(assignment)
    assert [len(head) for head in tasks.initial.values()] == [7, 7]
    pieces = [len(piece) for _, piece in drained(tasks, [A, B, C])]
    assert sum(pieces) == 386
    assert max(pieces) == 7
    # A worker that joins takes from them, unless state stays where it is.
    assert TaskQueue.cut(assignment).is_shared
    assert not TaskQueue.cut(assignment, stay=True).is_shared
    assert not TaskQueue.cut(assignment, stay=True).take(C)


def test_tasks_that_return_much_are_longer() -> None:
    assignment = settled(n=4000, a=1, b=1)
    assignment.learn({A: (10_000, 10.0), B: (10_000, 10.0)})
    # 250 MB a task keep the driver busy for a second: a task takes ten for each of the two slots.
    assert assignment.task_limit(250_000_000) == pytest.approx(10 * 20, rel=0.01)


def test_tails_whose_state_stays_go_to_slots_of_their_worker() -> None:
    assignment = settled(n=96, a=2, b=1)
    tasks = TaskQueue.cut(assignment, stay=True)
    second = Slot("a", 1)
    # One slot alone keeps nothing back: nobody could help it.
    assert len(tasks.initial[B]) == len(assignment.lists[B])
    taken = drained(tasks.again(), [second])
    both = [
        *assignment.lists[A][len(tasks.initial[A]) :],
        *assignment.lists[second][len(tasks.initial[second]) :],
    ]
    assert both
    assert sorted(i for _, piece in taken for i in piece) == sorted(both)
    assert not tasks.take(B)
    assert sorted(i for piece in tasks.take_rest().values() for i in piece) == sorted(both)
    assert not tasks.take(A)


def test_short_lists_and_short_passes_have_no_tail() -> None:
    assert not TaskQueue.cut(settled(n=3, a=1)).take(A)
    assert not TaskQueue.cut(settled(n=30, a=1)).take(A)  # nobody could help this slot
    assert not TaskQueue.cut(settled(n=6, a=1, b=1)).take(A)
    assignment = settled(n=80, a=1, b=1)
    assignment.learn({A: (4000, 0.02), B: (4000, 0.02)})
    assert not TaskQueue.cut(assignment).take(A)


def test_many_slots_keep_back_no_tail_that_takes_less_than_its_transfer() -> None:
    for n_slots, kept in ((4, True), (200, False)):
        threads = {f"w{i}": 1 for i in range(n_slots)}
        assignment = Assignment([100] * (20 * n_slots))
        assignment.settle(threads)
        assignment.learn(dict.fromkeys(assignment.lists, (2000, 1.0)))  # a tail takes 0.1 s
        assert bool(TaskQueue.cut(assignment).take_rest()) is kept


def test_tails_whose_bytes_cost_more_than_they_balance_are_not_cut() -> None:
    assignment = settled(n=64, a=1, b=1)
    assignment.learn({A: (3_200, 0.4), B: (3_200, 0.4)})  # a tail of three takes 0.04 s
    assert TaskQueue.cut(assignment, n_bytes=1_000).take_rest()
    assert not TaskQueue.cut(assignment, n_bytes=3_000_000).take_rest()


@given(
    rows=st.lists(st.integers(1, 1000), max_size=60),
    clusters=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1), min_size=1
    ),
    slow=st.floats(1.0, 9.0),
)
def test_every_partition_has_one_home_whatever_happens(
    rows: list[int], clusters: list[dict[str, int]], slow: float
) -> None:
    assignment = Assignment(rows)
    for threads in clusters:
        assignment.settle(threads)
        slots = list(assignment.lists)
        for _ in range(2):
            assignment.learn({slot: (100, slow if i else 1.0) for i, slot in enumerate(slots)})
        assert everything(assignment) == list(range(len(rows)))
        assert set(assignment.by_worker()) == set(threads)
        tasks = TaskQueue.cut(assignment)
        pieces = [i for head in tasks.initial.values() for i in head]
        pieces += [i for _, piece in drained(tasks, slots) for i in piece]
        assert sorted(pieces) == list(range(len(rows)))
