"""Passes within bounds, chunk by chunk; that whole fits equal plain Lloyd's is law 1."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.chunk import Chunk
from daskcluster.chunkwise import pruned
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.kernels import tile as tiles
from daskcluster.kernels.dot_product import NO_DOT, best_dot
from daskcluster.methods.kmeans.chunkwise import hamerly
from daskcluster.methods.kmeans.chunkwise.bounded import BoundedParams, BoundState
from daskcluster.methods.kmeans.chunkwise.bounded_pass import BoundedPass
from daskcluster.methods.kmeans.chunkwise.hamerly import HAMERLY
from daskcluster.methods.kmeans.chunkwise.recent import RecentRows
from daskcluster.methods.kmeans.drift import Drift, Gaps
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
def test_wanted_chunks_give_what_the_whole_unit_gives(kind: str, name: str) -> None:
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
def test_rows_looked_at_in_pieces_give_what_all_together_give(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = problem("weighted float32")
    states: list[BoundState] = []
    for reduction, params in wandering(task, kind, 0):
        prepared = reduction.prepare(params)
        states = states or [reduction.fresh(task.chunk.n_rows, prepared) for _ in range(2)]
        expected = whole(task, reduction, prepared, states[0])
        with monkeypatch.context() as patch:
            patch.setattr("daskcluster.methods.kmeans.chunkwise.bounded_pass._PIECE_ROWS", 100)
            found = whole(task, reduction, prepared, states[1])
        assert same(kind, found, expected)
        assert same_state(kind, *states)


@pytest.mark.parametrize("kind", KINDS)
def test_units_filtered_in_pieces_give_what_all_together_give(
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
            patch.setattr("daskcluster.methods.kmeans.chunkwise.bounded_pass._PIECE_ROWS", 100)
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


def test_no_scratch_of_a_unit_is_eight_bytes_a_row() -> None:
    n_rows, most = 1 << 19, []

    def failing(prepared: object, state: BoundState, margin: object) -> np.ndarray:
        most.append(state.n_rows)
        return np.flatnonzero(state.labels < 0)

    labels = np.zeros(n_rows, np.int32)
    labels[[3, n_rows // 2, n_rows - 1]] = -1
    state = BoundState(labels, np.zeros(n_rows, np.float32), np.zeros(n_rows, np.float32))
    prepared = SimpleNamespace(margin=None)
    mask = BoundedPass(failing, failing).filter_rows(prepared, None, state)
    assert np.flatnonzero(mask).tolist() == [3, n_rows // 2, n_rows - 1]
    assert max(most) <= n_rows // 8
    assert sum(most) == n_rows


@pytest.mark.parametrize("kind", KINDS)
def test_kept_rows_save_reading(kind: str) -> None:
    task = problem("float32")
    read = {}
    for recent_bytes in (0, RECENT_BYTES):
        state, read[recent_bytes] = None, 0
        for reduction, params in wandering(task, kind, recent_bytes):
            prepared = reduction.prepare(params)
            if state is None:
                state = reduction.fresh(task.chunk.n_rows, prepared)
                whole(task, reduction, prepared, state)
            else:
                read[recent_bytes] += int(partly(task, reduction, prepared, state)[1].sum())
    assert read[RECENT_BYTES] < 0.85 * read[0] if BOUNDS_SPARE else read[RECENT_BYTES] == read[0]


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


@pytest.mark.parametrize("kind", KINDS)
def test_labels_kept_in_this_process_follow_rows_that_are_not_read(kind: str) -> None:
    task, state = problem("float32"), None
    labels = np.full(task.chunk.stop, -7, np.int32)
    for reduction, params in wandering(task, kind, RECENT_BYTES):
        if kind == "hamerly":
            params = replace(params, labels=labels)
        else:
            params = replace(params, bounded=replace(params.bounded, labels=labels))
        prepared = reduction.prepare(params)
        if state is None:
            state = reduction.fresh(task.chunk.n_rows, prepared)
            whole(task, reduction, prepared, state)
        else:
            partly(task, reduction, prepared, state)
        assert np.array_equal(labels[task.chunk.start :], state.labels)
        assert (labels[: task.chunk.start] == -7).all()


@pytest.mark.parametrize("kind", KINDS)
def test_kept_are_the_rows_whose_bounds_have_the_least_left(kind: str) -> None:
    task, state = problem("float32", n=6000), None
    for reduction, params in wandering(task, kind, RECENT_BYTES):
        prepared = reduction.prepare(params)
        if state is None:
            state = reduction.fresh(task.chunk.n_rows, prepared)
        whole(task, reduction, prepared, state)
    drift = prepared.params.drift
    own = state.upper + drift[0][state.labels]
    if kind == "hamerly":
        others = state.lower - drift[1][state.labels]
    else:
        relaxed = prepared.drift if kind == "yinyang" else drift[0]
        others = (state.lower - relaxed).min(axis=1)
    left = np.maximum(others, drift[2][state.labels]) - own
    pass_: BoundedPass = reduction.chunk.__self__
    for most in (30, 600, 3000):
        chosen = pass_._soonest(prepared, state, most)
        # Half of the rows stand for all of them, which errs by about a root.
        assert 0.8 * most - np.sqrt(most) < len(chosen) <= most
        assert left[chosen].max() <= np.sort(left)[: most + most // 8 + 20].max()


@pytest.mark.parametrize("kind", KINDS)
def test_reductions_travel(kind: str) -> None:
    reduction, _ = next(wandering(problem("float32"), kind, 5))
    again = pickle.loads(pickle.dumps(reduction))
    assert again.chunk.__self__ == reduction.chunk.__self__
    assert again.row_bytes - next(wandering(problem("float32"), kind, 0))[0].row_bytes == 5


def test_rows_of_a_state_are_views() -> None:
    arrays = np.zeros(9, np.int32), np.zeros(9, np.float32), np.zeros((9, 2), np.float32)
    state = BoundState(*arrays, RecentRows(9, 8))
    part = state.rows(2, 8).rows(1, 3)
    assert (part.first, part.n_rows, part.recent) == (3, 2, state.recent)
    for array in part.arrays:
        array[:] = 1
    assert [array.nonzero()[0].tolist() for array in arrays] == [[3, 4], [3, 4], [3, 3, 4, 4]]
    assert state.nbytes == 9 * (4 + 4 + 8)


@pytest.mark.parametrize("algorithm", KINDS)
def test_cpus_without_a_register_tile_get_the_same(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).lognormal(size=(900, 5)).astype(np.float32)
    fits = []
    for name in (tiles.tile_name(), "portable"):
        monkeypatch.setattr(tiles, "tile_name", lambda name=name: name)
        fits.append(dc.KMeans(40, init=X[:40], algorithm=algorithm, tol=0).fit(X))
    assert np.array_equal(fits[0].labels_, fits[1].labels_)
    assert fits[0].cluster_centers_.tobytes() == fits[1].cluster_centers_.tobytes()
    assert fits[0].n_iter_ == fits[1].n_iter_


@pytest.mark.parametrize("kind", KINDS)
def test_cpus_without_a_register_tile_read_everything(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, states = problem("float32"), []
    monkeypatch.setattr(tiles, "tile_name", lambda: "portable")
    for reduction, params in wandering(task, kind, RECENT_BYTES):
        prepared = reduction.prepare(params)
        if not states:
            states = [reduction.fresh(task.chunk.n_rows, prepared) for _ in range(2)]
            for state in states:
                whole(task, reduction, prepared, state)
            continue
        expected = whole(task, reduction, prepared, states[0])
        found, chunks = partly(task, reduction, prepared, states[1])
        assert same(kind, found, expected)
        assert chunks.all()


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
