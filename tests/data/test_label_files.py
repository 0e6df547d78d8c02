"""Labels as Parquet, csv and .npy: with ids, whole or absent, resumable."""

from __future__ import annotations

import os
import re
import uuid
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import daskcluster as dc
from daskcluster import jobs
from daskcluster.chunkwise import assign
from daskcluster.cli.main import main
from daskcluster.data import label_files
from daskcluster.errors import InvalidParameterError, OutputExistsError
from tests.data.test_parquet import IDS, ROWS, write_parts

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")
csv = pytest.importorskip("pyarrow.csv")


@pytest.fixture(scope="module")
def model() -> Any:
    return dc.KMeans(5, init=ROWS[:5]).fit(ROWS)


@pytest.fixture
def source(tmp_path: Path) -> Any:
    return dc.open_dataset(write_parts(tmp_path / "emb", ROWS), id_column="id")


def test_labels_with_ids(model: Any, source: Any, tmp_path: Path) -> None:
    expected = np.asarray(model.labels_)
    model.predict(source, output=f"{tmp_path}/l.parquet")
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.schema.names == ["id", "label"]
    assert table.column("id").to_pylist() == IDS
    assert np.array_equal(table.column("label"), expected)
    model.predict(source, output=f"{tmp_path}/l.csv")
    assert csv.read_csv(tmp_path / "l.csv").column("id").to_pylist() == IDS
    model.predict(source, output=f"{tmp_path}/l.npy")
    assert np.array_equal(np.load(tmp_path / "l.npy"), expected)
    model.predict(ROWS, output=f"{tmp_path}/n.parquet")
    rows = pq.read_table(tmp_path / "n.parquet")
    assert rows.column("row").to_pylist() == list(range(1000))
    dc.KMeans(5, init=ROWS[:5]).fit(source).labels_.save(f"{tmp_path}/s.parquet")
    assert pq.read_table(tmp_path / "s.parquet").equals(table)
    assert sorted(os.listdir(tmp_path)) == [
        "emb",
        "l.csv",
        "l.npy",
        "l.parquet",
        "n.parquet",
        "s.parquet",
    ]


def test_npy_labels_of_a_map_have_its_shape(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ROWS.reshape(40, 25, -1).copy()
    cells[:7, 3], cells[-1] = np.nan, np.nan
    zarr.create_array(f"{tmp_path}/map.zarr", data=cells, chunks=(8, 25, cells.shape[2]))
    grid = dc.open_grid(f"{tmp_path}/map.zarr", features=2, nodata=np.nan)
    monkeypatch.setattr(label_files, "_CELLS", 90)
    monkeypatch.setattr(label_files, "group_chunks", lambda edges, _: pairwise(edges.tolist()))
    for n_nearest in (None, 2):
        model.predict(grid.dataset, output=f"{tmp_path}/l{n_nearest}.npy", n_nearest=n_nearest)
    labels = np.load(tmp_path / "lNone.npy")
    assert np.array_equal(labels >= 0, grid.mask)
    assert np.array_equal(labels[grid.mask], model.labels_[grid.mask.ravel()])
    assert np.array_equal(np.load(tmp_path / "l2.npy")[..., 0], labels)


def test_nearest_centres_and_distances(model: Any, source: Any, tmp_path: Path) -> None:
    labels, distances = model.predict(ROWS, n_nearest=2, return_distance=True)
    model.predict(source, output=f"{tmp_path}/l.parquet", n_nearest=2, return_distance=True)
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.schema.names == ["id", "label", "distance"]
    assert table.column("label").to_pylist() == labels.tolist()
    assert table.column("distance").to_pylist() == distances.tolist()
    model.predict(source, output=f"{tmp_path}/l.zarr", n_nearest=2, return_distance=True)
    group = zarr.open_group(tmp_path / "l.zarr", mode="r")
    assert np.array_equal(group["label"][:], labels)
    assert np.array_equal(group["distance"][:], distances)
    model.predict(source, output=f"{tmp_path}/d.zarr", return_distance=True)
    assert np.array_equal(
        zarr.open_group(tmp_path / "d.zarr", mode="r")["distance"][:], distances[:, 0]
    )
    model.predict(source, output=f"{tmp_path}/two.npy", n_nearest=2)
    assert np.array_equal(np.load(tmp_path / "two.npy"), labels)
    with pytest.raises(InvalidParameterError, match=r"a .npy file holds labels alone"):
        model.predict(source, output=f"{tmp_path}/x.npy", return_distance=True)
    with pytest.raises(InvalidParameterError, match=r"csv file holds no lists.*write .parquet"):
        model.predict(source, output=f"{tmp_path}/x.csv", n_nearest=2)
    assert not [name for name in os.listdir(tmp_path) if "x." in name]


def test_labels_are_whole_or_absent_and_resumed(
    model: Any, source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise OSError("the disk is full")

    url = f"{tmp_path}/l.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(label_files, "_write_table", broken)
        for resume in (False, True):
            with pytest.raises(OSError, match="the disk is full"):
                model.predict(source, output=url, resume=resume)
            assert not os.path.exists(url)
    labelled: list[Any] = []
    with monkeypatch.context() as patch:
        # The pass was finished: its labels are taken over.
        patch.setattr(assign, "refuse_bad", labelled.append)
        model.predict(source, output=url, resume=True)
    assert not labelled
    assert np.array_equal(pq.read_table(url).column("label"), np.asarray(model.labels_))
    with pytest.raises(OutputExistsError, match=r"exists already; pass overwrite=True"):
        model.predict(source, output=url)
    os.rename(url, tmp_path / "behind.parquet")
    os.symlink("behind.parquet", url)
    model.predict(source, output=url, overwrite=True)
    assert os.path.islink(url)
    assert not os.path.islink(tmp_path / "behind.parquet")
    os.mkdir(tmp_path / "folder.parquet")
    (tmp_path / "folder.parquet" / "x").write_text("")
    with pytest.raises(OutputExistsError, match=r"is not of a kind that overwrite=True replaces"):
        model.predict(source, output=f"{tmp_path}/folder.parquet", overwrite=True)
    with pytest.raises(
        InvalidParameterError, match=r"should end in .parquet, .pq, .csv, .npy or .zarr"
    ):
        model.predict(source, output=f"{tmp_path}/l.json")


def test_jobs_and_commands(source: Any, tmp_path: Path) -> None:
    run = CliRunner().invoke
    fit = [
        "fit",
        f"{tmp_path}/emb/*.parquet",
        "--id-column",
        "id",
        "--n-clusters",
        "5",
        "--random-state",
        "0",
    ]
    done = run(main, [*fit, "--model", f"{tmp_path}/m", "--labels", f"{tmp_path}/l.parquet"])
    assert done.exit_code == 0, done.output
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.column("id").to_pylist() == IDS
    fit += ["--model", f"{tmp_path}/m", "--distances", "--overwrite"]
    for labels in ("both.parquet", "both", "both"):
        done = run(main, [*fit, "--labels", f"{tmp_path}/{labels}"])
        assert done.exit_code == 0, done.output
    both, group = pq.read_table(tmp_path / "both.parquet"), zarr.open_group(f"{tmp_path}/both")
    assert both.column("label").equals(table.column("label"))
    distances = dc.load_model(f"{tmp_path}/m").transform(f"{tmp_path}/emb/*.parquet").min(axis=1)
    for found in (both.column("distance"), group["distance"][:]):
        assert np.allclose(found, distances)
    assert "needs --labels" in run(main, fit).output
    refused = run(main, [*fit, "--labels", f"{tmp_path}/k", "--algorithm", "kernel"])
    assert "there are no distances to them" in refused.output
    predict = ["predict", f"{tmp_path}/m", f"{tmp_path}/emb", "--id-column", "id"]
    done = run(
        main, [*predict, "--output", f"{tmp_path}/p.parquet", "--n-nearest", "2", "--distances"]
    )
    assert done.exit_code == 0, done.output
    nearest = pq.read_table(tmp_path / "p.parquet")
    assert [label[0] for label in nearest.column("label").to_pylist()] == table.column(
        "label"
    ).to_pylist()
    done = run(main, [*predict, "--output", f"{tmp_path}/p.parquet"])
    assert done.exit_code != 0
    assert "exists already" in done.output
    # Before anything is done, also where no scheduler answers.
    predict += ["--output", f"{tmp_path}/l.NC", "--detach", "--scheduler", "tcp://127.0.0.1:9"]
    refused = run(main, predict)
    assert "A map is written as Zarr, a folder: 'l.zarr'." in refused.output
    info = run(main, ["info", f"{tmp_path}/emb", "--id-column", "id"])
    assert "12 Parquet files" in info.output
    assert "float64" in info.output


def test_labels_in_a_bucket(model: Any, s3: dict[str, Any]) -> None:
    import s3fs

    url = "s3://rows/out/labels.parquet"
    model.predict(ROWS, output=url, storage_options=s3)
    fs = s3fs.S3FileSystem(**s3)
    with fs.open(url) as file:
        assert np.array_equal(pq.read_table(file).column("label"), np.asarray(model.labels_))
    assert [name.rsplit("/", 1)[-1] for name in fs.find("rows/out")] == ["labels.parquet"]
    record = jobs.check_outputs({"output": url}, {}, s3, overwrite=True)
    assert record is None
    with pytest.raises(OutputExistsError, match="exists already"):
        jobs.check_outputs({"output": url}, {}, s3, overwrite=False)


@pytest.mark.parametrize("kind", ["string", "int", "large", "float", "bytes"])
def test_ids_that_are_there_twice_are_counted(kind: str, tmp_path: Path) -> None:
    ids: Any = {
        "int": lambda i: 2**62 + i, "float": lambda i: i / 4, "bytes": lambda i: b"doc-%d" % i
    }.get(kind, "doc-{}".format)  # fmt: skip
    ids = ["" if i == 7 and kind in ("string", "large") else ids(i) for i in range(500)]
    ids[400], ids[20], ids[499] = ids[10], ids[10], ids[10]
    types = {"string": pa.string(), "int": pa.int64(), "large": pa.large_string()}
    types |= {"float": pa.float64(), "bytes": pa.binary()}
    table = pa.table({"key": pa.array(ids, types[kind]), "x": np.arange(500.0)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=64)
    rows = dc.open_dataset(tmp_path / "rows.parquet", columns="x", id_column="key")
    model = dc.KMeans(2, random_state=0).fit(rows)
    text = (
        f"3 of 500 rows have an id in column 'key' that an earlier row has too, e.g. {ids[10]!r}:"
    )
    for name in ("labels.parquet", "labels.csv") if kind != "bytes" else ("labels.parquet",):
        with pytest.warns(UserWarning, match=re.escape(text)) as heard:
            model.predict(rows, output=str(tmp_path / name))
        assert len(heard) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unique = dc.open_dataset(table.slice(21, 370), columns="x", id_column="key")
        model.predict(unique, output=str(tmp_path / "other.parquet"))


def test_of_very_many_ids_a_share_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"key": np.tile(np.arange(0, 4000, 8), 2), "x": np.arange(1000.0)})
    rows = dc.open_dataset(table, columns="x", id_column="key")
    model = dc.KMeans(2, random_state=0).fit(rows)
    monkeypatch.setattr(label_files, "_MOST_IDS", 125)
    with pytest.warns(UserWarning, match=r"^At least \d+ of 1,000 rows") as heard:
        model.predict(rows, output=str(tmp_path / "labels.parquet"))
    found = int(str(heard[0].message).split()[2])
    assert 30 <= found <= 100  # about an eighth of 500


def test_ids_of_near_duplicates_that_are_there_twice_are_counted(tmp_path: Path) -> None:
    ids = pa.array(["a", "b", "b", "c"])
    rows = dc.open_dataset(pa.table({"key": ids, "x": [0.0, 1, 1, 2]}), id_column="key")
    found = dc.near_duplicates(rows, 0.1, metric="euclidean")
    with pytest.warns(UserWarning, match=r"^1 of 4 rows have an id in column 'key' .* e\.g\. 'b'"):
        found.save(tmp_path / "groups.parquet")


def test_rows_without_an_id_are_counted(tmp_path: Path) -> None:
    ids = [None if i % 100 == 0 else f"doc-{i}" for i in range(21, 391)]
    table = pa.table({"key": pa.array(ids, pa.string()), "x": np.arange(370.0)})
    rows = dc.open_dataset(table, id_column="key")
    model = dc.KMeans(2, random_state=0).fit(rows)
    with pytest.warns(UserWarning, match=r"^3 of 370 rows have no id in column 'key'") as heard:
        model.predict(rows, output=str(tmp_path / "lacking.parquet"))
    assert len(heard) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = dc.open_dataset(table.slice(80, 10), id_column="key")
        model.predict(named, output=str(tmp_path / "other.parquet"))


def _ids(kind: str) -> Any:
    texts = [f"row {at}" for at in range(len(ROWS))]
    uuids = [uuid.UUID(int=at) for at in range(len(ROWS))]
    return {
        "view": lambda: pa.array(texts, pa.string_view()),
        "dictionary": lambda: pa.array(texts).dictionary_encode(),
        "uuid": lambda: pa.array([each.bytes for each in uuids], pa.binary(16)),
        "binary": lambda: pa.array([each.encode() for each in texts], pa.binary()),
        "list": lambda: pa.array([[at] for at in range(len(ROWS))]),
        "struct": lambda: pa.array([{"a": at} for at in range(len(ROWS))]),
    }[kind]()


@pytest.mark.parametrize(
    "kind", ["view", "dictionary", "uuid", "typed uuid", "binary", "list", "struct"]
)
def test_parquet_has_ids_of_all_types(kind: str, model: Any, tmp_path: Path) -> None:
    columns = {f"x{at}": ROWS[:, at] for at in range(ROWS.shape[1])}
    ids = pa.array(
        [uuid.uuid5(uuid.NAMESPACE_URL, str(at)).bytes for at in range(len(ROWS))], pa.uuid()
    )
    rows = dc.open_dataset(
        pa.table(columns | {"id": ids if kind == "typed uuid" else _ids(kind)}), id_column="id"
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*id in column")
        model.predict(rows, output=str(tmp_path / "labels.parquet"))
    assert pq.read_table(tmp_path / "labels.parquet").num_rows == len(ROWS)


@pytest.mark.parametrize("kind", ["view", "dictionary", "uuid", "binary", "list", "struct"])
def test_csv_has_ids_as_texts_or_they_are_refused_before_the_pass(
    kind: str, model: Any, tmp_path: Path
) -> None:
    columns = {f"x{at}": ROWS[:, at] for at in range(ROWS.shape[1])}
    rows = dc.open_dataset(pa.table(columns | {"id": _ids(kind)}), id_column="id")
    url = str(tmp_path / "labels.csv")
    if kind in ("binary", "list", "struct"):
        with pytest.raises(InvalidParameterError, match="the ids in column"):
            model.predict(rows, output=url)
        assert os.listdir(tmp_path) == []
        return
    model.predict(rows, output=url)
    texts = csv.read_csv(url).column("id").to_pylist()
    assert texts[7] == ("00000000-0000-0000-0000-000000000007" if kind == "uuid" else "row 7")
