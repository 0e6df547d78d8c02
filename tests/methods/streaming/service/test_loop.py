"""The loop: it folds each row once, whatever objects do; test_learners.py has all algorithms."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs
from daskcluster.data.writer import write_rows
from daskcluster.errors import CheckpointError, InvalidParameterError
from daskcluster.events import DriftFound, Event, Notice
from daskcluster.methods.streaming import tree as cutting
from daskcluster.methods.streaming.sources import Settling
from tests.methods.streaming.service.feeds import OPTIONS, bits, open_loop, order_of, portion, put

N = 8


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    folder = tmp_path / "feed"
    for number in range(N):
        put(folder, number)
    return folder


def found(cycle) -> dict[str, str]:
    return {finding.name: str(finding.oddity) for finding in cycle.findings}


def test_the_model_equals_that_of_the_estimator(feed: Path, tmp_path: Path) -> None:
    cycle = open_loop(feed, tmp_path / "state").cycle()
    rows = np.concatenate([portion(number) for number in range(N)])
    model = dc.StreamingKMeans(**OPTIONS).fit(rows)
    loaded = dc.load_model(cycle.model)
    assert loaded.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    assert isinstance(loaded, dc.StreamingKMeans)
    latest = json.loads((tmp_path / "state" / "latest.json").read_text())
    assert latest["model_version"] == N * 700
    assert dc.load_model(str(tmp_path / "state" / latest["model"])).rows_seen_ == N * 700


def test_model_versions_never_change(feed: Path, tmp_path: Path) -> None:
    first = open_loop(feed, tmp_path / "state").cycle()
    before = (Path(first.model) / "zarr.json").read_bytes()
    put(feed, N)
    second = open_loop(feed, tmp_path / "state").cycle()
    assert second.model_version > first.model_version
    assert (Path(first.model) / "zarr.json").read_bytes() == before
    assert dc.load_model(first.model).rows_seen_ == N * 700


def test_late_objects_are_folded_and_reported(feed: Path, tmp_path: Path) -> None:
    held = feed / "part-0003.zarr"
    shutil.move(held, tmp_path / "held")
    heard = []
    loop = open_loop(feed, tmp_path / "state", callbacks=[heard.append])
    loop.cycle()
    shutil.move(tmp_path / "held", held)
    cycle = loop.cycle()
    assert found(cycle) == {"part-0003.zarr": "late"}
    assert cycle.rows_seen == N * 700
    assert order_of(loop)[-1] == "part-0003.zarr"
    assert loop.state.ledger.entries[-1].note == "late"
    assert any("part-0003" in event.text for event in heard if isinstance(event, Notice))
    assert found(loop.cycle()) == {}


def test_late_objects_in_the_order_of_time(tmp_path: Path) -> None:
    """Names do not matter if objects are ordered by timestamp."""
    feed, names = tmp_path / "feed", {}
    for number, day in [(5, 1), (3, 2), (4, 3), (7, 5)]:
        names[day] = put(feed, number, timestamp=f"2026-01-0{day}T00:00:00Z").name
    loop = open_loop(feed, tmp_path / "state", order="time")
    assert found(loop.cycle()) == {}
    assert order_of(loop) == [names[day] for day in (1, 2, 3, 5)]
    names[6] = put(feed, 1, timestamp="2026-01-06T00:00:00Z").name
    names[4] = put(feed, 9, timestamp="2026-01-04T00:00:00Z").name
    cycle = open_loop(feed, tmp_path / "state", order="time").cycle()
    assert found(cycle) == {names[4]: "late"}
    assert f"after {names[5]!r} was folded" in cycle.findings[0].text
    assert cycle.rows_seen == 6 * 700


def test_copies_of_rejected_objects_are_duplicates(feed: Path, tmp_path: Path) -> None:
    rows = portion(N)
    rows[3, 1] = np.nan
    zarr.save_array(str(feed / "part-0008.zarr"), rows)
    apart, together = open_loop(feed, tmp_path / "apart"), open_loop(feed, tmp_path / "together")
    assert found(apart.cycle()) == {"part-0008.zarr": "corrupt"}
    shutil.copytree(feed / "part-0008.zarr", feed / "part-0008.zarr-again")  # times are kept
    assert found(apart.cycle()) == {"part-0008.zarr-again": "duplicate"}
    together.cycle()
    assert bits(apart) == bits(together)


def test_copies_of_earlier_versions_are_duplicates(feed: Path, tmp_path: Path) -> None:
    mended, rows = feed / "part-0008.zarr", portion(N)
    zarr.save_array(str(mended), np.where(rows == rows[3, 1], np.nan, rows))
    loop = open_loop(feed, tmp_path / "state")
    assert found(loop.cycle()) == {"part-0008.zarr": "corrupt"}
    shutil.move(mended, tmp_path / "held")
    zarr.save_array(str(mended), rows)
    assert found(loop.cycle()) == {}
    shutil.move(tmp_path / "held", feed / "part-0008.zarr-again")
    assert found(loop.cycle()) == {"part-0008.zarr-again": "duplicate"}


def test_half_written_objects_wait(feed: Path, tmp_path: Path) -> None:
    chunk = feed / "part-0005.zarr" / "c" / "1" / "0"
    shutil.move(chunk, tmp_path / "chunk")
    meta = feed / "part-0006.zarr" / "zarr.json"
    shutil.move(meta, tmp_path / "meta")
    loop = open_loop(feed, tmp_path / "state")
    cycle = loop.cycle()
    assert found(cycle) == {"part-0005.zarr": "unsettled", "part-0006.zarr": "unsettled"}
    assert "1 of 3 chunks are missing" in cycle.findings[0].text
    assert cycle.rows_seen == (N - 2) * 700
    shutil.move(tmp_path / "chunk", chunk)
    shutil.move(tmp_path / "meta", meta)
    cycle = loop.cycle()
    assert found(cycle) == {"part-0005.zarr": "late", "part-0006.zarr": "late"}
    assert cycle.rows_seen == N * 700


def test_missing_chunks_are_read_only_with_allow_missing(feed: Path, tmp_path: Path) -> None:
    (feed / "part-0005.zarr" / "c" / "1" / "0").unlink()
    with pytest.warns(UserWarning, match="lacks 1 of 3 chunks"):
        cycle = open_loop(feed, tmp_path / "state", allow_missing=True).cycle()
    assert cycle.rows_seen == N * 700


def test_corrupt_objects_are_skipped_until_they_change(feed: Path, tmp_path: Path) -> None:
    (feed / "part-0002.zarr" / "c" / "0" / "0").write_bytes(b"no chunk")
    rows = portion(5)
    rows[650, 1] = np.nan
    shutil.rmtree(feed / "part-0005.zarr")
    put(feed, 5, rows)
    shutil.rmtree(feed / "part-0006.zarr")
    put(feed, 6, portion(6)[:, :2])
    loop = open_loop(feed, tmp_path / "state")
    cycle = loop.cycle()
    bad = ("part-0002.zarr", "part-0005.zarr", "part-0006.zarr")
    assert found(cycle) == dict.fromkeys(bad, "corrupt")
    texts = {finding.name: finding.text for finding in cycle.findings}
    assert "first in row 650" in texts[bad[1]]
    assert "has 2 features, but the stream is expecting 3" in texts[bad[2]]
    assert cycle.rows_seen == (N - 3) * 700
    assert found(loop.cycle()) == {}
    # The others are what they would be if it had never been there.
    for name in bad:
        shutil.rmtree(feed / name)
    other = open_loop(feed, tmp_path / "other")
    other.cycle()
    assert bits(other)["arrays"] == bits(loop)["arrays"]
    put(feed, 5)
    assert loop.cycle().rows_seen == (N - 2) * 700


def test_objects_settle() -> None:
    from daskcluster.methods.streaming.sources import Arrival

    now = [0.0]
    settling = Settling(10.0, clock=lambda: now[0], wall=lambda: 1000.0)
    fresh, old = Arrival("a", "1", 5, modified=999.0), Arrival("b", "1", 5, modified=900.0)
    assert settling.is_settled(old)
    assert not settling.is_settled(fresh)
    now[0] = 9.0
    assert not settling.is_settled(fresh)
    changed = Arrival("a", "2", 6, modified=1000.0)
    now[0] = 11.0
    assert not settling.is_settled(changed)
    now[0] = 21.0
    assert settling.is_settled(changed)


def test_objects_wait_until_they_settle(feed: Path, tmp_path: Path) -> None:
    cycle = open_loop(feed, tmp_path / "state", settle=3600.0).cycle()
    assert (cycle.rows_seen, cycle.model_version) == (0, None)
    assert set(found(cycle).values()) == {"unsettled"}


def test_a_growing_array(tmp_path: Path) -> None:
    rows = np.concatenate([portion(number) for number in range(N)])
    path = tmp_path / "rows.zarr"
    array = zarr.create_array(str(path), shape=(0, 3), chunks=(256, 3), dtype="f4")
    labels = tmp_path / "labels.zarr"
    loop = open_loop(path, tmp_path / "state", labels=str(labels))
    assert loop.cycle().rows_seen == 0
    for stop in (10, 1500, 1501, 4000, len(rows)):
        array.append(rows[array.shape[0] : stop])
        assert open_loop(path, tmp_path / "state", labels=str(labels)).cycle().rows_seen == stop
    loop = open_loop(path, tmp_path / "state", labels=str(labels))
    whole = open_loop(path, tmp_path / "whole", labels=str(tmp_path / "others.zarr"))
    whole.cycle()
    assert {**bits(loop), "names": 0} == {**bits(whole), "names": 0}
    one = zarr.open_array(str(labels), mode="r")[:]
    two = zarr.open_array(str(tmp_path / "others.zarr"), mode="r")[:]
    assert one.shape == two.shape == (len(rows),)
    # The first leaf has no centres before it.
    assert np.array_equal(one[1024:], two[1024:])
    assert one.min() >= 0
    array.resize((4000, 3))
    assert found(loop.cycle()) == {"rows.zarr": "shrunk"}


def test_rows_that_are_not_stored_yet_wait(tmp_path: Path) -> None:
    rows = portion(0, 1000)
    path = tmp_path / "rows.zarr"
    array = zarr.create_array(str(path), shape=rows.shape, chunks=(256, 3), dtype="f4")
    array[:700] = rows[:700]
    (path / "c" / "1" / "0").unlink()
    loop = open_loop(path, tmp_path / "state")
    cycle = loop.cycle()
    assert (cycle.rows_seen, found(cycle)) == (256, {"rows.zarr": "unsettled"})
    array[256:] = rows[256:]
    assert loop.cycle().rows_seen == 1000
    assert {**bits(loop), "names": 0}["version"] == 1000


def test_chunks_of_an_iterator(tmp_path: Path) -> None:
    chunks = [portion(number) for number in range(N)]
    state = str(tmp_path / "state")
    cycle = jobs.stream(iter(chunks), state=state, **OPTIONS)
    assert cycle.rows_seen == N * 700
    more = [*chunks, portion(N)]
    cycle = jobs.stream(iter(more), state=state, **OPTIONS)  # the program starts anew
    assert (cycle.rows_seen, cycle.objects) == ((N + 1) * 700, N + 1)
    with pytest.raises(InvalidParameterError, match="rows of this source have no timestamps"):
        jobs.stream(iter(chunks), state=state, half_life="1h", **OPTIONS)


def test_parquet_groups_and_sparse_objects(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    folder = tmp_path / "mixed"
    folder.mkdir()
    frame = pandas.DataFrame(portion(0), columns=list("abc"))
    frame.to_parquet(folder / "a.parquet")
    frame[:0].to_parquet(folder / "without-rows.parquet")  # which keeps nothing waiting
    group = zarr.create_group(str(folder / "b.zarr"))
    group.create_array("X", shape=(700, 3), chunks=(300, 3), dtype="f4")[:] = portion(1)
    dense = dc.open_dataset(portion(2))
    dc.lightweight_coreset(portion(3), 50, random_state=0)
    dc.LightweightCoreset(50, random_state=0).fit(portion(3)).save(str(folder / "d.zarr"))
    (folder / "notes.txt").write_text("not an object")
    cycle = open_loop(folder, tmp_path / "state").cycle()
    assert found(cycle) == {}
    assert cycle.rows_seen == 700 + 700 + 50
    assert dense.n_rows == 700
    sparse = tmp_path / "sparse"
    from scipy.sparse import csr_array

    for number in range(3):
        rows = dc.open_dataset(csr_array(np.where(portion(number) > 0, portion(number), 0)))
        write_rows(str(sparse / f"{number}.zarr"), [rows.held], rows)
    loop = open_loop(sparse, tmp_path / "of-sparse")
    assert loop.cycle().rows_seen == 2100
    assert bits(open_loop(sparse, tmp_path / "of-sparse")) == bits(loop)


def test_labels(feed: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    places = {"labels": str(labels)}
    loop = open_loop(feed, tmp_path / "state", **places)
    loop.cycle()
    held = {}
    for number in range(N):
        name = f"part-{number:04d}.zarr"
        held[name] = zarr.open_array(str(labels / name), mode="r")[:]
        assert held[name].shape == (700,)
    # The centres hardly move, so neither do the labels.
    model = dc.load_model(str(tmp_path / "state" / "models" / f"{N * 700:012d}"))
    same = np.mean(model.predict(portion(7)) == held["part-0007.zarr"])
    assert same > 0.98
    # Written again, as after a kill before the commit: the same.
    shutil.rmtree(tmp_path / "state")
    open_loop(feed, tmp_path / "state", **places).cycle()
    for name, before in held.items():
        assert np.array_equal(zarr.open_array(str(labels / name), mode="r")[:], before)


def test_half_lives_by_the_timestamps_of_objects(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    for number, stamp in enumerate(["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+00:00"]):
        put(feed, number, timestamp=stamp)
    cycle = open_loop(feed, tmp_path / "state", half_life="1h").cycle()
    assert cycle.remembered == pytest.approx(350 + 700)


def test_drift_is_reported(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    for number in range(6):
        put(feed, number, portion(number, 1024))
    loop = open_loop(feed, tmp_path / "state")
    assert loop.cycle().drifts == ()
    put(feed, 7, portion(7, 1024) + np.float32(200))
    (drift,) = loop.cycle().drifts
    assert drift["ratio"] > 1.5
    assert loop.state.fold.drift.is_high
    status = json.loads((tmp_path / "state" / "status.json").read_text())
    assert sum(status["drift"]["counts"]) == pytest.approx(1024)


def test_drift_is_reported_once_with_bad_objects(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cutting, "PIECE_BYTES", 1)  # a leaf each: some are folded before one is bad
    feed, heard = tmp_path / "feed", list[Event]()
    for number in range(4):
        put(feed, number, portion(number, 1024))
    loop = open_loop(feed, tmp_path / "state", callbacks=[heard.append])
    loop.cycle()
    rows = portion(6, 1024)
    rows[1000] = np.inf
    for number in (5, 7, 8):
        put(feed, number, portion(number, 1024) + np.float32(200))
    put(feed, 6, rows)
    put(feed, 9, rows)
    cycle = loop.cycle()
    assert found(cycle) == dict.fromkeys(("part-0006.zarr", "part-0009.zarr"), "corrupt")
    assert len(cycle.drifts) == 1
    assert len([event for event in heard if isinstance(event, DriftFound)]) == 1
    for number in (6, 9):
        shutil.rmtree(feed / f"part-{number:04d}.zarr")
    other = open_loop(feed, tmp_path / "other")
    other.cycle()
    assert bits(other)["arrays"] == bits(loop)["arrays"]


def test_a_state_belongs_to_its_stream(feed: Path, tmp_path: Path) -> None:
    open_loop(feed, tmp_path / "state").cycle()
    with pytest.raises(CheckpointError, match=r"parameters\.n_clusters was 4 and is 5"):
        open_loop(feed, tmp_path / "state", n_clusters=5)
    with pytest.raises(CheckpointError, match=r"source\.url was"):
        open_loop(tmp_path, tmp_path / "state")
    # The seed is the state's own.
    assert open_loop(feed, tmp_path / "state", random_state=9).state.seed == 1


def test_a_pattern_selects_objects(feed: Path, tmp_path: Path) -> None:
    loop = open_loop(f"{feed}/part-000[0-2].zarr", tmp_path / "state")
    assert loop.cycle().rows_seen == 3 * 700
    with pytest.raises(InvalidParameterError, match="order='size' should be one of"):
        open_loop(feed, tmp_path / "other", order="size")


def test_the_ledger_has_few_segments(tmp_path: Path) -> None:
    feed = tmp_path / "feed"
    for number in range(40):
        put(feed, number, portion(number, 20))
        open_loop(feed, tmp_path / "state").cycle()
    loop = open_loop(feed, tmp_path / "state")
    assert order_of(loop) == [f"part-{number:04d}.zarr" for number in range(40)]
    assert len(loop.state.ledger.segments) <= 7
    assert len(list((tmp_path / "state" / "ledger").iterdir())) <= 20
    (segment,) = (tmp_path / "state" / "ledger").glob("0000000000-*")
    segment.write_text("{}")
    with pytest.raises(CheckpointError, match="damaged"):
        open_loop(feed, tmp_path / "state")


def test_a_second_loop_is_refused(feed: Path, tmp_path: Path) -> None:
    one, two = (open_loop(feed, tmp_path / "state") for _ in range(2))
    assert one.cycle().rows_seen == N * 700
    with pytest.raises(CheckpointError, match="committed by another loop"):
        two.cycle()
    assert two.cycle().new_rows == 0


def test_columns_of_parquet_objects(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pq = pytest.importorskip("pyarrow.parquet")
    folder, plain = tmp_path / "in", tmp_path / "plain"
    plain.mkdir()
    folder.mkdir()
    for number in range(3):
        rows = portion(number)
        ids = [f"{number}-{i}" for i in range(len(rows))]
        table = pa.table({"id": ids, "emb": list(rows), "price": rows[:, 0]})
        pq.write_table(table, folder / f"{number}.parquet")
        zarr.create_array(str(plain / f"{number}.zarr"), data=rows)
    loop = open_loop(folder, tmp_path / "state", columns={"columns": "emb", "id_column": "id"})
    assert loop.cycle().rows_seen == 2100
    expected = open_loop(plain, tmp_path / "expected")
    expected.cycle()
    assert bits(loop)["body"] == bits(expected)["body"]
    with pytest.raises(CheckpointError, match="source"):
        open_loop(folder, tmp_path / "state", columns="price").cycle()
    with pytest.raises(
        InvalidParameterError, match=r"choose columns of a table, but .*0.zarr. is a Zarr array"
    ):
        open_loop(plain / "0.zarr", tmp_path / "other", columns="emb")


def test_files_that_are_not_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "rows.npy", portion(0))
    with pytest.warns(
        UserWarning, match=r"holds 1 files that a stream does not read, e.g. 'rows.npy'"
    ):
        open_loop(tmp_path / "in", tmp_path / "state").cycle()


def test_files_of_one_size_and_time_are_no_copies(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    folder = tmp_path / "feed"
    folder.mkdir()
    for number in range(2):  # as of a writer who is faster than the clock of the disk
        frame = pandas.DataFrame(portion(number), columns=list("abcdefgh")[: portion(0).shape[1]])
        frame.to_parquet(folder / f"{number}.parquet", compression=None)
        os.utime(folder / f"{number}.parquet", (1e9, 1e9))
    sizes = {path.stat().st_size for path in folder.iterdir()}
    assert len(sizes) == 1
    shutil.copy2(folder / "0.parquet", folder / "2.parquet")
    cycle = open_loop(folder, tmp_path / "state").cycle()
    assert found(cycle) == {"2.parquet": "duplicate"}
    assert cycle.rows_seen == 2 * len(portion(0))
