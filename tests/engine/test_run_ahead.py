"""`Engine.run_ahead`: results in order, while a bounded number of calls runs ahead of them."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.engine import AHEAD
from daskcluster.engine.local import LocalEngine


@pytest.fixture(params=["1 thread", "2 threads", "dask"])
def engine(request):
    if request.param == "dask":
        with DaskEngine(request.getfixturevalue("client")) as found:
            yield found
    else:
        yield LocalEngine(int(request.param[0]))


def test_results_come_in_order(engine):
    calls = [partial(divmod, 100, i) for i in range(40, 0, -1)]
    assert list(engine.run_ahead(calls)) == [call() for call in calls] == engine.run(calls)
    assert list(engine.run_ahead([])) == []


def test_an_error_is_raised_in_the_order_of_the_calls(engine):
    found = engine.run_ahead([partial(divmod, 9, i) for i in (3, 2, 0, 1)])
    assert [next(found), next(found)] == [(3, 0), (4, 1)]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert list(found) == []


def slow_square(number):
    time.sleep(0.01)
    return number**2


def test_it_may_be_left_early(engine):
    found = engine.run_ahead([partial(slow_square, i) for i in range(1000)])
    assert next(found) == 0
    found.close()
    assert list(found) == []
    assert engine.run([partial(slow_square, 3), partial(slow_square, 4)]) == [9, 16]


def test_calls_run_while_a_result_is_looked_at():
    started, more = [], threading.Event()

    def call(number):
        started.append(number)
        if number == 1 + AHEAD * 2:
            more.set()
        return number

    found = LocalEngine(2).run_ahead([partial(call, i) for i in range(100)])
    assert [next(found), next(found)] == [0, 1]
    assert more.wait(60)  # nobody asks for its result meanwhile
    time.sleep(0.05)
    assert sorted(started) == list(range(2 + AHEAD * 2))
    found.close()
    assert len(started) == 2 + AHEAD * 2


def test_one_thread_makes_a_call_only_when_its_result_is_needed():
    started = []
    found = LocalEngine(1).run_ahead([partial(started.append, i) for i in range(5)])
    next(found)
    assert started == [0]
