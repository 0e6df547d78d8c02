"""Stores that fail: what passes is waited for, what does not is named, and nothing half is left."""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec

import daskcluster as dc
from daskcluster.data.writer import ZarrSink
from daskcluster.errors import DatasetNotFoundError, InvalidDataError
from daskcluster.events import IterationEnded
from daskcluster.storage import change_guard
from daskcluster.storage import retry as patience
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import Document
from daskcluster.storage.location import locate
from tests.faults.faulty import Fault, FaultyFileSystem, failing, register

PASSING = ("500", "503", "time-out", "reset", "cut body", "truncated")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder behind ``faulty://``; pauses are short."""
    register()
    monkeypatch.setenv("FAULTY_ROOT", str(tmp_path / "bucket"))
    monkeypatch.setattr(patience, "PAUSES", (0.001, 0.001, 0.001, 0.001))
    # The same URLs are in another folder in each test.
    monkeypatch.setattr("daskcluster.storage.process_local._opened", OrderedDict())
    FaultyFileSystem.clear_instance_cache()
    (tmp_path / "bucket").mkdir()
    yield tmp_path / "bucket"
    FaultyFileSystem.faults.clear()


@pytest.fixture
def rows(store: Path) -> np.ndarray:
    values = np.random.default_rng(0).lognormal(size=(4000, 5)).astype(np.float32)
    zarr.create_array(store / "rows.zarr", data=values, chunks=(500, 5), compressors=ZstdCodec())
    return values


def chunks(path: str) -> bool:
    return "/c/" in path


def model(**more: Any) -> dc.KMeans:
    settings = {"init": "k-means++", "random_state": 0, "max_iter": 4, "tol": 0.0}
    return dc.KMeans(6, algorithm="lloyd", **settings, **more)


@pytest.mark.parametrize("name", PASSING)
def test_short_failures_are_waited_for(rows: np.ndarray, name: str) -> None:
    fault = Fault(name, times=3, on=chunks)
    dataset = dc.open_dataset("faulty://rows.zarr")
    engine = dc.LocalEngine(1, memory_limit=400 << 20)
    with failing(fault):
        found = model(engine=engine).fit(dataset)
    assert fault.met["read"] == 3
    assert found.cluster_centers_.tobytes() == model().fit(rows).cluster_centers_.tobytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("503", r"'faulty://rows.zarr' cannot be reached \(OSError: .*SlowDown"),
        ("time-out", r"cannot be reached \(TimeoutError: .*check the network"),
        ("cut body", r"cannot be reached|cannot be read \(ClientPayloadError"),
        ("truncated", r"Rows .* cannot be read .*a chunk is damaged or half-written"),
    ],
)
def test_lasting_failures_end_the_fit(rows: np.ndarray, name: str, message: str) -> None:
    dataset = dc.open_dataset("faulty://rows.zarr")
    fault = Fault(name, on=lambda path: path.endswith("c/3/0"))
    with failing(fault), pytest.raises((DatasetNotFoundError, InvalidDataError), match=message):
        model().fit(dataset)
    assert fault.met["read"] >= 1 + len(patience.PAUSES)


@pytest.mark.parametrize("name", ["denied", "expired"])
def test_missing_permissions_are_not_tried_again(rows: np.ndarray, name: str) -> None:
    dataset = dc.open_dataset("faulty://rows.zarr")
    fault = Fault(name, on=lambda path: path.endswith("c/3/0"))
    message = r"No permission to reach the dataset at 'faulty://rows.zarr' \(PermissionError"
    with failing(fault), pytest.raises(DatasetNotFoundError, match=message):
        model(engine=dc.LocalEngine(1)).fit(dataset)
    assert fault.met["read"] == 1


def test_failures_after_a_long_time_are_not_tried_again(
    rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_SECONDS", -1.0)
    fault, place = Fault("503"), locate("faulty://rows.zarr")
    with failing(fault), pytest.raises(OSError, match="SlowDown"):
        patience.retry(lambda: FaultyFileSystem().cat_file("rows.zarr/zarr.json"), place)
    assert fault.met["read"] == 1


def test_local_stores_are_never_tried_twice() -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise TimeoutError

    for url in ("memory://rows", "/rows"):
        with pytest.raises(TimeoutError):
            patience.retry(fail, locate(url))
    with pytest.raises(TimeoutError):
        patience.retry(fail, None)
    assert len(calls) == 3


# -- rows that change -----------------------------------------------------------------------------------


def after(iteration: int, act: Callable[[], None]) -> Callable[[Any], None]:
    def hear(event: Any) -> None:
        if isinstance(event, IterationEnded) and event.iteration == iteration:
            act()

    return hear


def remove(store: Path) -> None:
    os.remove(store / "rows.zarr" / "c" / "3" / "0")


def overwrite(store: Path) -> None:
    array = zarr.open_array(store / "rows.zarr", mode="r+")
    array[1500:2000] = np.random.default_rng(9).random((500, 5))


def touch(store: Path) -> None:
    """Write the same number of other bytes."""
    path = store / "rows.zarr" / "c" / "3" / "0"
    path.write_bytes(path.read_bytes()[::-1])


def forget(store: Path) -> None:
    os.remove(store / "rows.zarr" / "zarr.json")


CHANGES = [
    (remove, "c/3/0 has disappeared"),
    (overwrite, r"c/3/0 was rewritten \(\d+ bytes before"),
    (touch, r"c/3/0 was rewritten \(version \S+ before"),
    (forget, "zarr.json has disappeared"),
]


@pytest.mark.parametrize("scheme", ["faulty", "local"])
@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_rows_that_change_under_a_fit(
    rows: np.ndarray, store: Path, scheme: str, change: Callable[[Path], None], message: str
) -> None:
    url = "faulty://rows.zarr" if scheme == "faulty" else str(store / "rows.zarr")
    hear = after(2, lambda: change(store))
    with pytest.raises(InvalidDataError, match=f"changed while they were being read: {message}"):
        model(callbacks=(hear,)).fit(url)


def test_weights_that_change_under_a_fit(rows: np.ndarray, store: Path) -> None:
    zarr.create_array(store / "w.zarr", data=np.ones(4000), chunks=(1000,))
    dataset = dc.open_dataset("faulty://rows.zarr", weights="faulty://w.zarr")
    hear = after(2, lambda: os.remove(store / "w.zarr" / "c" / "1"))
    with pytest.raises(
        InvalidDataError, match=r"'faulty://w.zarr' changed .*: c/1 has disappeared"
    ):
        model(callbacks=(hear,)).fit(dataset)


def test_sparse_rows_that_change_under_a_fit(rows: np.ndarray, store: Path) -> None:
    from scipy import sparse

    X = sparse.csr_array(np.where(rows > 1, rows, 0))
    group = zarr.open_group(store / "csr.zarr", mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": list(X.shape)})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(X, name), chunks=(1000,))
    hear = after(2, lambda: os.remove(store / "csr.zarr" / "indices" / "c" / "1"))
    with pytest.raises(InvalidDataError, match=r"csr.zarr/indices' changed .*: c/1 has disapp"):
        model(callbacks=(hear,)).fit("faulty://csr.zarr")


def test_a_mapped_file_that_changes_under_a_fit(rows: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, rows)

    def change() -> None:
        with path.open("r+b") as file:
            file.seek(1000)
            file.write(b"\1" * 8)

    with pytest.raises(InvalidDataError, match="the file was rewritten"):
        model(callbacks=(after(2, change),)).fit(str(path))


def test_labels_of_rows_that_change_are_not_published(rows: np.ndarray, store: Path) -> None:
    fitted = model().fit("faulty://rows.zarr")
    # Not when the last chunk is read: the ends of the rows are looked at before work begins.
    lost = Fault("truncated", times=1, on=lambda path: path.endswith("c/5/0"))
    lost.on = lambda path: path.endswith("c/5/0") and not (store / "rows.zarr/c/3/0").unlink()
    with failing(lost), pytest.raises(InvalidDataError, match="c/3/0 has disappeared"):
        fitted.predict("faulty://rows.zarr", output="faulty://labels.zarr")
    assert not (store / "labels.zarr" / "zarr.json").exists()


def test_rows_that_are_appended_are_no_change(rows: np.ndarray, store: Path) -> None:
    short = rows[:3700]
    shutil.rmtree(store / "rows.zarr")
    array = zarr.create_array(store / "rows.zarr", shape=short.shape, chunks=(500, 5), dtype="f4")
    array[:] = short

    def append() -> None:
        longer = zarr.open_array(store / "rows.zarr", mode="r+")
        longer.append(rows[3700:])
        assert longer.shape == rows.shape

    found = model(callbacks=(after(2, append),)).fit("faulty://rows.zarr")
    assert found.cluster_centers_.tobytes() == model().fit(short).cluster_centers_.tobytes()


def test_objects_that_cannot_be_listed_are_not_watched(rows: np.ndarray) -> None:
    with failing(Fault("denied", verbs=("list",))):
        assert change_guard.objects_at(locate("faulty://rows.zarr")) is None
        model().fit("faulty://rows.zarr")


# -- outputs ----------------------------------------------------------------------------------------------


def write_labels(url: str = "faulty://labels.zarr", **options: Any) -> None:
    with ZarrSink.create(url, n_rows=10, chunk_rows=4, **options).transaction() as sink:
        for start in range(0, 10, 4):
            sink.write(start, np.arange(start, min(start + 4, 10)))


@pytest.mark.parametrize("name", ["500", "503", "time-out", "reset"])
def test_writes_are_waited_for(store: Path, name: str) -> None:
    fault = Fault(name, times=3, verbs=("write", "remove"))
    with failing(fault):
        write_labels()
    assert fault.met.total() == 3
    assert zarr.open_array(store / "labels.zarr")[:].tolist() == list(range(10))
    assert sorted(os.listdir(store / "labels.zarr")) == ["c", "zarr.json"]


@pytest.mark.parametrize("name", ["500", "denied"])
@pytest.mark.parametrize("at", range(6))
def test_an_output_that_cannot_be_written_is_absent(store: Path, name: str, at: int) -> None:
    count = [0]

    def late(path: str) -> bool:
        count[0] += 1
        return count[0] > at

    with failing(Fault(name, on=late, verbs=("write",))):
        if at < 5:
            with pytest.raises(DatasetNotFoundError, match=r"The output at|reach the output at"):
                write_labels()
            assert not (store / "labels.zarr" / "zarr.json").exists()
        else:
            write_labels()
    write_labels(overwrite=at == 5)
    assert zarr.open_array(store / "labels.zarr")[:].tolist() == list(range(10))


def test_an_output_whose_store_is_lost_cannot_be_opened(store: Path) -> None:
    fault = Fault("denied", on=lambda path: path.endswith("c/2"), verbs=("write",))
    gone = Fault("denied", verbs=("remove",))
    with (
        failing(fault, gone),
        pytest.warns(RuntimeWarning, match="could not be removed"),
        pytest.raises(DatasetNotFoundError, match="No permission to reach the output"),
    ):
        write_labels()
    with pytest.raises(DatasetNotFoundError, match="is half-written"):
        dc.open_dataset("faulty://labels.zarr")
    write_labels()
    assert zarr.open_array(store / "labels.zarr")[:].tolist() == list(range(10))


def test_a_model_is_whole_or_absent(rows: np.ndarray, store: Path) -> None:
    fitted = model().fit(rows)
    broken = Fault("500", verbs=("write",), on=lambda path: path.endswith("zarr.json"))
    with failing(broken), pytest.raises(DatasetNotFoundError, match="cannot be reached"):
        fitted.save("faulty://m")
    assert not (store / "m").exists()
    with failing(fault := Fault("503", times=2, verbs=("write",))):
        fitted.save("faulty://m")
    assert fault.met.total() == 2
    with failing(Fault("reset", times=2)):
        again = dc.load_model("faulty://m")
    assert again.cluster_centers_.tobytes() == fitted.cluster_centers_.tobytes()


def test_a_commit_is_whole_or_does_not_count(store: Path) -> None:
    folder = CheckpointFolder("faulty://kept", {"k": 1})
    folder.commit(Document("lloyd", {"n": 1}, {"centres": np.eye(2)}))
    broken = Fault("denied", verbs=("write",), on=lambda path: path.endswith("zarr.json"))
    message = "No permission to reach the checkpoint"
    with failing(broken), pytest.raises(DatasetNotFoundError, match=message):
        folder.commit(Document("lloyd", {"n": 2}, {"centres": np.eye(2)}))
    again = CheckpointFolder("faulty://kept", {"k": 1})
    found = again.latest()
    assert found is not None
    assert found.body["n"] == 1
    with failing(Fault("503", times=2, verbs=("write",)), Fault("time-out", times=2)):
        again.commit(Document("lloyd", {"n": 3}, {"centres": np.eye(2)}))
        found = again.latest()
    assert found is not None
    assert found.body["n"] == 3
