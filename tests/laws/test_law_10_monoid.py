"""Law 10: statistics obey the monoid laws exactly."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import ASSIGN, FARTHEST, SCORE, AssignParams
from daskcluster.chunkwise.data_statistics import DATA_STATISTICS, DataStatisticsParams
from daskcluster.chunkwise.exact_sum import Scale
from tests.laws.data import CASES, case


def parameters(reduction, X, w):
    most = None if w is None else float(w.max())
    scale = Scale.probe(X, len(X), most).with_max(np.abs(X).max(axis=0).astype(np.float64))
    if reduction is DATA_STATISTICS:
        return DataStatisticsParams(X[0], scale)
    return AssignParams(np.ascontiguousarray(X[::200]), scale, most=5)


def flat(statistics):
    """Every number in a statistic, as bytes."""
    if hasattr(statistics, "__dict__"):
        return b"".join(flat(value) for _, value in sorted(vars(statistics).items()))
    return b"" if statistics is None else np.asarray(statistics).tobytes()


def of(reduction, chunk, params):
    prepared = reduction.prepare(params)
    statistics = reduction.zero(prepared)
    if chunk is not None and chunk.n_rows:
        reduction.chunk(chunk, prepared, statistics)
    return statistics


@pytest.mark.parametrize(
    "reduction", [ASSIGN, SCORE, FARTHEST, DATA_STATISTICS], ids=lambda r: r.name
)
@pytest.mark.parametrize("name", CASES)
@given(cuts=st.tuples(st.integers(0, 900), st.integers(0, 900)))
def test_monoid(reduction, name, cuts):
    X, w = case(name, n=900)
    params = parameters(reduction, X, w)
    first, second = sorted(cuts)
    whole = Chunk(X, 0, w)
    parts = [whole.slice(0, first), whole.slice(first, second), whole.slice(second, 900)]
    a, b, c = (of(reduction, part, params) for part in parts)
    expected = flat(of(reduction, whole, params))

    def add(x, y):
        return reduction.combine(copy.deepcopy(x), copy.deepcopy(y))

    assert flat(add(add(a, b), c)) == expected
    assert flat(add(a, add(b, c))) == expected
    assert flat(add(c, add(b, a))) == expected
    assert flat(add(of(reduction, None, params), a)) == flat(a)


@pytest.mark.parametrize("name", CASES)
def test_subtraction_undoes_addition(name):
    X, w = case(name, n=900)
    params = parameters(ASSIGN, X, w)
    whole = Chunk(X, 0, w)
    a = of(ASSIGN, whole.slice(0, 500), params)
    b = of(ASSIGN, whole.slice(500, 900), params)
    both = copy.deepcopy(a).combine(b)
    for name, total in vars(both).items():
        if total is not None:
            total -= getattr(b, name)
    assert flat(both) == flat(a)
