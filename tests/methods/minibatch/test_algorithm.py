"""The loop of mini-batches: when it ends, what it reassigns, what it records."""

from __future__ import annotations

import time

import numpy as np

import daskcluster as dc
from daskcluster import events
from daskcluster.estimators.loop import Limits
from daskcluster.methods.minibatch.algorithm import (
    Improvement,
    MiniBatchState,
    Reassignment,
    draw_positions,
    minibatch,
)
from daskcluster.methods.minibatch.batches import Batches
from daskcluster.methods.minibatch.chunkwise import Batch, MiniBatchStepper, MovingCentres
from daskcluster.randomness import Key
from daskcluster.sparse_rows import SparseRows

X = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)


def test_smoothing_leaves_out_the_first_batch_and_waits_with_patience():
    improvement = Improvement(decay=0.25, patience=3)
    costs = [100.0, 8.0, 4.0, 8.0, 8.0, 4.0, 9.0, 9.0, 9.0]
    ends, smoothed = [], []
    for cost in costs:
        ends.append(improvement.ends(cost))
        smoothed.append(improvement.smoothed)
    assert smoothed[:4] == [None, 8.0, 7.0, 7.25]
    # Least at 6.578 (step 6) after two steps of waiting; three worse ones follow.
    assert ends == [False] * 8 + [True]
    assert not any(Improvement(0.5, None).ends(1.0) for _ in range(50))


def state(seen):
    centres = MovingCentres.start(np.full((len(seen), 3), 50.0, np.float32))
    centres.seen[:] = seen
    return centres


def reassigned(seen, ratio=0.1, batch=None, *, step=1, rows_so_far=0):
    centres = state(seen)
    rule = Reassignment(ratio, seed=0, _n_rows=rows_so_far)
    count = rule(step, batch or Batch(X, np.arange(40)), centres, 0.0)
    return centres, count


def test_centres_that_see_too_few_rows_become_rows_of_the_batch():
    centres, count = reassigned([100, 9, 10, 0, 50])
    assert count == 2
    assert centres.seen.tolist() == [100, 10, 10, 10, 50]  # the least of the others
    drawn = [np.flatnonzero((X[:40] == centre).all(axis=1)) for centre in centres.centres[[1, 3]]]
    assert [len(found) for found in drawn] == [1, 1]
    assert drawn[0] != drawn[1]
    assert np.array_equal(centres.exact, centres.centres.astype(np.float64))
    assert (centres.centres[[0, 2, 4]] == 50).all()


def test_reassignment_waits_for_ten_rows_a_centre_unless_one_saw_nothing():
    few = Batch(X, np.arange(10))
    assert reassigned([100, 5, 50], batch=few)[1] == 0
    assert reassigned([100, 5, 50], batch=few, rows_so_far=20)[1] == 1
    assert reassigned([100, 0, 50], batch=few)[1] == 1
    assert reassigned([100, 0, 50], ratio=0.0, batch=few)[1] == 0


def test_at_most_half_of_a_batch_become_centres_those_that_saw_least():
    centres, count = reassigned([100, 3, 0, 1, 2, 4], batch=Batch(X, np.arange(5)))
    assert count == 2
    assert centres.seen.tolist() == [100, 3, 2, 2, 2, 4]


def test_reassignment_draws_by_weight_and_never_rows_without():
    weights = np.zeros(100)
    weights[[3, 8]] = 1.0
    centres, count = reassigned([100, 0, 0, 0], batch=Batch(X, np.arange(40), weights))
    assert count == 2  # no third row has a weight
    assert {tuple(c) for c in centres.centres[[1, 2]]} == {tuple(X[3]), tuple(X[8])}
    picked, weights = np.zeros(2), np.array([1.0, 3.0])
    for seed in range(1000):
        picked[draw_positions(Batch(X[:2], np.arange(2), weights), 1, Key(seed, "x"))] += 1
    assert abs(picked[1] - 750) < 60  # 4.4 standard deviations


def test_reassignment_depends_on_the_step_not_on_the_kind_of_rows():
    same = [
        reassigned([9, 0], batch=Batch(rows, np.arange(40)))[0].centres
        for rows in (X, np.asfortranarray(X), SparseRows.of(X))
    ]
    assert np.array_equal(same[0], same[1])
    assert np.array_equal(same[0], same[2])
    assert not np.array_equal(same[0], reassigned([9, 0], step=2)[0].centres)
    batch = Batch(X, np.arange(40), normalize=True)
    unit = reassigned([9, 0], batch=batch)[0].centres[1]
    np.testing.assert_allclose(np.linalg.norm(unit), 1.0, rtol=1e-6)


def test_without_a_ratio_centres_move_only_where_that_lowers_the_cost():
    rng = np.random.default_rng(0)
    known = np.array([[0.0, 0.0], [1.0, 0.0], [50.0, 0.0]])
    moving = MovingCentres.start(known)
    moving.seen[:], moving.costs[:] = [3000, 3000, 5], [3000, 3000, 5]
    rule = Reassignment(None, seed=0)
    usual = known[rng.integers(0, 2, 256)] + rng.normal(size=(256, 2))
    for step in range(1, 40):  # a centre with five rows is worth more than a second one in a cloud
        rows = usual + 0.1 * rng.normal(size=usual.shape)
        assert rule(step, Batch(rows, np.arange(256)), moving, 512.0) == 0
    late = np.concatenate([usual[:192], rng.normal([0.0, 400.0], size=(64, 2))])
    moving.costs[0] += 64 * 400.0**2
    assert rule(40, Batch(late, np.arange(256)), moving, 64 * 400.0**2) > 0
    assert np.abs(moving.centres - [0.0, 400.0]).sum(axis=1).min() < 2.0
    assert np.abs(moving.centres - [50.0, 0.0]).sum(axis=1).min() == 0.0


def stepped(steps, callbacks=(), validate=None, begin=None):
    """The state after so many steps of 30 rows of 100."""
    rules = Reassignment(0.0, 0), Improvement(0.5)
    begin = begin or MiniBatchState(0, X[:2].astype(np.float64), np.zeros(2), 0.0, *rules)
    stepper = MiniBatchStepper(begin.centres(np.float32), "count", 1)
    with Batches(dc.open_dataset(X), 30, 0, skipped=begin.step) as batches:
        return minibatch(batches, stepper, begin, Limits(steps, None, callbacks), validate=validate)


def test_validation_is_recorded_and_its_time_is_not():
    def validate(centres):
        time.sleep(0.1)
        return 7.0

    end = stepped(3, validate=validate)
    assert [record["validation"] for record in end.history] == [7.0] * 3
    assert sum(record["seconds"] for record in end.history) < 0.1


def test_a_forced_record_is_replaced_when_the_loop_continues():
    whole, end = stepped(40), stepped(23)
    resumed = stepped(40, begin=end)
    recorded = [[each["iteration"] for each in one.history] for one in (whole, end, resumed)]
    assert 23 in recorded[1]
    assert recorded[0] == recorded[2]
    assert 23 not in recorded[2]
    assert np.array_equal(whole.exact, resumed.exact)


def test_callbacks_get_passes_and_may_stop():
    heard = []

    def hear(event):
        heard.append(event)
        if isinstance(event, events.StepsEnded) and event.iteration == 7:
            raise events.StopFit

    assert stepped(9, [hear]).reason is events.StopReason.CALLBACK
    kinds = [type(event).__name__ for event in heard if "Pass" in type(event).__name__]
    # 210 rows of passes of 100: two whole ones, and one that is cut short.
    assert kinds.count("PassStarted") == kinds.count("PassEnded") == 2 + 1
    rows = sum(event.rows for event in heard if isinstance(event, events.PassProgress))
    assert rows == 210
