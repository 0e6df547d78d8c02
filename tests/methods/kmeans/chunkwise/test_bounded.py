"""Passes within bounds, chunk by chunk; that whole fits equal plain Lloyd's is law 1."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.chunk import Chunk
from daskcluster.chunkwise import pruned
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.kernels import tile as tiles
from daskcluster.kernels.dot_product import NO_DOT, best_dot
from daskcluster.methods.kmeans.chunkwise import hamerly
from daskcluster.methods.kmeans.chunkwise.bounded import BoundedParams, BoundState
from daskcluster.methods.kmeans.chunkwise.hamerly import HAMERLY
from daskcluster.methods.kmeans.chunkwise.kind import Drift, Gaps
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
RECENT_BYTES = 8


@pytest.mark.kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_wanted_chunks_give_the_same_as_the_whole_unit(kind: str, name: str) -> None:
    task, states, read = problem(name), [], []
    for reduction, params in wandering(task, kind, RECENT_BYTES):
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
        assert expected.n_touched > 0
        assert same_state(kind, *states)
    assert states[0].recent.nbytes == 0  # never filtered: its rows were at hand
    if not BOUNDS_SPARE:
        assert set(read) == {N_CHUNKS}
        return
    assert 0 < states[1].recent.nbytes <= RECENT_BYTES * task.chunk.n_rows
    assert read[0] == N_CHUNKS
    assert read[-1] < N_CHUNKS


@pytest.mark.parametrize("kind", KINDS)
def test_units_filtered_in_pieces_give_the_same_as_all_together(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = problem("weighted float32")
    states: list[BoundState] = []
    for reduction, params in wandering(task, kind, RECENT_BYTES):
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
        kept, kept_too = (state.recent for state in states)
        assert kept is not None
        assert kept_too is not None
        if kind != "yinyang":  # bounds of its groups depend on which rows stand together
            assert np.array_equal(read, read_too)
            assert np.array_equal(kept.index, kept_too.index)
    assert len(kept.index) or not BOUNDS_SPARE


@pytest.mark.parametrize("kind", KINDS)
def test_units_may_be_seen_whole_now_and_then(kind: str) -> None:
    """Their rows came into memory, or their state was lost; what is kept must not be left out then."""
    task, states = problem("weighted float32"), []
    for number, (reduction, params) in enumerate(wandering(task, kind, RECENT_BYTES)):
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


@pytest.mark.kernels
@pytest.mark.skipif(not BOUNDS_SPARE, reason="without a register tile, no bounds are kept")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_bounds_from_a_search_by_bounds_are_those_from_the_tile(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    if best_dot(tiles.working_tile(400, np.dtype(kind)).name) == NO_DOT:
        pytest.skip("without products of 8-bit integers, all centres are searched")
    monkeypatch.setattr(pruned, "_LEAST_PRODUCTS", 0)
    monkeypatch.setattr(hamerly, "_ROWS", 256)  # more than one call
    rows, centres = separated(kind)
    states, searched = [], []
    scale = Scale(len(rows), np.abs(rows).max(axis=0), 1.0, False, kind is np.float64)
    for least in (128, 10_000):
        monkeypatch.setattr(pruned, "_LEAST_CENTRES", least)
        drift, state, now, before = Drift(centres, ()), None, centres, None
        for step in (1e-1, 1e-2, 1e-3):
            params = BoundedParams(now, before, drift.table(Gaps()), scale)
            reduction, params = HAMERLY.step(params, drift, Gaps())
            prepared = reduction.prepare(params)
            state = reduction.fresh(len(rows), prepared) if state is None else state
            reduction.chunk(Chunk(rows, 0, None), prepared, reduction.zero(prepared), state)
            searched.append(prepared.all_centres.are_pruned(rows, np.arange(len(rows))))
            before, now = now, (now + step * np.roll(now, 1, axis=0)).astype(kind)
            drift.move(now)
        states.append(state)
    assert searched == [True] * 3 + [False] * 3
    assert same_state("hamerly", *states)


def separated(kind: type) -> tuple[np.ndarray, np.ndarray]:
    """Return rows around centres whose variances fall from feature to feature, and the centres."""
    rng = np.random.default_rng(0)
    size = 0.95 ** np.arange(160)
    centres = rng.standard_normal((400, 160)) * size
    rows = centres[rng.integers(0, 400, 3000)] + 0.3 * rng.standard_normal((3000, 160)) * size
    return rows.astype(kind), centres.astype(kind)
