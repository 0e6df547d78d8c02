"""The smallest keys of every cluster: against sorting all rows, in any pieces."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import RowParams, nearest_function
from daskcluster.chunkwise.labelled import CHOOSE, Choice, ChoiceParams, Ranking, SmallestKeys
from daskcluster.randomness import Key

K = 4


def oracle(labels: np.ndarray, keys: np.ndarray, most: np.ndarray) -> list[list[int]]:
    """Return the rows of each cluster with the smallest keys, equal keys by row."""
    found = []
    for cluster in range(len(most)):
        own = np.flatnonzero(labels == cluster)
        order = sorted(own.tolist(), key=lambda row: (keys[row], row))
        found.append(sorted(order[: most[cluster]]))
    return found


def rows_of(found: SmallestKeys) -> list[list[int]]:
    found.settle()
    return [sorted(found.rows[found.labels == j].tolist()) for j in range(len(found.most))]


def empty(most: np.ndarray) -> SmallestKeys:
    return SmallestKeys(most, np.where(most > 0, np.inf, -np.inf))


@given(
    most=st.lists(st.integers(0, 9), min_size=K, max_size=K),
    values=st.integers(1, 30),  # few different keys: many are equal
    cuts=st.tuples(st.integers(0, 200), st.integers(0, 200)),
    seed=st.integers(0, 99),
)
def test_any_pieces_in_any_order(
    most: list[int], values: int, cuts: tuple[int, int], seed: int
) -> None:
    rng, limits = np.random.default_rng(seed), np.array(most)
    labels = rng.integers(0, K, 200).astype(np.int32)
    keys = rng.integers(0, values, 200).astype(np.float64)
    expected = oracle(labels, keys, limits)
    first, last = sorted(cuts)
    parts = []
    for start, stop in ((last, 200), (0, first), (first, last)):
        part = empty(limits)
        for a in range(start, stop, 7):
            rows = np.arange(a, min(a + 7, stop))
            part.add(labels[rows], keys[rows], rows)
            if a % 2:
                part.settle()
        parts.append(part)
    one = (
        copy.deepcopy(parts[0])
        .combine(copy.deepcopy(parts[1]))
        .combine(pickle.loads(pickle.dumps(parts[2])))
    )
    other = parts[2].combine(parts[1].combine(parts[0])).combine(empty(limits))
    assert rows_of(one) == rows_of(other) == expected


def test_many_rows_are_settled_on_the_way() -> None:
    rng, most = np.random.default_rng(0), np.array([300, 20_000, 0, 5])
    labels, keys = rng.integers(0, K, 100_000).astype(np.int32), rng.random(100_000)
    found = empty(most)
    for start in range(0, 100_000, 5_000):
        rows = np.arange(start, start + 5_000)
        found.add(labels[rows], keys[rows], rows)
        assert sum(len(part[0]) for part in found._pending) <= 40_000
    assert rows_of(found) == oracle(labels, keys, most)


def chosen(chunks: list[Chunk], ranking: Ranking, most: np.ndarray, centres: np.ndarray) -> Choice:
    labels = nearest_function(RowParams(centres))
    prepared = CHOOSE.prepare(ChoiceParams(labels, ranking, most))
    found: Choice = CHOOSE.zero(prepared)
    for chunk in chunks:
        CHOOSE.chunk(chunk, prepared, found)
    return found


@pytest.mark.parametrize("how", ["nearest", "farthest", "random", "score"])
@pytest.mark.parametrize("weighted", [True, False])
def test_every_ranking(how: str, weighted: bool) -> None:
    rng = np.random.default_rng(1)
    X, centres = rng.normal(size=(500, 3)), rng.normal(size=(K, 3))
    weights = rng.integers(0, 3, 500).astype(float) if weighted or how == "score" else None
    squares = ((X[:, None] - centres) ** 2).sum(axis=2)
    labels = squares.argmin(axis=1)
    key = Key(0, "test")
    keys = {
        "nearest": squares.min(axis=1),
        "farthest": -squares.min(axis=1),
        "random": key.uniforms(0, 500),
        "score": np.zeros(500) if weights is None else -weights,
    }[how]
    counts_all = weights is None or how == "score"
    drawn_from = labels if counts_all else np.where(weights > 0, labels, -1)
    most = np.array([3, 0, 50, 1])
    ranking = Ranking(how, key, centres if how in ("nearest", "farthest") else None)
    whole = Chunk(X, 0, weights)
    found = chosen([whole.slice(a, a + 90) for a in range(0, 500, 90)], ranking, most, centres)
    assert rows_of(found.chosen) == oracle(drawn_from, keys, most)
    assert found.sizes.tolist() == np.bincount(drawn_from[drawn_from >= 0], minlength=K).tolist()
    counted = chosen([whole], ranking, np.zeros(K, int), centres)
    assert counted.sizes.tolist() == found.sizes.tolist()
    assert len(counted.chosen.rows) == 0
