from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.engine.homes import Homes, Lane, Tails

A, B, C = Lane("a", 0), Lane("b", 0), Lane("c", 0)


def settled(n: int = 20, **threads: int) -> Homes:
    homes = Homes([100] * n)
    homes.settle(threads)
    return homes


def everything(homes: Homes) -> list[int]:
    return sorted(index for own in homes.lists.values() for index in own)


def test_homes_are_contiguous_and_even_at_first() -> None:
    assert settled(a=1, b=1).lists == {A: list(range(10)), B: list(range(10, 20))}


def test_every_thread_is_a_lane() -> None:
    homes = settled(a=2, b=1)
    assert [len(own) for own in homes.lists.values()] == [7, 7, 6]
    assert len(homes.by_worker()["a"]) == 14


def test_what_stays_stays_when_a_worker_joins() -> None:
    homes = settled(a=1, b=1)
    before = {lane: set(own) for lane, own in homes.lists.items()}
    homes.settle({"a": 1, "b": 1, "c": 1})
    assert everything(homes) == list(range(20))
    assert [len(homes.lists[lane]) for lane in (A, B, C)] == [7, 7, 6]
    assert set(homes.lists[A]) <= before[A]
    assert set(homes.lists[B]) <= before[B]


def test_what_a_leaving_worker_had_is_shared_out() -> None:
    homes = settled(n=30, a=1, b=1, c=1)
    kept = set(homes.lists[A])
    homes.settle({"a": 1, "b": 1})
    assert everything(homes) == list(range(30))
    assert kept <= set(homes.lists[A])
    assert [len(own) for own in homes.lists.values()] == [15, 15]


def test_all_workers_replaced() -> None:
    homes = settled(a=1, b=1)
    homes.settle({"c": 1})
    assert homes.lists == {C: list(range(20))}


def test_homes_move_after_two_uneven_passes_only() -> None:
    homes = settled(a=1, b=1)
    fast = {A: (1000, 1.0), B: (1000, 3.0)}
    homes.learn(fast)
    assert len(homes.lists[A]) == 10
    homes.learn(fast)
    assert (len(homes.lists[A]), len(homes.lists[B])) == (15, 5)
    assert everything(homes) == list(range(20))


@pytest.mark.parametrize(
    "measured",
    [
        pytest.param({A: (1000, 1.0), B: (1000, 1.1)}, id="nearly even"),
        pytest.param({A: (1000, 0.01), B: (1000, 0.05)}, id="too short to tell"),
        pytest.param({A: (1000, 1.0)}, id="one lane"),
        pytest.param({}, id="none"),
    ],
)
def test_homes_stay(measured: dict[Lane, tuple[int, float]]) -> None:
    homes = settled(a=1, b=1)
    for _ in range(3):
        homes.learn(measured)
    assert homes.lists == {A: list(range(10)), B: list(range(10, 20))}


def test_an_even_pass_in_between_resets_the_count() -> None:
    homes = settled(a=1, b=1)
    for rates in ({A: (1000, 1.0), B: (1000, 2.0)}, {A: (1000, 1.0), B: (1000, 1.0)}) * 3:
        homes.learn(rates)
    assert len(homes.lists[A]) == 10


def drained(tails: Tails, lanes: list[Lane]) -> list[tuple[Lane, tuple[int, ...]]]:
    taken = []
    while True:
        for lane in lanes:
            piece = tails.take(lane)
            if not piece:
                return taken
            taken.append((lane, piece))


def test_a_tenth_is_kept_back_and_pieces_get_smaller() -> None:
    homes = settled(n=80, a=1, b=1)
    tails = Tails.cut(homes)
    assert [len(head) for head in tails.heads.values()] == [36, 36]
    pieces = drained(tails, [A, B])
    assert [len(piece) for _, piece in pieces] == [2, 2, 1, 1, 1, 1]
    assert all(set(piece) <= set(homes.lists[lane]) for lane, piece in pieces)


def test_an_idle_lane_helps_the_longest_tail() -> None:
    homes = settled(n=80, a=1, b=1)
    taken = drained(Tails.cut(homes), [A])
    assert sorted(i for _, piece in taken for i in piece) == [36, 37, 38, 39, 76, 77, 78, 79]


def test_tails_whose_state_stays_go_to_lanes_of_their_worker() -> None:
    homes = settled(n=80, a=2, b=1)
    tails = Tails.cut(homes, stay=True)
    second = Lane("a", 1)
    # One lane alone keeps nothing back: nobody could help it.
    assert len(tails.heads[B]) == len(homes.lists[B])
    taken = drained(tails.again(), [second])
    both = [
        *homes.lists[A][len(tails.heads[A]) :],
        *homes.lists[second][len(tails.heads[second]) :],
    ]
    assert both
    assert sorted(i for _, piece in taken for i in piece) == sorted(both)
    assert not tails.take(B)
    assert sorted(i for piece in tails.take_rest().values() for i in piece) == sorted(both)
    assert not tails.take(A)


def test_short_lists_and_short_passes_have_no_tail() -> None:
    assert not Tails.cut(settled(n=3, a=1)).take(A)
    assert not Tails.cut(settled(n=80, a=1)).take(A)  # nobody could help this lane
    assert not Tails.cut(settled(n=6, a=1, b=1)).take(A)
    homes = settled(n=80, a=1, b=1)
    homes.learn({A: (4000, 0.02), B: (4000, 0.02)})
    assert not Tails.cut(homes).take(A)


def test_many_lanes_keep_back_only_what_is_worth_handing_out() -> None:
    for n_lanes, kept in ((4, True), (200, False)):
        crew = {f"w{i}": 1 for i in range(n_lanes)}
        homes = Homes([100] * (20 * n_lanes))
        homes.settle(crew)
        homes.learn(dict.fromkeys(homes.lists, (2000, 1.0)))  # a tail takes 0.1 s
        assert bool(Tails.cut(homes).take_rest()) is kept


def test_tails_whose_bytes_cost_more_than_they_balance_are_not_cut() -> None:
    homes = settled(n=64, a=1, b=1)
    homes.learn({A: (3_200, 0.4), B: (3_200, 0.4)})  # a tail of three takes 0.04 s
    assert Tails.cut(homes, n_bytes=1_000).take_rest()
    assert not Tails.cut(homes, n_bytes=3_000_000).take_rest()


@given(
    rows=st.lists(st.integers(1, 1000), max_size=60),
    crews=st.lists(
        st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1), min_size=1
    ),
    slow=st.floats(1.0, 9.0),
)
def test_every_partition_has_one_home_whatever_happens(
    rows: list[int], crews: list[dict[str, int]], slow: float
) -> None:
    homes = Homes(rows)
    for crew in crews:
        homes.settle(crew)
        lanes = list(homes.lists)
        for _ in range(2):
            homes.learn({lane: (100, slow if i else 1.0) for i, lane in enumerate(lanes)})
        assert everything(homes) == list(range(len(rows)))
        assert set(homes.by_worker()) == set(crew)
        tails = Tails.cut(homes)
        pieces = [i for head in tails.heads.values() for i in head]
        pieces += [i for _, piece in drained(tails, lanes) for i in piece]
        assert sorted(pieces) == list(range(len(rows)))
