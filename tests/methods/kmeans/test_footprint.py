"""What is projected before a fit covers the rows that its seeding and its batches hold."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import zarr
from scipy import sparse

from daskcluster import chunk, open_dataset
from daskcluster.data.dataset import in_partitions, partition_edges
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import BASELINE_BYTES, Footprint, project
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import MemoryLimitError
from daskcluster.methods.catalogue import plan_of
from daskcluster.methods.kmeans.fit import fit_footprint, seeding_bytes
from daskcluster.methods.minibatch.batches import ROOM_BYTES, Batches, held_bytes
from daskcluster.methods.minibatch.sample import batch_room
from daskcluster.randomness import Key
from daskcluster.seeding import methods
from daskcluster.sparse_rows import join_rows

K, M = 30, 10
MIB = 1 << 20


def rows(kind):
    X = np.random.default_rng(0).normal(size=(5000, 12)).astype(np.float32)
    return sparse.csr_array(np.where(np.abs(X) > 1, X, 0)) if kind == "sparse" else X


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["k-means||", "afk-mc2"])
def test_drawn_rows_are_counted(method, kind, monkeypatch):
    dataset, held = open_dataset(rows(kind)), []

    def watched(parts):
        joined = join_rows(parts)
        held.append(joined.nbytes)
        return joined

    joins = chunk if method == "afk-mc2" else methods  # where the drawn rows are joined
    monkeypatch.setattr(joins, "join_rows", watched)
    with LocalEngine(2).place(dataset) as placement:
        placed = ScaledPlacement(placement)
        if method == "k-means||":
            methods.kmeans_parallel(placed, K, 0, reduce_candidates=lambda c, w, k: c[:k])
        else:
            methods.afk_mc2(placed, K, 0, chain_length=M)
    projected = seeding_bytes(dataset, K, method, M)
    assert max(held) <= projected <= 8 * max(held)
    assert fit_footprint(dataset, K, method, M).process_bytes == projected


def test_every_process_holds_them():
    dataset, needed = open_dataset(rows("dense")), Footprint(100, 0, 1000)
    plans = [
        project(dataset, needed, limit=10**12, n_threads=4, n_processes=n).working for n in (1, 3)
    ]
    assert plans == [1400, 3400]


def test_rows_ahead_are_there_between_passes():
    def working(footprint, limit=10**12, **counts):
        dataset = open_dataset(rows("dense"))
        return project(dataset, footprint, limit=limit, n_threads=4, **counts).working

    assert working(Footprint(100, ahead_bytes=300)) == 400
    assert working(Footprint(100, ahead_bytes=3000)) == 3000
    assert working(Footprint(100, ahead_bytes=300, home_bytes=7)) == 407
    elsewhere = Footprint(100, ahead_bytes=3000, home_bytes=7).of_workers()
    assert working(elsewhere, n_processes=2) == 400


def test_fewer_rows_are_read_ahead_where_the_limit_leaves_less(tmp_path):
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=rows("dense"), chunks=(1000, 12))
    dataset = open_dataset(url)
    pass_alone = project(dataset, Footprint(), limit=10**12, n_threads=1).working
    limit = BASELINE_BYTES + pass_alone + MIB
    found = project(dataset, Footprint(ahead_bytes=10**10), limit=limit, n_threads=1)
    assert found.working == pass_alone + MIB
    with pytest.raises(
        MemoryLimitError, match=r"2\.0 MiB of this are rows that this process holds"
    ):
        project(dataset, Footprint(home_bytes=2 * MIB), limit=limit, n_threads=1)


def test_resident_partitions_leave_room_for_the_rest(tmp_path):
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=np.ones((400_000, 25), np.float32), chunks=(10_000, 25))
    dataset, limit = open_dataset(url), 2 * (BASELINE_BYTES + 20 * MIB)
    roomy = project(dataset, Footprint(), limit=limit, n_threads=1)
    assert 18 * MIB < roomy.resident <= 20 * MIB
    found = project(dataset, Footprint(home_bytes=limit // 2 - 24 * MIB), limit=limit, n_threads=1)
    assert 0 < found.resident < roomy.resident
    assert found.projected <= limit


def _peak_of_batches(dataset, room_bytes):
    tracemalloc.start()
    try:
        with Batches(dataset, 1000, 0, room_bytes=room_bytes) as batches:
            tracemalloc.reset_peak()  # it counts memory that was asked for, filled or not
            batches.sample(3000, Key(0, "sample"))
            for _ in range(300):
                batches.next()
        return tracemalloc.get_traced_memory()[1], batches.is_pooled
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("room", [1.0, 0.5], ids=["all rows", "pools"])
def test_rows_in_batches_are_projected(tmp_path, room, weighted):
    n, d = 200_000, 8
    url = str(tmp_path / "rows.zarr")
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    zarr.create_array(url, data=X, chunks=(1000, d))
    dataset = open_dataset(url, weights=np.ones(n) if weighted else None)
    room_bytes = int(room * X.nbytes)
    _peak_of_batches(dataset, room_bytes)  # compiles and imports what batches need
    peak, is_pooled = _peak_of_batches(dataset, room_bytes)
    held = held_bytes(dataset, room_bytes)
    assert is_pooled == (room < 1)
    assert peak - MIB <= held <= 3 * peak


def test_room_is_left_for_the_orders_of_narrow_rows(tmp_path):
    found = {}
    for d in (1, 100):
        url = str(tmp_path / f"{d}.zarr")
        zarr.create_array(url, data=np.ones((4000, d), np.float32), chunks=(1000, d))
        engine = LocalEngine(1, memory_limit=BASELINE_BYTES + 100 * MIB)
        found[d] = batch_room(engine, open_dataset(url), (), ROOM_BYTES) / MIB
    assert found == {1: pytest.approx(20), 100: pytest.approx(100 * 400 / 416)}


def test_rows_that_steps_hold_during_passes_are_projected(tmp_path):
    url = str(tmp_path / "rows.zarr")
    X = np.ones((800_000, 25), np.float32)  # 76 MiB
    zarr.create_array(url, data=X, chunks=(10_000, 25))
    dataset, engine, plans = open_dataset(url), LocalEngine(2, memory_limit=10**10), {}
    for n_partitions in (1, 2, 80):
        given = {"n_clusters": 2, "n_partitions": n_partitions}
        plans[n_partitions] = engine.plan(dataset, plan_of(dataset, "vrkm", given).footprint)
    usual = engine.plan(dataset, plan_of(dataset, "lloyd", {"n_clusters": 2}).footprint)
    assert plans[1].working >= usual.working + X.nbytes
    assert plans[80].working == pytest.approx(usual.working, abs=MIB)
    view = in_partitions(dataset, list(pairwise(partition_edges(dataset, 2).tolist())))
    assert plans[2].working == pytest.approx(engine.plan(view).working, abs=MIB)
    assert plans[2].working > usual.working + X.nbytes
