from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from distributed import Client, Lock

import daskcluster.engine.cache
from daskcluster.chunk import Chunk
from daskcluster.engine.cache import CachedPartition, ResidentCache
from daskcluster.engine.memory import admit

CHUNK = Chunk(np.ones((4, 2), np.float32), 8)


def test_a_copy_elsewhere_is_empty_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    held = CachedPartition(100)
    held.keep_rows([CHUNK])
    held.keep_state("state", 3, np.ones(4))
    packed = pickle.dumps(held)
    assert len(packed) < 100
    monkeypatch.setattr(daskcluster.engine.cache, "process_token", lambda: 1)
    copy = pickle.loads(packed)
    assert copy.rows() is None
    assert copy.pop_state("state") == (-1, None)
    copy.keep_rows([CHUNK])
    copy.keep_state("state", 3, np.ones(4))
    assert copy.rows() is None
    assert copy.pop_state("state") == (-1, None)
    assert sys.getsizeof(copy) < 1000


def test_spilled_partitions_are_empty_and_can_be_filled_again() -> None:
    held = CachedPartition(10_000_000)
    held.keep_rows([CHUNK])
    held.keep_state("state", 3, np.ones(4))
    again = pickle.loads(pickle.dumps(held))
    assert again.rows() is None
    assert again.pop_state("state") == (-1, None)
    assert sys.getsizeof(again) > 10_000_000
    again.keep_rows([CHUNK])
    again.keep_state("state", 4, np.zeros(4))
    assert again.rows()
    assert again.pop_state("state")[0] == 4


def test_nothing_is_held_while_another_driver_admits(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daskcluster.engine.cache, "_ADMISSION_SECONDS", 0.2)
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    assignment, room = {workers[0]: [0, 1]}, dict.fromkeys(workers, 10_000)
    cache = ResidentCache(client, [10, 10], [100, 100], 0)
    with Lock("daskcluster-admission", scheduler_rpc=client.scheduler, loop=client.loop):
        cache.arrange(assignment, lambda: room)
        assert cache.on(workers[0], [0, 1])[0] == [None, None]
    monkeypatch.setattr(daskcluster.engine.cache, "_ADMISSION_SECONDS", 30.0)
    cache.arrange(assignment, lambda: room)
    assert None not in cache.on(workers[0], [0, 1])[0]
    cache.close()


def test_rows_that_are_views_are_copied_and_others_are_not() -> None:
    buffer = np.arange(100.0).reshape(50, 2)
    held = CachedPartition(100)
    held.keep_rows([Chunk(buffer[:4]), CHUNK])
    first, second = held.rows() or []
    assert not np.shares_memory(first.rows, buffer)
    assert np.array_equal(first.rows, buffer[:4])
    assert second is CHUNK


def test_partitions_are_admitted_in_their_order() -> None:
    assert admit({0: 50, 1: 60, 2: 50, 3: 1}, room=100) == {0: 50, 2: 50}
    assert admit({0: 50}, room=-10) == {}
    assert admit({0: 0}, room=10) == {}
