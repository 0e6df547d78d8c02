"""Passes within bounds, chunk by chunk; that whole fits equal plain Lloyd's is law 1."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.methods.kmeans.chunkwise.bounded import BoundState
from tests.methods.kmeans.chunkwise.problems import (
    KINDS,
    N_CHUNKS,
    partly,
    problem,
    same,
    same_state,
    wandering,
    whole,
)
from tests.tiles import BOUNDS_SPARE

PROBLEMS = [
    "float32",
    "float64",
    "weighted float32",
    "weighted float64",
    "uint8",
    "float16",
    "cosine float32",
]


@pytest.mark.kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_wanted_chunks_give_the_same_as_the_whole_unit(kind: str, name: str) -> None:
    task, states, read, touched = problem(name), [], [], 0
    for reduction, params in wandering(task, kind):
        prepared = reduction.prepare(params)
        if not states:
            states = [reduction.fresh(task.chunk.n_rows, prepared) for _ in range(2)]
            for state in states:
                whole(task, reduction, prepared, state)
            continue
        expected = whole(task, reduction, prepared, states[0])
        found, chunks = partly(task, reduction, prepared, states[1])
        read.append(int(chunks.sum()))
        assert same(kind, found, expected)
        touched += expected.n_touched
        assert same_state(kind, *states)
    assert touched > 0
    if not BOUNDS_SPARE:
        assert set(read) == {N_CHUNKS}
        return
    assert read[0] == N_CHUNKS
    assert read[-1] < N_CHUNKS


@pytest.mark.parametrize("kind", KINDS)
def test_units_filtered_in_pieces_give_the_same_as_all_together(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = problem("weighted float32")
    states: list[BoundState] = []
    for reduction, params in wandering(task, kind):
        prepared = reduction.prepare(params)
        if not states:
            states = [reduction.fresh(task.chunk.n_rows, prepared) for _ in range(2)]
            for state in states:
                whole(task, reduction, prepared, state)
            continue
        expected, read = partly(task, reduction, prepared, states[0])
        with monkeypatch.context() as patch:
            patch.setattr("daskcluster.methods.kmeans.chunkwise.bounded._PIECE_ROWS", 100)
            found, read_too = partly(task, reduction, prepared, states[1])
        assert same(kind, found, expected)
        assert same_state(kind, *states)
        if kind != "yinyang":  # bounds of its groups depend on which rows stand together
            assert np.array_equal(read, read_too)


@pytest.mark.parametrize("kind", KINDS)
def test_units_may_be_seen_whole_now_and_then(kind: str) -> None:
    """Their rows came into memory, or their state was lost; what is kept must not be left out then."""
    task, states = problem("weighted float32"), []
    for number, (reduction, params) in enumerate(wandering(task, kind)):
        prepared = reduction.prepare(params)
        if not states:
            states = [reduction.fresh(task.chunk.n_rows, prepared) for _ in range(2)]
        expected = whole(task, reduction, prepared, states[0])
        if number % 3 == 0:
            assert same(kind, whole(task, reduction, prepared, states[1]), expected)
        elif number == 4:
            states[1] = reduction.fresh(task.chunk.n_rows, prepared)
            reduction.rebuild(task.chunk, prepared, states[1])
            found = whole(task, reduction, prepared, states[1])
            assert np.array_equal(found.moved.sums, expected.moved.sums)
            assert found.n_moved == expected.n_moved
            assert found.n_touched == task.chunk.n_rows
            states[0] = BoundState(*(part.copy() for part in states[1].arrays))
        else:
            assert same(kind, partly(task, reduction, prepared, states[1])[0], expected)
        assert same_state(kind, *states)
