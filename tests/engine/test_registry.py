"""What a driver says when its scheduler is lost, whatever it was waiting for."""

from __future__ import annotations

from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import daskcluster as dc
from daskcluster.data.generate import Mixture
from daskcluster.engine import compat
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.registry import WorkerRegistry
from daskcluster.errors import EngineError, InvalidDataError, SchedulerUnreachableError
from tests.benchmarks.scaling.generated import GeneratedDataset
from tests.engine.test_dask import eventually


class Line:
    """A client whose states follow each other, the last one for ever."""

    def __init__(self, *states: str) -> None:
        self._states = list(states)
        self.scheduler = SimpleNamespace(address="tcp://10.0.0.5:8786")

    @property
    def status(self) -> str:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {}}


def registry(*states: str) -> WorkerRegistry:
    client: Any = Line(*states)
    return WorkerRegistry(client, timeout=0.3)


def fail(watched: WorkerRegistry, error: Exception) -> None:
    with watched.watched():
        raise error


@pytest.mark.parametrize("error", [CancelledError("held"), OSError("closed"), KeyError("key")])
def test_a_lost_scheduler_is_always_the_same_error(error: Exception) -> None:
    for states in (("closed",), ("connecting",)):
        with pytest.raises(SchedulerUnreachableError, match=r"5:8786 no longer answers") as e:
            fail(registry(*states), error)
        assert e.value.__context__ is error


def test_the_client_may_notice_the_loss_a_moment_later() -> None:
    with pytest.raises(SchedulerUnreachableError, match="no longer answers"):
        fail(registry("running", "running", "closed"), CancelledError())


def test_a_scheduler_that_comes_back_is_an_error_too() -> None:
    with pytest.raises(SchedulerUnreachableError, match="was lost for a while"):
        fail(registry("connecting", "connecting", "running"), CancelledError())


def test_other_errors_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskcluster.engine.registry._NOTICE_SECONDS", 0.0)
    for error in (CancelledError(), OSError("the disk is full"), KeyError("key")):
        with pytest.raises(type(error)):
            fail(registry("running"), error)
    with pytest.raises(InvalidDataError):
        fail(registry("closed"), InvalidDataError("NaN in row 3"))


def test_labels_cannot_be_read_after_the_client_is_closed() -> None:
    with LocalCluster(1, processes=False, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            rows = GeneratedDataset(Mixture(n_features=2, n_clusters=2), 50)
            model = dc.KMeans(2, random_state=0, engine=client).fit(rows)
        with pytest.raises(
            SchedulerUnreachableError, match="read results that they compute, such as labels_"
        ):
            np.asarray(model.labels_)


def test_paused_workers_are_named_with_their_memory() -> None:
    options: dict[str, Any] = {
        "processes": False,
        "n_workers": 1,
        "dashboard_address": "127.0.0.1:0",
    }
    with (
        dask.config.set({"distributed.worker.memory.pause": 0.001}),
        LocalCluster(memory_limit="2GiB", **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        eventually(lambda: compat.paused_workers(client))
        (address, (used, limit)) = next(iter(compat.paused_workers(client).items()))
        assert used > 0
        assert limit == 2 << 30
        with pytest.raises(EngineError, match=f"1 are paused, .*{address} has .* of 2.0 GiB"):
            DaskEngine(client, timeout=0.5).place(dc.open_dataset(np.eye(4)))


def test_a_model_whose_client_is_closed_says_how_to_use_it() -> None:
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        with Client(cluster, set_as_default=False) as client:
            model = dc.KMeans(2, random_state=0, engine=client).fit(np.eye(4))
        with pytest.raises(SchedulerUnreachableError, match=r"use set_params\(engine=None\)"):
            model.predict(np.eye(4))
        assert model.set_params(engine=None).predict(np.eye(4)).shape == (4,)
