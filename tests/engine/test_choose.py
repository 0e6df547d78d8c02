from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, get_client, secede

from daskcluster import open_dataset
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import EngineError, WrongTypeError
from tests.engine import reductions as r


@pytest.fixture
def current(client: Client) -> Iterator[Client]:
    """Make the client the current one."""
    with client.as_current():
        yield client


def test_a_client_an_address_and_local(client: Client, dataset: Any) -> None:
    by_client = choose_engine(client, dataset)
    assert isinstance(by_client, DaskEngine)
    assert by_client.client is client
    by_address = choose_engine(client.scheduler.address, dataset)
    assert isinstance(by_address, DaskEngine)
    # One connection, however many fits.
    assert choose_engine(client.scheduler.address, dataset) is by_address
    by_address.close()
    again = choose_engine(client.scheduler.address, dataset)
    assert isinstance(again, DaskEngine)
    assert again.client.status == "running"
    again.close()
    assert isinstance(choose_engine("local", dataset), LocalEngine)


def test_other_values_are_refused(dataset: Any) -> None:
    with pytest.raises(WrongTypeError, match=r"engine=42 should be None, 'local', the address"):
        choose_engine(42, dataset)


def test_engine_none_is_the_current_client_if_it_can_read_the_rows(
    current: Client, dataset: Any
) -> None:
    engine = choose_engine(None, dataset)
    assert isinstance(engine, DaskEngine)
    assert engine.client is current


def test_rows_of_this_process_stay_here(current: Client, dataset: Any) -> None:
    assert isinstance(choose_engine(None, open_dataset(dataset.to_numpy()[:100])), LocalEngine)


def test_none_does_not_import_rows(stored: Path) -> None:
    program = (
        "import sys; from daskcluster import open_dataset; "
        "from daskcluster.engine.choose import choose_engine; "
        f"print(choose_engine(None, open_dataset({str(stored)!r})).name, 'distributed' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["local", "False"]


def chosen(url: str, engine: Any, *, leave: bool) -> str:
    if leave:
        secede()
    return repr(choose_engine(engine, open_dataset(url)))


def test_engine_none_is_one_local_thread_inside_a_task(client: Client, stored: Path) -> None:
    for leave in (False, True):
        name = client.submit(chosen, str(stored), None, leave=leave, pure=False).result()
        assert name == "LocalEngine(n_threads=1)"


def test_inside_a_task_a_cluster_needs_a_free_thread(client: Client, stored: Path) -> None:
    address = client.scheduler.address
    future = client.submit(chosen, str(stored), address, leave=False, pure=False)
    with pytest.raises(EngineError, match=r"Leave engine=None .* distributed.secede\(\) first"):
        future.result()
    future = client.submit(chosen, str(stored), address, leave=True, pure=False)
    assert future.result() == f"DaskEngine({address!r})"


def summed(url: str) -> tuple[str, int]:
    """Drive the cluster from a task that has given its thread back."""
    secede()
    dataset = open_dataset(url)
    engine = choose_engine(get_client(), dataset)
    with engine.place(dataset) as placed:
        return engine.name, int(placed.reduce(r.SUM, {"factor": 1})[1])


def test_a_seceded_task_drives_the_cluster(client: Client, stored: Path, dataset: Any) -> None:
    found = client.submit(summed, str(stored), pure=False).result()
    assert found == ("dask", int(dataset.to_numpy().sum()))
