"""Parquet files read in place: lists and numbers, many files, ids, nulls, and faults."""

from __future__ import annotations

import os
import pickle
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.data import parquet
from daskcluster.data import parquet as module
from daskcluster.data.convert import convert
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError
from daskcluster.typing import Visibility

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = np.random.default_rng(0).normal(size=(1000, 8))
IDS = [f"row-{i}" for i in range(1000)]


def lists(rows: np.ndarray, kind: str = "list") -> Any:
    """Return rows as a list column of one of Arrow's kinds."""
    values = pa.array(rows.ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    if kind == "large":
        return pa.LargeListArray.from_arrays(offsets.astype(np.int64), values)
    return pa.ListArray.from_arrays(offsets.astype(np.int32), values)


def write_parts(folder: Path, rows: np.ndarray, n_files: int = 12, **columns: Any) -> Path:
    """Write rows to ``part-0.parquet`` and so on, each of several row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = np.linspace(0, len(rows), n_files + 1).astype(int)
    for i, (start, stop) in enumerate(pairwise(edges)):
        table = pa.table(
            {"id": IDS[start:stop], "emb": lists(rows[start:stop])}
            | {name: values[start:stop] for name, values in columns.items()}
        )
        pq.write_table(table, folder / f"part-{i}.parquet", row_group_size=30)
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.txt").write_text("of another kind")
    return folder


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
def test_list_columns_of_every_kind(kind: str, tmp_path: Path) -> None:
    for dtype in ("f2", "f4", "f8", "i1", "u1", "i2", "i4"):
        rows, path = (ROWS * 20).astype(dtype), tmp_path / f"{dtype}.parquet"
        pq.write_table(pa.table({"emb": lists(rows, kind)}), path, row_group_size=300)
        dataset = open_dataset(path)
        assert dataset.dtype == dtype
        assert dataset.chunk_sizes == (300, 300, 300, 100)
        assert np.array_equal(dataset.to_numpy(), rows), dtype
        wanted = np.array([999, 0, 301, 300])
        assert np.array_equal(dataset.take(wanted), rows[wanted]), dtype


@pytest.mark.parametrize("how", ["folder", "pattern", "list", "recipe"])
def test_many_files_are_one_dataset_in_the_order_of_their_numbers(how: str, tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "emb", ROWS)
    names = [str(folder / f"part-{i}.parquet") for i in range(12)]
    source: Any = {"pattern": f"{folder}/part-*.parquet", "list": names}.get(how, folder)
    dataset: Any = open_dataset(source, columns={"id_column": "id"})
    if how == "recipe":
        dataset = pickle.loads(pickle.dumps(dataset.recipe())).open()
    assert np.array_equal(dataset.to_numpy(), ROWS)
    assert dataset.ids(0, 1000).to_pylist() == IDS
    assert dataset.ids(80, 170).to_pylist() == IDS[80:170]
    assert dataset.visibility == Visibility.HOST
    assert "12 Parquet files" in repr(dataset)


def test_a_list_keeps_its_order(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, ROWS, 4)
    dataset = open_dataset([folder / "part-2.parquet", folder / "part-0.parquet"])
    assert np.array_equal(dataset.to_numpy(), np.concatenate([ROWS[500:750], ROWS[:250]]))


def test_the_same_model_as_from_an_array(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, ROWS, w=np.arange(1000.0) + 1)
    for weights in (None, "w"):
        start = ROWS[:5]
        stored = dc.open_dataset(f"{folder}/*.parquet", id_column="id", weights=weights)
        held = dc.open_dataset(ROWS, weights=None if weights is None else np.arange(1000.0) + 1)
        models = [dc.KMeans(5, init=start, random_state=0).fit(data) for data in (stored, held)]
        assert np.array_equal(models[0].cluster_centers_, models[1].cluster_centers_)
        assert np.array_equal(models[0].labels_, models[1].labels_)


def test_numeric_columns_weights_and_drop(tmp_path: Path) -> None:
    table = pa.table(
        {"id": IDS, "x": ROWS[:, 0].astype("f4"), "y": ROWS[:, 1].astype("f4"), "w": np.ones(1000)}
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    chosen = dc.open_dataset(tmp_path / "t.parquet", columns=["y", "x"])
    assert np.array_equal(chosen.to_numpy(), ROWS[:, 1::-1].astype("f4"))
    assert chosen.feature_names == ("y", "x")
    rest = dc.open_dataset(tmp_path / "t.parquet", id_column="id", weights="w")
    assert np.array_equal(rest.to_numpy(), ROWS[:, :2].astype("f4"))
    assert np.asarray(rest.weights).sum() == rest.weights.sum() == 1000
    again: Any = pickle.loads(pickle.dumps(rest))
    assert np.array_equal(again.weights.read(100, 103), np.ones(3))
    dropped = dc.open_dataset(tmp_path / "t.parquet", drop=["id", "w"])
    assert dropped.n_features == 2
    both = pa.table({"emb": lists(ROWS), "x": ROWS[:, 0]})
    pq.write_table(both, tmp_path / "both.parquet")
    mixed = dc.open_dataset(tmp_path / "both.parquet", columns=["x", "emb"])
    assert np.array_equal(mixed.to_numpy(), np.column_stack([ROWS[:, 0], ROWS]))


def test_large_row_groups_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 13)
    monkeypatch.setattr(module, "READ_BYTES", 1 << 12)
    pq.write_table(pa.table({"emb": lists(ROWS)}), tmp_path / "x.parquet", row_group_size=700)
    dataset: Any = open_dataset(tmp_path / "x.parquet")
    assert dataset.n_readers == 1
    assert max(dataset.chunk_sizes) == (1 << 12) // 64
    assert np.array_equal(dataset.to_numpy(), ROWS)
    assert np.array_equal(
        np.concatenate([c.rows for c in dataset.chunks([(690, 720)])]), ROWS[690:720]
    )
    wanted = np.array([650, 10, 999, 300])  # backwards too
    assert np.array_equal(dataset.take(wanted), ROWS[wanted])


def test_nulls_are_nan_and_footers_tell_whether_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = [list(row) for row in ROWS[:90]]
    rows[0], rows[40], rows[77][3] = None, None, None
    expected = ROWS[:90].copy()
    expected[[0, 40]] = expected[77, 3] = np.nan
    emb = pa.array(rows, pa.list_(pa.float64()))
    pq.write_table(
        pa.table({"id": IDS[:90], "emb": emb}), tmp_path / "x.parquet", row_group_size=30
    )
    left = np.delete(np.arange(90), [0, 40, 77])
    for most in (1 << 26, 1 << 10):  # row groups are read as a whole, and streamed
        monkeypatch.setattr(module, "MOST_BYTES", most)
        dataset = open_dataset(tmp_path / "x.parquet", columns={"id_column": "id"})
        assert np.array_equal(dataset.to_numpy(), expected, equal_nan=True)
        kept: Any = dc.open_dataset(tmp_path / "x.parquet", missing="drop", id_column="id")
        assert np.array_equal(kept.to_numpy(), ROWS[left])
        assert kept.ids(0, 87).to_pylist() == [IDS[i] for i in left]
    late = pa.array([None] * 100 + [[1.0, 2.0]])
    pq.write_table(pa.table({"emb": late}), tmp_path / "late.parquet", row_group_size=10)
    assert open_dataset(tmp_path / "late.parquet").to_numpy()[-1].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "options", "dtype"),
    [
        ([1, 2], {}, "int16"),
        ([1, None], {}, "float32"),
        ([1, 2], {"write_statistics": False}, "float32"),
        ([[1, 2], [3, 4]], {}, "int16"),
        ([[1, 2], [3, None]], {}, "float32"),
        ([[1, 2], None], {}, "float32"),
    ],
)
def test_integers_are_floating_where_a_file_may_hold_nulls(
    values: Any, options: Any, dtype: str, tmp_path: Path
) -> None:
    kind = pa.list_(pa.int16()) if isinstance(values[0], list) else pa.int16()
    whole = pa.table({"a.b": pa.array(values[:1] * 2, kind)})
    pq.write_table(whole, tmp_path / "0.parquet")
    pq.write_table(pa.table({"a.b": pa.array(values, kind)}), tmp_path / "1.parquet", **options)
    dataset = open_dataset(tmp_path)
    assert dataset.dtype == dtype
    nan = np.full(np.shape(values[0]), np.nan)
    expected = [*[values[0]] * 3, nan if values[1] is None else values[1]]
    found = dataset.to_numpy().reshape(4, *np.shape(values[0]))
    assert np.array_equal(found, np.array(expected, float), equal_nan=True)
    required = pa.schema([pa.field("a.b", pa.int16(), nullable=False)])
    pq.write_table(
        whole.cast(required)
        if dtype == "int16" and kind == pa.int16()
        else pa.table({"a.b": pa.array([1, 2], pa.int16())}, required),
        tmp_path / "required.parquet",
        write_statistics=False,
    )
    assert open_dataset(tmp_path / "required.parquet").dtype == "int16"


def test_a_column_without_values_in_some_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2], "y": pa.nulls(2)}), tmp_path / "0.parquet")
    alone = open_dataset(tmp_path).to_numpy()
    assert np.array_equal(alone, [[1, np.nan], [2, np.nan]], equal_nan=True)
    pq.write_table(pa.table({"x": [3], "y": [4]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": pa.nulls(1), "y": [5]}), tmp_path / "2.parquet")
    expected = [[1, np.nan], [2, np.nan], [3, 4], [np.nan, 5]]
    assert np.array_equal(open_dataset(tmp_path).to_numpy(), expected, equal_nan=True)
    pq.write_table(pa.table({"x": [1], "y": ["text"]}), tmp_path / "3.parquet")
    with pytest.raises(
        InvalidDataError, match=r"3.parquet' has string in column 'y', where .* int64"
    ):
        open_dataset(tmp_path)
    pq.write_table(pa.table({"x": [1], "w": [None]}), tmp_path / "w.parquet")
    with pytest.raises(
        InvalidDataError, match=r"'w' of the weights is null in row 0 of .*w.parquet"
    ):
        dc.open_dataset(tmp_path / "w.parquet", weights="w")


def test_rows_of_other_lengths_and_files_that_differ(tmp_path: Path) -> None:
    ragged = pa.table({"emb": pa.array([[1.0, 2.0], [1.0, 2.0, 3.0]])})
    pq.write_table(ragged, tmp_path / "r.parquet")
    with pytest.raises(InvalidDataError, match=r"list of 3 numbers in row 1 of .*first row has 2"):
        open_dataset(tmp_path / "r.parquet").to_numpy()
    folder = write_parts(tmp_path / "emb", ROWS, 2)
    pq.write_table(pa.table({"emb": ROWS[:, 0]}), folder / "part-3.parquet")
    with pytest.raises(
        InvalidDataError, match=r"part-3.parquet' has double .*part-0.parquet' has \w*list<"
    ):
        open_dataset(folder)
    pq.write_table(pa.table({"vec": lists(ROWS)}), folder / "part-3.parquet")
    with pytest.raises(InvalidDataError, match=r"part-3.parquet' lacks column 'emb'"):
        open_dataset(folder)
    (folder / "part-3.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidDataError, match=r"part-3.parquet' is no readable Parquet file"):
        open_dataset(folder)


def test_columns_that_are_not_there_or_no_numbers(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, ROWS, 1)
    path = folder / "part-0.parquet"
    with pytest.raises(InvalidParameterError, match=r"no column 'key' in .*columns: id, emb"):
        dc.open_dataset(path, id_column="key")
    with pytest.raises(InvalidDataError, match=r"no real numbers: 'id' \(.*\).*\(--columns\)"):
        dc.open_dataset(path, columns="id")
    with pytest.raises(InvalidParameterError, match=r"no column 'v' in .* for the weights"):
        dc.open_dataset(path, weights="v")
    two = pa.table({"a": lists(ROWS), "b": lists(ROWS)})
    pq.write_table(two, tmp_path / "two.parquet")
    with pytest.raises(InvalidDataError, match=r"2 list columns of numbers \(a, b\); choose"):
        dc.open_dataset(tmp_path / "two.parquet")
    with pytest.raises(InvalidParameterError, match=r"columns= and drop= were both given"):
        dc.open_dataset(path, columns="emb", drop="id")
    with pytest.raises(InvalidParameterError, match=r"id_column='id' is one of columns="):
        dc.open_dataset(path, columns=["id", "emb"], id_column="id")
    with pytest.raises(InvalidParameterError, match=r"choose columns of a table.*leave them out"):
        dc.open_dataset(np.ones((5, 2)), id_column="id")


def test_ids_among_features_raise_a_warning(tmp_path: Path) -> None:
    table = pa.table(
        {"serial": np.arange(1000), "x": ROWS[:, 0], "customer_id": np.arange(1000) % 7}
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    with pytest.warns(UserWarning, match=r"'serial', 'customer_id' looks like an id"):
        dc.open_dataset(tmp_path / "x.parquet")
    with pytest.warns(UserWarning, match=r"'serial', 'customer_id' looks like an id"):
        dc.open_dataset(table.to_pandas())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dc.open_dataset(tmp_path / "x.parquet", drop=["serial", "customer_id"])


def test_no_file_matches_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetNotFoundError, match=r"No file matches '.*\*.parquet'; check the pattern"
    ):
        open_dataset(f"{tmp_path}/*.parquet")
    with pytest.raises(DatasetNotFoundError, match=r"There is no file or folder at"):
        open_dataset([tmp_path / "none.parquet"])
    folder = write_parts(tmp_path, ROWS, 2)
    pq.write_table(pa.table({"id": IDS[:0], "emb": lists(ROWS)[:0]}), folder / "part-1.5.parquet")
    with pytest.warns(UserWarning, match=r"1 of 3 files have no rows \(part-1.5.parquet\)"):
        dataset = open_dataset(folder)
    assert np.array_equal(dataset.to_numpy(), ROWS)
    np.save(folder / "more.npy", ROWS)
    with pytest.raises(InvalidDataError, match=r"not all of one kind"):
        open_dataset(folder)


def test_a_file_that_changes_or_vanishes_in_a_fit(tmp_path: Path) -> None:
    folder = write_parts(tmp_path, ROWS, 3)
    dataset: Any = open_dataset(folder)
    guard = dataset.change_guard()
    guard.check()
    (folder / "part-9.parquet").write_bytes(b"another writer")
    guard.check()
    write_parts(folder, ROWS + 1, 2)
    with pytest.raises(InvalidDataError, match=r"part-0.parquet was rewritten"):
        guard.check()
    parquet.read_footer.cache_clear()
    with pytest.raises(InvalidDataError, match=r"was replaced since the dataset was opened"):
        dataset.to_numpy()
    os.unlink(folder / "part-1.parquet")
    parquet.read_footer.cache_clear()
    with pytest.raises(DatasetNotFoundError, match=r"part-1.parquet' has disappeared"):
        dataset.take(np.array([400]))


def test_files_in_a_bucket(s3: dict[str, Any], tmp_path: Path) -> None:
    import s3fs

    folder = write_parts(tmp_path, ROWS, 3, w=np.ones(1000))
    s3fs.S3FileSystem(**s3).put(str(folder), "rows/emb", recursive=True)
    for source in ("s3://rows/emb", "s3://rows/emb/part-*.parquet"):
        dataset: Any = dc.open_dataset(source, storage_options=s3, id_column="id", weights="w")
        assert np.array_equal(dataset.to_numpy(), ROWS)
        assert dataset.ids(330, 340).to_pylist() == IDS[330:340]
        assert dataset.visibility == Visibility.EVERYONE
        dataset.change_guard().check()
        assert b"planted" not in pickle.dumps(dataset.recipe())
    with pytest.raises(DatasetNotFoundError, match=r"No file matches"):
        dc.open_dataset("s3://rows/emb/*.pq", storage_options=s3)


def test_convert_takes_them_all(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "emb", ROWS)
    convert(folder, tmp_path / "o.zarr", columns={"id_column": "id"}, dtype="float32")
    assert np.array_equal(open_dataset(tmp_path / "o.zarr").to_numpy(), ROWS.astype("f4"))


def test_links_and_files_without_a_time_are_guarded_like_others(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "stored", ROWS, 2)
    os.utime(folder / "part-0.parquet", (0, 0))
    links = tmp_path / "links"
    links.mkdir()
    for part in folder.glob("*.parquet"):
        os.symlink(part, links / part.name)
    os.utime(links / "part-1.parquet", (9, 9), follow_symlinks=False)
    for source in (folder, links, f"{links}/*.parquet", sorted(links.iterdir())):
        guard: Any = open_dataset(source).change_guard()
        guard.check()
    os.utime(folder / "part-1.parquet", (5, 5))
    with pytest.raises(InvalidDataError, match=r"part-1.parquet was rewritten"):
        guard.check()


def test_other_objects_next_to_the_rows_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    from daskcluster.storage import change_guard

    memory = fsspec.filesystem("memory")
    memory.put(str(write_parts(tmp_path, ROWS, 2)), "/guarded/rows", recursive=True)
    for i in range(8):
        memory.pipe_file(f"/guarded/rows/other-{i}", b"")
    guard: Any = open_dataset("memory://guarded/rows/*.parquet").change_guard()
    monkeypatch.setattr(change_guard, "MOST_OBJECTS", 4)
    memory.pipe_file("/guarded/rows/part-1.parquet", b"another writer")
    with pytest.raises(InvalidDataError, match=r"part-1.parquet was rewritten"):
        guard.check()
