"""Pair sums of several threads: merging, pickling, capacity."""

from __future__ import annotations

import pickle

from daskcluster.methods.mixture.chunkwise.statistics import PairSums
from daskcluster.methods.mixture.kernels.neighbours import add_pair


def sums_of(*pairs):
    made = PairSums.with_room(len(pairs))
    for key, value, count in pairs:
        add_pair(made.table, made.used, key, value, count)
    return made


def added_up(pairs):
    found = {}
    for key, value, count in pairs.listed().tolist():
        before = found.get(key, (0, 0))
        found[key] = before[0] + value, before[1] + count
    return found


def test_pair_sums_of_threads_merge_when_pickled():
    def parts():
        return (
            sums_of((3, 10, 1), (8, 2, 2)),
            sums_of((8, 5, 1)),
            sums_of((1, -4, 3), (3, 1, 1)),
            sums_of(),
        )

    whole = {1: (-4, 3), 3: (11, 2), 8: (7, 3)}
    one, two, three, none = parts()
    assert added_up(one.combine(two.combine(three)).combine(none)) == whole
    assert one.most_used == 2
    sent = pickle.loads(pickle.dumps(one))
    assert len(sent.listed()) == len(whole)  # merged on the way
    assert added_up(sent) == whole
    one, two, three, none = parts()
    assert (
        added_up(none.combine(three).combine(pickle.loads(pickle.dumps(two.combine(one))))) == whole
    )
    assert added_up(pickle.loads(pickle.dumps(sums_of()))) == {}
