"""Rows that are kept because their bounds will fail soon: the copies, and what engines need not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client
from numpy.testing import assert_array_equal

from daskcluster import open_dataset
from daskcluster.chunk import Chunk
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.engine import Placement
from daskcluster.engine.local import LocalEngine, LocalPlacement
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.methods.kmeans.algorithm import CentresState, lloyd
from daskcluster.methods.kmeans.assignment import BoundedAssignment, FullAssignment
from daskcluster.methods.kmeans.chunkwise.bounded import NearBoundaryCache
from daskcluster.methods.kmeans.chunkwise.grouped import YINYANG
from daskcluster.methods.kmeans.chunkwise.hamerly import HAMERLY
from daskcluster.methods.kmeans.chunkwise.kind import BoundKind
from tests.tiles import BOUNDS_SPARE

# -- the copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_copies_are_the_rows_and_stay_within_the_budget(dtype: str, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    n, d, row_bytes = 1000, 3, 4
    weights = rng.random(n) if weighted else None
    unit = Chunk(rng.integers(0, 200, (n, d)).astype(dtype), 7000, weights)
    recent, expected = NearBoundaryCache(n, row_bytes), set()
    assert (recent.nbytes, len(recent.index)) == (0, 0)
    for _ in range(60):
        first, last = np.sort(rng.choice(n + 1, 2, replace=False))
        chunk = unit.slice(first, last)
        room = recent.room(chunk, first)
        which = rng.choice(len(chunk.rows), rng.integers(0, room + 1), replace=False)
        recent.replace(chunk, first, which)
        expected = {i for i in expected if not first <= i < last} | set((which + first).tolist())
        assert set(recent.index.tolist()) == expected
        assert len(recent.index) == len(expected)
        assert recent.nbytes <= n * row_bytes
        kept = recent.rows()
        assert kept.start == unit.start
        assert kept.rows.dtype == dtype
        assert_array_equal(kept.rows, unit.rows[recent.index])
        if weights is None:
            assert kept.weights is None
        else:
            assert_array_equal(kept.weights, weights[recent.index])
    assert expected


def test_a_budget_below_one_row_keeps_none() -> None:
    chunk = Chunk(np.zeros((10, 100)))
    assert NearBoundaryCache(10, 8).room(chunk, 0) == 0
    assert NearBoundaryCache(10, 10_000).room(chunk, 0) == 10


# -- on engines --------------------------------------------------------------------------------------

N, D, K = 80_000, 16, 20
RECENT_BYTES = 8


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return rows in random order, in shards with inner chunks that can be read one by one."""
    rng = np.random.default_rng(4)
    centres = 3 * rng.standard_normal((30, D))
    rows = centres[rng.integers(0, 30, N)] + rng.standard_normal((N, D))
    path = str(tmp_path_factory.mktemp("recent") / "rows.zarr")
    array = zarr.create_array(path, shape=(N, D), chunks=(2048, D), shards=(32_768, D), dtype="f4")
    array[:] = rows
    weights = zarr.create_array(path + ".weights", shape=(N,), chunks=(4096,), dtype="f8")
    weights[:] = rng.lognormal(size=N)
    return path


@pytest.fixture(params=["local", "dask"])
def place(request: pytest.FixtureRequest) -> Callable[..., Placement]:
    """Return a way to place data of which no row stays in memory by itself."""
    if request.param == "local":
        return LocalEngine(2, memory_limit=2 * BASELINE_BYTES).place
    client: Client = request.getfixturevalue("client")

    def on_workers(dataset: Any) -> Placement:
        placed = DaskEngine(client).place(dataset)
        placed._cache._rows.bytes_per_row = 0
        return placed

    return on_workers


def fitted(
    placed: Placement,
    kind: BoundKind | None,
    recent_bytes: int = 0,
    before: Callable[[int], None] = lambda number: None,
) -> CentresState:
    """Run k-means to convergence; `before` hears the number of every pass within bounds."""
    rows = ScaledPlacement(placed)
    start = placed.take(np.arange(K))
    if kind is None:
        return lloyd(rows, CentresState(start), tol=0, assign=FullAssignment(rows))
    numbers: Iterator[int] = iter(range(10**6))

    def run(reduction: StatefulReduction, params: Any) -> Any:
        before(next(numbers))
        if kind is HAMERLY:
            params = replace(params, recent_bytes=recent_bytes)
        else:
            params = replace(params, bounded=replace(params.bounded, recent_bytes=recent_bytes))
        spent = reduction.row_bytes + recent_bytes
        return placed.map_state(replace(reduction, row_bytes=spent), params)

    return lloyd(rows, CentresState(start), tol=0, assign=BoundedAssignment(rows, kind, run=run))


def assert_same(one: CentresState, other: CentresState) -> None:
    assert one.centres.tobytes() == other.centres.tobytes()
    assert len(one.history) == len(other.history)
    assert [h["inertia"] for h in one.history] == [h["inertia"] for h in other.history]


@pytest.fixture(scope="module")
def plain(url: str) -> dict[bool, CentresState]:
    """Return plain Lloyd's result, without weights and with them."""
    results = {}
    for weighted in (False, True):
        dataset = open_dataset(url, weights=f"{url}.weights" if weighted else None)
        with LocalEngine(2).place(dataset) as placed:
            results[weighted] = fitted(placed, None)
    return results


@pytest.mark.parametrize("kind", [HAMERLY, YINYANG])
def test_lloyd_to_the_bit_and_less_is_read(
    place: Callable[..., Placement], url: str, plain: dict[bool, CentresState], kind: BoundKind
) -> None:
    read = {}
    for recent_bytes in (0, RECENT_BYTES):
        with place(open_dataset(url)) as placed:
            result = fitted(placed, kind, recent_bytes)
            read[recent_bytes] = placed.traffic.bytes_read
        assert_same(result, plain[False])
        touched = [record["n_touched"] for record in result.history]
        assert 0 < min(touched) < 0.05 * N if BOUNDS_SPARE else set(touched) == {N}
    full = len(plain[False].history) * N * D * 4
    assert read[RECENT_BYTES] < 0.5 * read[0] if BOUNDS_SPARE else read[RECENT_BYTES] == read[0]
    assert read[0] > 0.95 * full, "almost every chunk holds a failing row"


def test_weights_are_kept_with_the_rows(
    place: Callable[..., Placement], url: str, plain: dict[bool, CentresState]
) -> None:
    with place(open_dataset(url, weights=url + ".weights")) as placed:
        assert_same(fitted(placed, HAMERLY, RECENT_BYTES), plain[True])
        full = len(plain[True].history) * N * (D * 4 + 8)
        assert (
            placed.traffic.bytes_read < 0.9 * full
            if BOUNDS_SPARE
            else placed.traffic.bytes_read >= full
        )


def test_lost_state_is_read_again(
    place: Callable[..., Placement], url: str, plain: dict[bool, CentresState]
) -> None:
    late = len(plain[False].history) - 4
    with place(open_dataset(url)) as placed:

        def lose(number: int) -> None:
            if number == late:
                _forget(placed)

        result = fitted(placed, HAMERLY, RECENT_BYTES, lose)
    assert_same(result, plain[False])
    # The first pass is Lloyd's own: the measuring one.
    if BOUNDS_SPARE:
        assert result.history[late]["n_touched"] < 0.2 * N
    assert result.history[late + 1]["n_touched"] == N


def _forget(placed: Placement) -> None:
    """Lose the state of all units, as when workers die."""
    if isinstance(placed, LocalPlacement):
        for slot in placed._slots:
            slot.drop_state()
        return
    placed._cache._state.drop(range(len(placed.work_items)))
    placed._cache._is_arranged = False
