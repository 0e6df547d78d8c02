"""Shuffles that die: a resumed one reads no row again that is on scratch, and writes the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr

from daskcluster import open_dataset
from daskcluster.data import shuffle_passes
from daskcluster.data.shuffle import prepare, shuffle, write_shuffled
from daskcluster.data.shuffle_passes import ScatteredRows, scratch_of
from daskcluster.data.writer import StagedArray
from daskcluster.errors import CheckpointError, InvalidParameterError, OutputExistsError
from daskcluster.events import PassProgress
from daskcluster.randomness import Key
from daskcluster.storage import pass_totals
from daskcluster.storage.staging import claimed
from tests.data.conftest import s3  # noqa: F401  (a fixture)
from tests.data.permutation import SEED, order_of
from tests.estimators.interruption import Killed

CHUNK = 128


@pytest.fixture
def source(rows: np.ndarray, tmp_path: Path) -> str:
    zarr.create_array(str(tmp_path / "rows.zarr"), data=rows, chunks=(200, 7))
    return str(tmp_path / "rows.zarr")


@pytest.fixture(params=["disk", "memory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any]:
    if request.param == "bucket":
        return f"s3://rows/{tmp_path.name}", request.getfixturevalue("s3")
    return (str(tmp_path / "out") if request.param == "disk" else f"memory://{tmp_path}"), None


def run(
    source: Any, place: tuple[str, Any], scratch: Path, *, resume: bool = True, **changes: Any
) -> int:
    """Shuffle by a plan with other figures; return the bytes that were read."""
    url, storage = place
    output, index = f"{url}/o.zarr", f"{url}/i.zarr"
    given = {"with_index": index, "storage_options": storage, "scratch": str(scratch)}
    opened = source if isinstance(source, str) else open_dataset(source)
    dataset, plan = prepare(opened, output, resume=resume, **given)
    sparse = plan.n_entries is not None
    sizes = {"n_buckets": 5, "block_rows": 40, "piece_rows": 90, "scratch": str(scratch)}
    plan = replace(plan, **({} if sparse else {"chunk_rows": CHUNK}), **{**sizes, **changes})
    key = Key(SEED, "shuffle")
    return write_shuffled(
        dataset, plan, key, output, index, (), storage_options=storage, resume=resume
    )


def found(place: tuple[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    url, storage = place
    opened = open_dataset(f"{url}/o.zarr", storage_options=storage).load((0, 5003)).rows
    dense = opened if isinstance(opened, np.ndarray) else opened.toarray()
    index = zarr.open_array(f"{url}/i.zarr", mode="r", storage_options=storage)[:]
    return dense, index


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits of scratch be due at any time."""
    monkeypatch.setattr(pass_totals, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(pass_totals, "_COST", 0)


def dying(monkeypatch: pytest.MonkeyPatch, kind: Any, name: str, number: int) -> None:
    """Let the process die in the call of that number of a method, after or before it did its work."""
    method, calls = getattr(kind, name), count(1)

    def last(self: Any, *arguments: Any) -> Any:
        call = next(calls)  # of all threads together
        if call == number and number % 2:
            raise Killed
        found = method(self, *arguments)
        if call == number:
            raise Killed
        return found

    monkeypatch.setattr(kind, name, last)


DEATHS = (
    (ScatteredRows, "_commit", 3), (ScatteredRows, "_commit", 6), (ScatteredRows, "keep", 9),
    (ScatteredRows, "end", 1), (StagedArray, "put", 2), (StagedArray, "put", 8), (StagedArray, "put", 13),
    (StagedArray, "document", 1),
)  # fmt: skip


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_buckets", [0, 5, 300])
def test_a_shuffle_that_dies_again_and_again(
    rows: np.ndarray, source: str, place: Any, tmp_path: Path, n_buckets: int, weighted: bool
) -> None:
    weights = np.arange(1.0, len(rows) + 1)
    opened: Any = open_dataset(source, weights=weights) if weighted else source
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for kind, name, number in DEATHS:
        if n_buckets or kind is StagedArray:
            with pytest.MonkeyPatch.context() as within:
                dying(within, kind, name, number)
                with pytest.raises(Killed):
                    run(opened, place, scratch, n_buckets=n_buckets)
    run(opened, place, scratch, n_buckets=n_buckets)
    url, storage = place
    order = order_of(len(rows))
    names = {"array": "X", "weights": "weights"} if weighted else {}
    got = open_dataset(f"{url}/o.zarr", **names, storage_options=storage)
    assert np.array_equal(got.to_numpy(), rows[order])
    if weighted:
        assert np.array_equal(np.asarray(got.weights), weights[order])
    index = zarr.open_array(f"{url}/i.zarr", mode="r", storage_options=storage)[:]
    assert np.array_equal(index, order)
    assert os.listdir(scratch) == []


@pytest.mark.usefixtures("often")
def test_no_row_on_scratch_is_read_again(source: str, place: Any, tmp_path: Path) -> None:
    whole = run(source, (str(tmp_path / "whole"), None), tmp_path)
    with pytest.MonkeyPatch.context() as within:
        dying(within, ScatteredRows, "_commit", 40)
        with pytest.raises(Killed):
            run(source, place, tmp_path)
    rest = run(source, place, tmp_path)
    assert 0 < rest < 0.4 * whole
    assert found(place)[0].tobytes() == found((str(tmp_path / "whole"), None))[0].tobytes()


def test_no_chunk_is_written_again(
    rows: np.ndarray, source: str, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as within:
        dying(within, StagedArray, "put", 30)
        with pytest.raises(Killed):
            run(source, place, tmp_path)
    put, starts = StagedArray.put, []

    def recorded(self: StagedArray, start: int, values: np.ndarray) -> None:
        starts.append(start)
        put(self, start, values)

    monkeypatch.setattr(StagedArray, "put", recorded)
    assert run(source, place, tmp_path) == 0
    assert min(starts) >= 10 * CHUNK
    assert np.array_equal(found(place)[1], order_of(len(rows)))


@pytest.mark.usefixtures("often")
def test_sparse_rows(
    rows: np.ndarray, tmp_path: Path, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle_passes, "READ_BYTES", 4096)
    sparse = scipy.sparse.csr_array(np.where(rows > 0.5, rows, 0))
    for kind, name, number in ((ScatteredRows, "_commit", 6), (StagedArray, "put", 3)):
        with pytest.MonkeyPatch.context() as within:
            dying(within, kind, name, number)
            with pytest.raises(Killed):
                run(sparse, place, tmp_path)
    run(sparse, place, tmp_path)
    order = order_of(len(rows))
    got, index = found(place)
    assert np.array_equal(index, order)
    assert np.array_equal(got, sparse.toarray()[order])


@pytest.mark.usefixtures("often")
def test_scratch_of_other_rows_is_refused_by_name(
    rows: np.ndarray, source: str, tmp_path: Path
) -> None:
    place = (str(tmp_path / "out"), None)
    with pytest.MonkeyPatch.context() as within:
        dying(within, ScatteredRows, "_commit", 4)
        with pytest.raises(Killed):
            run(source, place, tmp_path)
    changed = rows.copy()
    changed[0, 0] += 1
    zarr.create_array(str(tmp_path / "changed.zarr"), data=changed, chunks=(200, 7))
    with pytest.raises(CheckpointError, match=r"data\.first_and_last_rows was"):
        run(str(tmp_path / "changed.zarr"), place, tmp_path)
    with pytest.raises(CheckpointError, match="memory_limit was '5 buckets' and is '6 buckets'"):
        run(source, place, tmp_path, n_buckets=6)
    refused = pytest.raises(OutputExistsError, match="Another process works in")
    with claimed(scratch_of(str(tmp_path), f"{place[0]}/o.zarr")), refused:
        run(source, place, tmp_path)
    run(source, place, tmp_path, resume=False)  # which removes what is left
    assert not list(tmp_path.glob("daskcluster-scratch-*"))
    assert np.array_equal(found(place)[1], order_of(len(rows)))


@pytest.mark.usefixtures("often")
def test_scratch_that_was_cleaned_up_is_made_again(
    rows: np.ndarray, source: str, tmp_path: Path
) -> None:
    place = (str(tmp_path / "out"), None)
    with pytest.MonkeyPatch.context() as within:
        dying(within, StagedArray, "put", 30)
        with pytest.raises(Killed):
            run(source, place, tmp_path)
    for file in list(tmp_path.glob("daskcluster-scratch-*/*/rows-*"))[:2]:
        file.unlink()
    with pytest.warns(RuntimeWarning, match="are gone or too short; the rows are read again"):
        run(source, place, tmp_path)
    assert np.array_equal(found(place)[1], order_of(len(rows)))


def test_a_seed_is_needed(source: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="resume=True needs random_state="):
        shuffle(source, tmp_path / "o.zarr", resume=True)


def test_another_seed_begins_anew(rows: np.ndarray, source: str, tmp_path: Path) -> None:
    output = tmp_path / "o.zarr"
    with pytest.MonkeyPatch.context() as within:
        dying(within, StagedArray, "put", 3)
        with pytest.raises(Killed):
            shuffle(source, output, random_state=1, chunk_rows=CHUNK, resume=True)
    heard: list[int] = []

    def hear(event: Any) -> None:
        if isinstance(event, PassProgress):
            heard.append(event.rows)

    given: dict[str, Any] = {"chunk_rows": CHUNK, "resume": True}
    shuffle(source, output, random_state=SEED, callbacks=(hear,), **given)
    assert np.array_equal(zarr.open_array(output, mode="r")[:], rows[order_of(len(rows))])
    assert sum(heard) == 2 * len(rows)


DYING = """
import os, signal, sys
from daskcluster.cli.main import main
from daskcluster.data import shuffle_passes
from daskcluster.data.writer import StagedArray
from daskcluster.storage import pass_totals
pass_totals.EVERY_SECONDS, pass_totals._COST = 0.0, 0
kind, name, number = eval(sys.argv[1], {**vars(shuffle_passes), "StagedArray": StagedArray})
method, calls = getattr(kind, name), [0]
def last(self, *arguments):
    method(self, *arguments)
    calls[0] += 1
    if calls[0] == number:
        os.kill(os.getpid(), signal.SIGKILL)
setattr(kind, name, last)
main(sys.argv[2:])
"""


@pytest.mark.kills
@pytest.mark.parametrize("death", ["ScatteredRows, '_commit', 2", "StagedArray, 'put', 3"])
def test_a_killed_command_resumes(tmp_path: Path, death: str) -> None:
    many = np.random.default_rng(0).integers(0, 2**31, (600_000, 16)).astype(np.int32)
    np.save(tmp_path / "rows.npy", many)
    words = ["shuffle", str(tmp_path / "rows.npy"), str(tmp_path / "o.zarr"), "--resume"]
    words += ["--random-state", str(SEED), "--memory-limit", "300MiB"]
    dead = subprocess.run([sys.executable, "-c", DYING, death, *words], check=False)
    assert dead.returncode == -signal.SIGKILL
    assert list(tmp_path.glob("daskcluster-scratch-*"))
    subprocess.check_call([sys.executable, "-m", "daskcluster", *words])
    assert np.array_equal(
        zarr.open_array(tmp_path / "o.zarr", mode="r")[:], many[order_of(len(many))]
    )
    assert sorted(os.listdir(tmp_path)) == ["o.zarr", "rows.npy"]
