"""The Dask engine gives what the local engine gives, to the bit, and says the same of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

from daskcluster import open_dataset
from daskcluster.data.writer import ArraySink, ZarrSink
from daskcluster.engine import pass_run
from daskcluster.engine.cache import PREFIX, cached_bytes
from daskcluster.engine.compat import dumps
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import BASELINE_BYTES, Footprint
from daskcluster.engine.operations import Fold, Payload
from daskcluster.errors import (
    DataNotReachableError,
    DatasetNotFoundError,
    EngineError,
    InvalidDataError,
    MemoryLimitError,
    WrongTypeError,
)
from daskcluster.events import Event, PassEnded, PassProgress, PassStarted, WorkersPrepare
from daskcluster.typing import Visibility
from tests.engine import reductions as r


@pytest.fixture
def engine(client: Client) -> DaskEngine:
    return DaskEngine(client)


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Return True as soon as a condition holds, False if it does not within the time."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.1)):
        if condition():
            return True
        pause.wait(0.1)
    return condition()


def held(client: Client) -> int:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return sum(cached_bytes(client, workers).values())


# -- the same results ------------------------------------------------------------------------------


def test_the_verbs_agree_with_the_local_engine(
    engine: DaskEngine, dataset: Any, integers: np.ndarray
) -> None:
    with LocalEngine(2).place(dataset) as here, engine.place(dataset) as there:
        assert list(there.work_items) == list(here.work_items)
        for params in ({"factor": 1}, {"factor": 3}):
            assert np.array_equal(there.reduce(r.SUM, params), here.reduce(r.SUM, params))
        for calls in range(3):
            params = {"calls": calls}
            assert np.array_equal(there.map_state(r.STATE, params), here.map_state(r.STATE, params))
        row = 33_333
        asked = [place.state_of(r.STATE, {"calls": 3}, row, r.state_at) for place in (here, there)]
        assert asked[0] == asked[1] == (32_000, 4_000, int(3 * integers[32_000:36_000].sum()))
        assert np.array_equal(there.take([5, 77_777]), integers[[5, 77_777]])
        assert there.traffic.passes == here.traffic.passes == 5


def test_state_that_was_never_made_is_rebuilt_for_a_look(engine: DaskEngine, dataset: Any) -> None:
    with engine.place(dataset) as placed:
        _, _, total = placed.state_of(r.STATE, {"calls": 2}, 0, r.state_at)
        assert total == 2 * int(dataset.to_numpy()[:4000].sum())


def test_handles_that_were_made_on_another_worker_are_made_again(
    engine: DaskEngine, client: Client, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, submit, calls = list(client.scheduler_info()["workers"]), client.map, []

    def astray(*args: Any, **options: Any) -> Any:
        # As Dask does when the worker that is asked for is busy.
        if "home" in options:
            calls.append(options["home"])
            if len(calls) <= len(workers):
                options["workers"] = [next(each for each in workers if each != options["home"])]
        return submit(*args, **options)

    monkeypatch.setattr(client, "map", astray)
    with engine.place(open_dataset(str(stored))) as placed:
        placed.reduce(r.SUM, {"factor": 1})
        whole = placed.traffic.bytes_read
        placed.reduce(r.SUM, {"factor": 1})
        # A unit of rows that an idle worker takes from a busy one is read again there; no more.
        assert placed.traffic.bytes_read < 1.5 * whole
    assert len(calls) == 2 * len(workers)


def test_weights_are_read_with_their_rows(
    engine: DaskEngine, stored: Path, integers: np.ndarray
) -> None:
    weights = np.arange(len(integers)) % 3
    for rows in (integers, str(stored)):
        with engine.place(open_dataset(rows, weights=weights)) as placed:
            assert placed.reduce(r.SUM, {"factor": 1})[2] == weights.sum()


@pytest.mark.parametrize("kind", ["float64", "memory", "dask"])
def test_rows_that_only_this_process_can_read(
    engine: DaskEngine, integers: np.ndarray, kind: str
) -> None:
    source: Any = integers.astype(np.float64)
    if kind == "memory":
        source = "memory://tests-engine/rows.zarr"
        array = zarr.create_array(
            source, shape=integers.shape, chunks=(9_000, 64), dtype="f4", overwrite=True
        )
        array[:] = integers
    if kind == "dask":
        import dask.array

        source = dask.array.from_array(integers, chunks=(30_000, 64))
    with LocalEngine(2).place(open_dataset(integers)) as here:
        expected = here.reduce(r.SUM, {"factor": 1})
        states = [here.map_state(r.STATE, {"calls": calls}) for calls in range(2)]
    with engine.place(open_dataset(source)) as placed:
        assert np.array_equal(placed.reduce(r.SUM, {"factor": 1}), expected)
        for calls, state in enumerate(states):
            assert np.array_equal(placed.map_state(r.STATE, {"calls": calls}), state)
        assert len(placed.take(np.arange(3))) == 3


# -- what travels ----------------------------------------------------------------------------------


def test_parameters_of_many_tasks_are_broadcast(
    engine: DaskEngine, dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    scatter = pass_run.scattered

    def scattered(registry: Any, data: Any, **options: Any) -> Any:
        sent.append(len(data))
        return scatter(registry, data, **options)

    monkeypatch.setattr(pass_run, "scattered", scattered)
    with engine.place(dataset) as placed:
        expected = placed.reduce(r.SUM, {"factor": 3})
        assert not sent
        monkeypatch.setattr("daskcluster.engine.pass_run.INLINE_TOTAL_BYTES", 100)
        assert np.array_equal(placed.reduce(r.SUM, {"factor": 3}), expected)
    assert len(sent) == 1


def test_large_totals_are_combined_worker_to_worker(
    engine: DaskEngine, dataset: Any, integers: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskcluster.engine.pass_run.TREE_BYTES", 10_000)
    monkeypatch.setattr("daskcluster.engine.pass_run.FAN_IN", 2)
    events: list[Event] = []
    with engine.place(dataset, callbacks=[events.append]) as placed:
        got = placed.reduce(r.WIDE, {"width": 1000})
    assert np.array_equal(got, np.full(1000, int(integers.sum())))
    assert sum(event.rows for event in events if isinstance(event, PassProgress)) == len(integers)
    assert placed.traffic.bytes_read == integers.nbytes


def test_functions_that_workers_cannot_import_travel_by_value(
    engine: DaskEngine, dataset: Any
) -> None:
    shift = 4
    out = np.empty(dataset.n_rows, np.int64)
    with engine.place(dataset) as placed:
        placed.map_rows(
            lambda chunk, _: np.arange(chunk.start, chunk.stop) + shift, ArraySink(out), 0
        )
    assert np.array_equal(out, np.arange(dataset.n_rows) + shift)


def test_no_secret_is_in_a_task(stored: Path) -> None:
    options = {"key": "AKIA-public-name", "secret": "hunter2-hunter2", "auto_mkdir": False}
    dataset = open_dataset(f"file://{stored}", storage_options={"auto_mkdir": False})
    packed = dumps(Payload(Fold(r.SUM), {"factor": 1}, dataset.recipe(), 1))
    assert str(stored).encode() in packed
    from daskcluster.storage.location import locate

    packed = dumps(Payload(Fold(r.SUM), locate("s3://bucket/rows.zarr", options), None, 1))
    assert b"s3://bucket/rows.zarr" in packed
    assert b"hunter2" not in packed


# -- rows out --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_rows", [8_000, 7_001, 100_000])
def test_rows_are_written_in_whole_output_chunks(
    engine: DaskEngine, dataset: Any, integers: np.ndarray, tmp_path: Path, chunk_rows: int
) -> None:
    sink = ZarrSink.create(str(tmp_path / "out.zarr"), n_rows=len(integers), chunk_rows=chunk_rows)
    with sink.transaction(), engine.place(dataset) as placed:
        placed.map_rows(r.row_sums, sink, 2)
    written = zarr.open_array(str(tmp_path / "out.zarr"), mode="r")[:]
    assert np.array_equal(written, 2 * integers.sum(axis=1))


def test_a_sink_of_this_process_is_written_here(
    engine: DaskEngine, dataset: Any, integers: np.ndarray
) -> None:
    sinks = [
        ArraySink(np.empty(len(integers), np.int32)),
        ZarrSink.create("memory://tests-engine/out.zarr", n_rows=len(integers), chunk_rows=3_000,
                        overwrite=True),
    ]  # fmt: skip
    with engine.place(dataset) as placed:
        placed.map_rows(r.row_sums, sinks[0], 1)
        with sinks[1].transaction():
            placed.map_rows(r.row_sums, sinks[1], 1)
    assert np.array_equal(sinks[0].array, integers.sum(axis=1))
    written = zarr.open_array("memory://tests-engine/out.zarr", mode="r")[:]
    assert np.array_equal(written, integers.sum(axis=1))


def test_rows_in_memory_are_cut_for_the_output(
    engine: DaskEngine, integers: np.ndarray, tmp_path: Path
) -> None:
    sink = ZarrSink.create(str(tmp_path / "out.zarr"), n_rows=len(integers), chunk_rows=7_001)
    with sink.transaction(), engine.place(open_dataset(integers)) as placed:
        placed.map_rows(r.row_sums, sink, 1)
    written = zarr.open_array(str(tmp_path / "out.zarr"), mode="r")[:]
    assert np.array_equal(written, integers.sum(axis=1))


# -- accounting ------------------------------------------------------------------------------------


def test_events_are_sent_in_the_thread_of_the_driver_and_add_up(
    engine: DaskEngine, dataset: Any
) -> None:
    seen: list[tuple[Event, int]] = []
    with engine.place(
        dataset, callbacks=[lambda event: seen.append((event, threading.get_ident()))]
    ) as placed:
        placed.reduce(r.SUM, {"factor": 1})
    assert {thread for _, thread in seen} == {threading.get_ident()}
    events = [event for event, _ in seen]
    assert events[:2] == [WorkersPrepare(), PassStarted("sum", dataset.n_rows)]
    assert isinstance(events[-1], PassEnded)
    assert events[-1].bytes_read == dataset.n_rows * 256
    progress = [event.rows for event in events[1:-1] if isinstance(event, PassProgress)]
    assert len(progress) >= 4
    assert sum(progress) == dataset.n_rows


def test_rows_that_fit_are_read_once_and_freed_at_the_end(
    client: Client, engine: DaskEngine, dataset: Any
) -> None:
    size = dataset.n_rows * 256
    with engine.place(dataset) as placed:
        for _ in range(3):
            placed.reduce(r.SUM, {"factor": 1})
        # A slot that helps another on a busy machine reads what it helps with; without residents
        # it would be the whole in every pass.
        assert size <= placed.traffic.bytes_read < 3 * size
        assert held(client) >= size
        # What is held for rows stays when state joins them.
        placed.map_state(r.STATE, {"calls": 0})
        assert placed.traffic.bytes_read < 4 * size
        assert held(client) >= size + 8 * dataset.n_rows
    assert eventually(lambda: held(client) == 0)


def test_rows_on_workers_are_freed_with_their_client(client: Client, dataset: Any) -> None:
    with Client(client.scheduler.address, set_as_default=False) as other:
        placed = DaskEngine(other).place(dataset)
        placed.reduce(r.SUM, {"factor": 1})
        assert held(client) > 0
    assert eventually(lambda: held(client) == 0)


def test_state_stays_where_it_is(
    client: Client, engine: DaskEngine, dataset: Any, tmp_path: Path
) -> None:
    with engine.place(dataset, footprint=Footprint(row_bytes=8)) as placed:
        for calls in range(3):
            placed.map_state(r.NOTED, {"calls": calls, "folder": str(tmp_path)})
    # Rebuilt in the first call, and in later ones only where a slot helped another.
    rebuilt = [path.name.partition("-")[0] for path in tmp_path.iterdir()]
    assert rebuilt.count("0") == 25
    assert len(rebuilt) < 3 * 25


def test_rows_and_state_that_do_not_fit_are_read_again_and_rebuilt(
    client: Client, stored: Path, integers: np.ndarray
) -> None:
    dataset = open_dataset(str(stored))
    with DaskEngine(client).place(dataset) as placed:
        # Room for two partitions on each worker, whatever its process takes by now.
        placed._room = lambda workers: dict.fromkeys(workers, 2_200_000)
        for calls in range(2):
            total = placed.map_state(r.STATE, {"calls": calls})
            assert total[1] == int(integers.sum()) * (calls + 1)
        assert 0 < held(client) <= 2_200_000 * len(placed._registry.refresh())


def test_two_placements_share_the_room(client: Client, stored: Path) -> None:
    dataset = open_dataset(str(stored))
    engine = DaskEngine(client)
    with engine.place(dataset) as first, engine.place(dataset) as second:
        first.reduce(r.SUM, {"factor": 1})
        after_first = held(client)
        # The second finds that the first has taken all there is but one partition each.
        registry = second._registry.refresh()
        baselines = second._room(registry)
        taken = cached_bytes(client, registry)
        second._room = lambda workers: {a: taken[a] + 1_100_000 for a in baselines}
        assert np.array_equal(
            second.reduce(r.SUM, {"factor": 1}), first.reduce(r.SUM, {"factor": 1})
        )
        assert held(client) <= after_first + 2 * 1_100_000
        second.reduce(r.SUM, {"factor": 1})
        assert second.traffic.bytes_read > 1.5 * dataset.n_rows * 256


# -- refusals --------------------------------------------------------------------------------------


def test_too_small_a_limit_is_refused_before_work(client: Client, dataset: Any) -> None:
    with pytest.raises(MemoryLimitError, match=r"memory_limit=.* raise the limit"):
        DaskEngine(client, memory_limit=100 * 1024**2).place(dataset)
    with pytest.raises(MemoryLimitError, match="per-row state"):
        DaskEngine(client).place(dataset, footprint=Footprint(row_bytes=10**9))


def test_a_worker_without_the_package_is_named(
    engine: DaskEngine, monkeypatch: pytest.MonkeyPatch, dataset: Any
) -> None:
    missing = Exception("ModuleNotFoundError(\"No module named 'daskcluster'\")")
    workers = list(engine.client.scheduler_info(n_workers=-1)["workers"])
    monkeypatch.setattr(
        engine.client, "run", lambda *args, **kwargs: dict.fromkeys(workers, missing)
    )
    with pytest.raises(EngineError, match=r"worker tcp://.* cannot take part .*No module named"):
        engine.place(dataset)


class Nowhere:
    """A dataset whose recipe fails on workers."""

    visibility = Visibility.HOST
    in_memory = False

    def recipe(self) -> Any:
        return self

    def open(self) -> Any:
        raise DatasetNotFoundError("There is no dataset at '/data/rows.zarr'.")


def test_a_worker_that_cannot_read_is_named(engine: DaskEngine) -> None:
    with pytest.raises(
        DataNotReachableError, match=r"worker tcp://127.0.0.1:\d+ on .*'/data/rows.zarr'"
    ):
        engine.place(Nowhere())  # type: ignore[arg-type]


def test_large_rows_of_this_process_go_through_a_scratch_folder(
    engine: DaskEngine, integers: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("daskcluster.engine.pass_run.SEND_BYTES", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with engine.place(open_dataset(integers)) as placed:
        assert len(list(tmp_path.iterdir())) == 1
        assert placed.reduce(r.SUM, {"factor": 1})[1] == int(integers.sum())
        assert placed.traffic.bytes_read == integers.nbytes
    assert list(tmp_path.iterdir()) == []


def test_large_rows_of_this_process_are_refused_for_other_hosts(
    engine: DaskEngine, integers: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskcluster.engine.pass_run.SEND_BYTES", 1000)
    monkeypatch.setattr("daskcluster.engine.pass_run.machine_name", lambda: "elsewhere")
    with pytest.raises(DataNotReachableError, match=r"24.4 MiB of rows .* write the rows to Zarr"):
        engine.place(open_dataset(integers))


def test_errors_of_the_work_arrive_as_they_are_and_are_not_tried_again(
    engine: DaskEngine, dataset: Any
) -> None:
    error = InvalidDataError("Input X contains NaN: first in row 5000.")
    with engine.place(dataset) as placed:
        with pytest.raises(InvalidDataError, match="first in row 5000"):
            placed.reduce(r.FAILING, {"factor": 1, "row": 5000, "error": error})
        assert placed.reduce(r.SUM, {"factor": 1})[0] == dataset.n_rows
        assert placed.traffic.passes == 1


def test_a_store_that_hiccups_is_tried_again(
    engine: DaskEngine, dataset: Any, tmp_path: Path
) -> None:
    with engine.place(dataset) as placed:
        params = {"factor": 1, "row": 5000, "folder": str(tmp_path)}
        got = placed.reduce(r.HICCUP, params)
        assert np.array_equal(got, placed.reduce(r.SUM, {"factor": 1}))
    assert (tmp_path / "failed").exists()


def test_engines_need_a_client() -> None:
    with pytest.raises(WrongTypeError, match=r"synchronous distributed\.Client"):
        DaskEngine(3)  # type: ignore[arg-type]


# -- engine ----------------------------------------------------------------------------------------


def test_an_address_is_connected_to_and_closed(client: Client, dataset: Any) -> None:
    with DaskEngine(client.scheduler.address) as engine:
        assert engine.n_threads == 2
        assert repr(engine) == f"DaskEngine({client.scheduler.address!r})"
        with engine.place(dataset) as placed:
            placed.reduce(r.SUM, {"factor": 1})
    assert engine.client.status == "closed"


def test_calls_run_on_workers_and_come_back_in_order(engine: DaskEngine) -> None:
    assert engine.run([partial(divmod, 17, i) for i in (5, 3, 4)]) == [(3, 2), (5, 2), (4, 1)]
    with pytest.raises(ZeroDivisionError):
        engine.run([partial(divmod, 1, 1), partial(divmod, 1, 0)])
    assert engine.run([]) == []
    with pytest.raises(WrongTypeError, match="once more"):
        engine.run([partial(divmod, 1, 1), refuse])


def refuse() -> None:
    raise WrongTypeError("not once more")


def test_the_plan_counts_every_process(engine: DaskEngine, dataset: Any) -> None:
    plan = engine.plan(dataset, Footprint(row_bytes=8))
    assert plan.state == 8 * dataset.n_rows
    assert plan.baseline == 2 * BASELINE_BYTES


def test_workers_have_one_blas_thread_and_zarrs_threads(
    client: Client, engine: DaskEngine, dataset: Any
) -> None:
    with engine.place(dataset) as placed:
        placed.reduce(r.SUM, {"factor": 1})
    assert set(client.run(_threads).values()) == {(1, 2)}


def _threads() -> tuple[int, int]:
    import zarr
    from threadpoolctl import threadpool_info

    blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return max(blas, default=1), zarr.config.get("threading.max_workers")


def test_workers_in_this_process_share_its_rows(dataset: Any, integers: np.ndarray) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as c,
        Client(c, set_as_default=False) as client,
    ):
        engine = DaskEngine(client)
        for source in (dataset, open_dataset(integers)):
            with engine.place(source) as placed:
                for calls in range(2):
                    total = placed.map_state(r.STATE, {"calls": calls})
                    assert total[1] == int(integers.sum()) * (calls + 1)


def test_fits_may_run_at_the_same_time(client: Client, dataset: Any, integers: np.ndarray) -> None:
    def fit(factor: int) -> int:
        with DaskEngine(client).place(dataset) as placed:
            return [int(placed.reduce(r.SUM, {"factor": factor})[1]) for _ in range(3)][-1]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(fit, (1, 2, 3))) == [i * int(integers.sum()) for i in (1, 2, 3)]


def test_nothing_is_left_in_the_scheduler(client: Client, engine: DaskEngine, dataset: Any) -> None:
    def keys() -> set[str]:
        return set(map(str, client.nbytes(summary=False))) - before

    before: set[str] = set()
    before = keys()
    with engine.place(dataset) as placed:
        for _ in range(3):
            total = placed.reduce(r.SUM, {"factor": 1, "ballast": np.ones(300_000)})
        assert total[0] == dataset.n_rows
        assert eventually(lambda: all(key.startswith(PREFIX) for key in keys()))
    assert eventually(lambda: not keys())
