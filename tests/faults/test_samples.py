"""Workers die while rows are drawn: coresets and the proposals of AFK-MC2 stay the same bits."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client

import daskcluster as dc
from daskcluster.events import Event, PassStarted
from tests.clusters import patient_cluster
from tests.laws.data import case


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Yield a client of two workers that are started again when they are killed."""
    with patient_cluster(2) as client:
        yield client


class Killer:
    """Kills a worker at the beginning of the pass that draws."""

    def __init__(self, client: Client) -> None:
        client.wait_for_workers(2, timeout=60)
        self._client = client
        self.passes: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, PassStarted):
            self.passes.append(event.name)
            if event.name == "draws":
                os.kill(sorted(self._client.run(os.getpid).values())[0], signal.SIGKILL)


@pytest.fixture
def rows(tmp_path: Path) -> tuple[str, np.ndarray, np.ndarray | None]:
    X, w = case("weighted float32")
    array = zarr.create_array(tmp_path / "rows.zarr", shape=X.shape, chunks=(100, 5), dtype=X.dtype)
    array[:] = X
    return str(tmp_path / "rows.zarr"), X, w


def test_a_coreset_survives(client: Client, rows: Any) -> None:
    url, X, w = rows
    killer = Killer(client)
    lost = dc.LightweightCoreset(200, random_state=1, engine=client, callbacks=(killer,))
    lost.fit(url, sample_weight=w)
    expected = dc.LightweightCoreset(200, random_state=1, engine="local").fit(X, sample_weight=w)
    assert killer.passes.count("draws") == 1
    assert lost.passes_ == 2
    assert np.array_equal(lost.indices_, expected.indices_)
    assert lost.coreset_.weights.tobytes() == expected.coreset_.weights.tobytes()


def test_a_seeding_by_chains_survives(client: Client, rows: Any) -> None:
    url, X, w = rows
    killer = Killer(client)
    options = {"init": "afk-mc2", "max_iter": 1, "random_state": 1, "chain_length": 5}
    found = dc.KMeans(15, engine=client, callbacks=(killer,), **options).fit(url, sample_weight=w)
    expected = dc.KMeans(15, engine="local", **options).fit(X, sample_weight=w)
    assert killer.passes.count("draws") == 1
    assert found.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
