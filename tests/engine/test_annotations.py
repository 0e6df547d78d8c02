"""Annotations of the caller limit the workers of a fit, and reach none of its tasks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.distributed import span
from distributed import Client, Scheduler, SpecCluster, Worker, worker_client
from distributed.diagnostics.plugin import SchedulerPlugin

import daskcluster as dc
from daskcluster import jobs, open_dataset
from daskcluster.engine.dask import DaskEngine
from daskcluster.errors import EngineError, InvalidParameterError
from daskcluster.events import Event, IterationEnded
from tests.clusters import default_scheduler_kept
from tests.engine import reductions as r
from tests.engine.test_dask import eventually

GPU = {"resources": {"GPU": 1}}


class Places(SchedulerPlugin):
    """Notes on which worker each task of this package ran, and with which annotations."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.names_of = {address: state.name for address, state in scheduler.workers.items()}
        self.names: set[str] = set()
        self.annotations: set[str] = set()

    def transition(self, key: Any, start: str, finish: str, *_: Any, **facts: Any) -> None:
        task = self.scheduler.tasks.get(key)
        if task is None or not str(key).startswith("daskcluster-"):
            return
        self.annotations |= set(task.annotations or ())
        if start == "processing" and "worker" in facts:
            self.names.add(str(self.names_of[facts["worker"]]))

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self.names_of[worker] = scheduler.workers[worker].name


class Cluster:
    """Workers in this process: ``gpu`` has a resource, ``one`` and ``two`` have none."""

    def __init__(self, **workers: dict[str, Any]) -> None:
        spec = {
            name: {"cls": Worker, "options": {"nthreads": 1, **options}}
            for name, options in workers.items()
        }
        scheduler = {"cls": Scheduler, "options": {"dashboard_address": "127.0.0.1:0", "port": 0}}
        self.cluster = SpecCluster(spec, scheduler=scheduler, silence_logs=logging.WARNING)
        self.client = Client(self.cluster, set_as_default=False)
        self.places = Places(self.cluster.scheduler)
        self.cluster.scheduler.add_plugin(self.places)

    def address(self, name: str) -> str:
        return str(self.cluster.workers[name].address)

    def add(self, name: str, **options: Any) -> None:
        self.cluster.worker_spec[name] = {"cls": Worker, "options": {"nthreads": 1, **options}}
        self.cluster.sync(self.cluster._correct_state)

    def remove(self, name: str) -> None:
        del self.cluster.worker_spec[name]
        self.cluster.sync(self.cluster._correct_state)

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


@pytest.fixture(scope="module", autouse=True)
def _default_scheduler() -> Iterator[None]:
    with default_scheduler_kept():
        yield


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    cluster = Cluster(gpu={"resources": {"GPU": 1}}, one={}, two={})
    yield cluster
    cluster.close()


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """Yield the cluster; its scheduler may log no warning and no error."""
    logged = Logged()
    logging.getLogger("distributed.scheduler").addHandler(logged)
    shared.places.names.clear()
    shared.places.annotations.clear()
    yield shared
    logging.getLogger("distributed.scheduler").removeHandler(logged)
    assert not logged.lines


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("rows") / "rows.zarr")
    rows = np.random.default_rng(0).random((4000, 4), np.float32)
    zarr.create_array(path, data=rows, chunks=(500, 4))
    return path


@pytest.fixture(scope="module")
def inertia(url: str) -> float:
    return float(dc.KMeans(3, random_state=0, engine="local").fit(url).inertia_)


def fit(rows: Any, engine: Any, **parameters: Any) -> dc.KMeans:
    return dc.KMeans(3, random_state=0, engine=engine, **parameters).fit(rows)


# -- where a fit runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "names"),
    [
        (GPU, {"gpu"}),
        ({"workers": "one"}, {"one"}),
        ({"workers": ["one", "absent"]}, {"one"}),
        ({"workers": ["gpu", "two"], **GPU}, {"gpu"}),
        ({"workers": ["absent"], "allow_other_workers": True}, {"one", "two", "gpu"}),
        ({"resources": {"TPU": 1}, "allow_other_workers": True}, {"one", "two", "gpu"}),
        ({"priority": 7, "retries": 3, "executor": "mine", "note": "x"}, {"one", "two", "gpu"}),
    ],
)
def test_a_fit_keeps_to_the_workers_that_match(
    cluster: Cluster, url: str, inertia: float, annotations: dict[str, Any], names: set[str]
) -> None:
    with dask.annotate(**annotations):
        fitted = fit(url, cluster.client)
        assert fitted.score(url) == pytest.approx(-inertia)
        np.testing.assert_array_equal(fitted.predict(open_dataset(url))[:], fitted.labels_)
    assert fitted.inertia_ == inertia
    assert cluster.places.names
    assert cluster.places.names <= names
    own = {"workers", "allow_other_workers", "retries", "resources", "span"}
    assert cluster.places.annotations <= own
    assert eventually(lambda: "daskcluster-demand" not in str(tasks(cluster)))


def tasks(cluster: Cluster) -> list[str]:
    return list(map(str, cluster.cluster.scheduler.tasks))


@pytest.mark.parametrize("spelled", ["address", "tuple", "host", "name of host", "port"])
def test_workers_have_several_spellings(
    cluster: Cluster, url: str, inertia: float, spelled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = cluster.address("two")
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    monkeypatch.setattr(
        "daskcluster.engine.registry.socket.gethostbyname", {"node7": host}.__getitem__
    )
    workers: Any = {
        "address": [address],
        "tuple": [(host, port)],
        "host": host,
        "name of host": "node7",
        "port": f"node7:{port}",
    }[spelled]
    with dask.annotate(workers=workers):
        assert fit(url, cluster.client).inertia_ == inertia
    expected = {"gpu", "one", "two"} if spelled in ("host", "name of host") else {"two"}
    assert cluster.places.names <= expected


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"resources": {"GPU": 2}}, r"dask\.annotate\(resources=\{'GPU': 2\}\)"),
        ({"workers": ["absent"]}, r"dask\.annotate\(workers=\['absent'\]\)"),
        ({"workers": ["one"], **GPU}, r"dask\.annotate\(workers=\['one'\], resources="),
    ],
)
def test_if_no_worker_matches_the_error_names_those_that_are_there(
    cluster: Cluster, url: str, annotations: dict[str, Any], said: str
) -> None:
    engine = DaskEngine(cluster.client, timeout=0.5)
    with dask.annotate(**annotations), pytest.raises(EngineError, match=said) as caught:
        fit(url, engine)
    assert f"{cluster.address('gpu')} (name 'gpu', resources {{'GPU': 1}})" in str(caught.value)
    assert not cluster.places.names
    with dask.annotate(**annotations), pytest.raises(EngineError, match=said):
        engine.run([partial(divmod, 7, 2)])


def test_annotations_by_key_are_refused(cluster: Cluster, url: str) -> None:
    with (
        dask.annotate(workers=lambda key: ["one"]),
        pytest.raises(InvalidParameterError, match="chooses by the key of a task"),
    ):
        fit(url, cluster.client)


def test_spans_stay_on_the_tasks(cluster: Cluster, url: str) -> None:
    with span("mine"):
        fit(url, cluster.client)
    spans = cluster.cluster.scheduler.extensions["spans"].spans_search_by_name[("mine",)]
    assert any("daskcluster-pass" in str(group) for each in spans for group in each.groups)


def test_callbacks_that_annotate_change_nothing(cluster: Cluster, url: str, inertia: float) -> None:
    entered = []

    def annotate(event: Event) -> None:
        if isinstance(event, IterationEnded) and not entered:
            entered.append(dask.annotate(resources={"TPU": 1}))
            entered[0].__enter__()

    try:
        assert fit(url, cluster.client, callbacks=(annotate,)).inertia_ == inertia
    finally:
        entered[0].__exit__(None, None, None)


def test_all_that_a_pass_sends_stays_with_the_workers_that_match(
    cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scattered parameters, rows of this process, and totals that are combined on workers."""
    monkeypatch.setattr("daskcluster.engine.pass_run.INLINE_BYTES", 10)
    monkeypatch.setattr("daskcluster.engine.pass_run.TREE_BYTES", 100)
    monkeypatch.setattr("daskcluster.engine.pass_run.FAN_IN", 2)
    monkeypatch.setattr("daskcluster.engine.pass_run.is_visible_to", lambda *_: False)
    held: set[str] = set()

    def look(event: Event) -> None:
        workers = cluster.cluster.workers.items()
        held.update(name for name, worker in workers if dict(worker.data))

    dataset = open_dataset(np.arange(4000, dtype=np.float32).reshape(1000, 4))
    with (
        dask.annotate(workers=["one", "two"]),
        DaskEngine(cluster.client).place(dataset, callbacks=[look]) as placed,
    ):
        got = placed.reduce(r.WIDE, {"width": 1000})
    assert np.array_equal(got, np.full(1000, int(dataset.to_numpy().sum())))
    assert "gpu" not in held
    assert cluster.places.names <= {"one", "two"}


# -- tasks, persisted arrays, jobs -----------------------------------------------------------------------


def in_task(url: str, annotations: dict[str, Any]) -> float:
    with dask.annotate(**annotations), worker_client() as client:
        return float(fit(url, client).inertia_)


@pytest.mark.parametrize(("inside", "names"), [({}, {"gpu", "one", "two"}), (GPU, {"gpu"})])
def test_a_fit_in_a_task_that_holds_a_resource_does_not_wait_for_itself(
    cluster: Cluster, url: str, inertia: float, inside: dict[str, Any], names: set[str]
) -> None:
    future = cluster.client.submit(in_task, url, inside, pure=False, **GPU)
    assert future.result(timeout=60) == inertia
    assert cluster.places.names <= names


@pytest.mark.parametrize(
    ("annotations", "names"),
    [(GPU, {"gpu"}), ({"workers": ["two"]}, {"two"}), ({"priority": 3}, {"gpu", "one", "two"})],
)
def test_annotations_around_a_submission_hold_for_the_job(
    cluster: Cluster, url: str, inertia: float, tmp_path: Path, annotations: Any, names: set[str]
) -> None:
    with dask.annotate(**annotations):
        model = str(tmp_path / "model")
        given: dict[str, Any] = {"n_clusters": 3, "random_state": 0, "init": "random"}
        future = jobs.submit(cluster.client, jobs.fit, url, model=model, **given)
    assert future.result(timeout=60).n_iter
    assert cluster.places.names <= names
    with (
        dask.annotate(resources={"TPU": 1}),
        pytest.raises(EngineError, match="'TPU': 1"),
    ):
        jobs.submit(cluster.client, jobs.score, model, url)


def test_a_bare_task_that_holds_a_resource_drives_all_workers(
    cluster: Cluster, url: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"n_clusters": 3, "random_state": 0, "model": str(tmp_path / "m")}
    future = cluster.client.submit(jobs.fit, url, pure=False, **given, **GPU)
    assert future.result(timeout=60).n_clusters == 3


@pytest.mark.kills
@pytest.mark.parametrize("annotations", [{}, GPU, {"workers": ["two"]}])
@pytest.mark.parametrize("known", [True, False])
def test_persisted_rows_are_read_by_few_threads(
    cluster: Cluster, annotations: dict[str, Any], known: bool
) -> None:
    """Tasks that read them would wait for tasks that wait for their threads."""
    rows = np.random.default_rng(1).random((3000, 4), np.float32)
    array = cluster.client.persist(da.from_array(rows, chunks=(300, 4)))
    array = array if known else array[array[:, 0] > 0.5]
    expected = fit(rows if known else rows[rows[:, 0] > 0.5], "local", init="k-means||").inertia_
    with dask.annotate(**annotations):
        found = fit(array, cluster.client, init="k-means||").inertia_
    assert found == pytest.approx(expected)
    with dask.annotate(resources={"TPU": 1}), pytest.raises(EngineError, match="'TPU': 1"):
        fit(array, DaskEngine(cluster.client, timeout=0.3))


def test_annotated_layers_are_no_limit_of_the_fit(cluster: Cluster, inertia: float) -> None:
    rows = np.random.default_rng(0).random((4000, 4), np.float32)
    with dask.annotate(resources={"TPU": 1}):
        array = da.from_array(rows, chunks=(500, 4)) * 1
        weights = da.ones(4000, chunks=500)
    assert fit(array, cluster.client, init="random").fit(array, sample_weight=weights).n_iter_
    assert cluster.places.annotations <= {"workers", "allow_other_workers", "retries", "resources"}


def test_annotations_around_the_start_of_a_cluster_do_not_limit_its_jobs(
    url: str, tmp_path: Path
) -> None:
    with dask.annotate(resources={"TPU": 1}):
        cluster = Cluster(one={})
    with closing(cluster):
        model = str(tmp_path / "m")
        future = jobs.submit(cluster.client, jobs.fit, url, n_clusters=3, model=model)
        assert future.result(timeout=60).n_clusters == 3


# -- workers come and go ---------------------------------------------------------------------------------


@pytest.fixture
def changing() -> Iterator[Cluster]:
    cluster = Cluster(one={})
    yield cluster
    cluster.close()


def later(seconds: float, call: Any) -> threading.Thread:
    def wait() -> None:
        time.sleep(seconds)
        call()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_workers_that_join_later_are_used_if_they_match(
    changing: Cluster, url: str, inertia: float
) -> None:
    def join() -> None:
        changing.add("other")
        changing.add("gpu", resources={"GPU": 1})

    thread = later(0.5, join)
    with dask.annotate(**GPU):
        assert fit(url, changing.client).inertia_ == inertia
    thread.join()
    assert changing.places.names == {"gpu"}


def slow(folder: str) -> str:
    Path(folder, str(time.time())).touch()
    time.sleep(2.0)
    return folder


@pytest.mark.kills
def test_calls_are_sent_again_when_all_workers_that_match_have_left(
    changing: Cluster, tmp_path: Path
) -> None:
    changing.add("gpu", resources={"GPU": 1})
    changing.client.wait_for_workers(2)

    def replace() -> None:
        eventually(lambda: any(tmp_path.iterdir()))
        changing.remove("gpu")
        changing.add("new", resources={"GPU": 1})

    thread = later(0.0, replace)
    with dask.annotate(**GPU):
        assert DaskEngine(changing.client).run([partial(slow, str(tmp_path))]) == [str(tmp_path)]
    thread.join()
    assert changing.places.names == {"new"}
    assert len(list(tmp_path.iterdir())) == 2
