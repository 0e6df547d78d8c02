"""What all tests share: fixed hypothesis examples, one small Dask cluster, and the stages of CI."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import LocalCluster
from hypothesis import settings

from daskcluster.kernels.jit import TILES, tile_name
from tests.faults import processes

# The same examples in every run; compiling a kernel may take seconds, so no deadline.
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("fixed")

METHOD = "distributed.worker.multiprocessing-method"

# A shell starts what it puts into the background deaf to Ctrl-C, and children stay so.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Let clusters that tests start here fork their workers from a process that has imported everything.

    Otherwise each worker imports for seconds. Programs that tests start spawn theirs, as those of users do.
    """
    begin = LocalCluster.__init__

    def begin_with_server(cluster: Any, *arguments: Any, **named: Any) -> None:
        own: dict[str, Any] = {}
        if dask.config.get(METHOD) == "forkserver":
            processes.serve()
            # The environment of this process as it is now; that of the server is older.
            own["distributed.nanny.environ"] = dict(os.environ)
        with dask.config.set(own):
            begin(cluster, *arguments, **named)

    with dask.config.set({METHOD: "forkserver"}), pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalCluster, "__init__", begin_with_server)
        yield


@pytest.fixture
def spawned() -> Iterator[None]:
    """Spawn workers: the C library of a forked one does not look at its environment."""
    with dask.config.set({METHOD: "spawn"}):
        yield


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """Yield a client of one cluster of two processes with one thread each, on loopback.

    Shared by all tests of a session: leave it as it was found. A test that kills or adds workers
    starts a cluster of its own.
    """
    from distributed import Client

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        # Not the default client: tests that name no engine mean threads, before and after this.
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


HERE = Path(__file__).parent
STAGES = {
    "servers": ("servers",),
    "deploy": ("deploy",),
    "browser": ("test_site.py", "reports/test_browser.py", "dashboard/test_browser.py"),
    "kills": (
        "faults/test_trials.py",
        "jobs/test_hosts.py",
        "methods/streaming/service/test_kills.py",
    ),
    "invariances": ("invariances",),
    "programs": ("benchmarks", "peers", "test_other_systems.py"),
}
"""Folders and files of tests that have a stage of CI of their own, by the mark of the stage.

Two more marks are given to single tests: "kernels" to those that compile many kernels, of register tiles
and instructions of other processors too; "pages" to code of pages other than the README and the tutorial.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests the marks of their stages, and leave out those of stages that were not asked for.

    A test of a stage runs if ``-m`` names the mark, or if it was named itself, by its file or as a test.
    """
    asked = [Path(str(argument).partition("::")[0]).resolve() for argument in config.args]
    files = {path for path in asked if path.is_file()}
    folders = {HERE / place for places in STAGES.values() for place in places} & set(asked)
    chosen: str = config.getoption("markexpr")
    left, kept = [], []
    for item in items:
        for mark in _stages_of(item):
            item.add_marker(mark)
        marks = {mark.name for mark in item.iter_markers()} & MARKS
        is_named = item.path in files or any(item.path.is_relative_to(place) for place in folders)
        is_out = bool(marks) and not is_named and not any(mark in chosen for mark in marks)
        (left if is_out else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


MARKS = {*STAGES, "kernels", "pages"}


@cache
def _stages_of_file(path: Path) -> list[str]:
    return [
        mark
        for mark, places in STAGES.items()
        if any(path.is_relative_to(HERE / place) for place in places)
    ]


def _stages_of(item: pytest.Item) -> Iterator[str]:
    yield from _stages_of_file(item.path)
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    if any(isinstance(value, str) and value in TILES and value != tile_name() for value in given):
        yield "kernels"
