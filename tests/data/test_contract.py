"""The contract of sources: rows mean the same whatever holds them and by whatever door they come in."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner
from pyarrow import orc
from scipy import sparse

import daskcluster as dc
from daskcluster import jobs
from daskcluster.cli.main import main
from daskcluster.data.sources import SOURCES
from daskcluster.errors import DaskClusterError, InvalidDataError, InvalidParameterError
from tests.extending.outside import Outside, register

NAMES = ("a", "b", "c")
ROWS = np.random.default_rng(3).normal(0, 3, (120, 3)).astype(np.float32)
ROWS[60:] += 20
HOLES = np.zeros(ROWS.shape, bool)
HOLES[[5, 5, 40, 119], [0, 1, 2, 0]] = True
GAPPY = np.where(HOLES, np.nan, ROWS).astype(np.float32)
COMPLETE = ~HOLES.any(axis=1)
Make = Callable[[Path, np.ndarray], Any]


def frame(rows: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(NAMES))


def arrow(table: pd.DataFrame) -> pa.Table:
    """Return a table in which missing values are null."""
    return pa.Table.from_pandas(table, preserve_index=False)


def lists(rows: np.ndarray) -> pa.Table:
    """Return a table of lists, in which missing values are null."""
    values = pa.array(rows.ravel(), mask=np.isnan(rows).ravel())
    return pa.table({"row": pa.ListArray.from_arrays(np.arange(len(rows) + 1) * 3, values)})


def saved(write: Callable[[Path], Any], path: Path) -> str:
    write(path)
    return str(path)


def text(table: pd.DataFrame, path: Path, **more: Any) -> str:
    table.to_csv(path, index=False, **more)
    return str(path)


def parquet(table: pa.Table, path: Path, **more: Any) -> str:
    pq.write_table(table, path, **more)
    return str(path)


def ipc(table: pa.Table, path: Path, opens: Any = pa.ipc.new_file) -> str:
    with opens(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return str(path)


def json_lines(table: pd.DataFrame, path: Path) -> str:
    table.to_json(path, orient="records", lines=True, double_precision=15)
    return str(path)


def zstd(path: str) -> str:
    with pa.output_stream(f"{path}.zst", compression="zstd") as out:
        out.write(Path(path).read_bytes())
    Path(path).unlink()
    return f"{path}.zst"


def hive(table: pd.DataFrame, folder: Path) -> str:
    """Write a table of which the names of folders have column c."""
    for number in range(max(1, len(table))):
        part = arrow(table.iloc[number : number + 1])
        value = part["c"][0].as_py() if len(table) else 1.0
        name = "__HIVE_DEFAULT_PARTITION__" if value is None else value
        path = folder / str(number) / f"c={name}" / "x.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(part.drop_columns("c"), path)
    return str(folder)


def delta(table: pa.Table, path: Path) -> str:
    library = pytest.importorskip("deltalake", reason="deltalake is not installed")
    library.write_deltalake(str(path), table)
    return str(path)


def iceberg(table: pa.Table, folder: Path) -> str:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    found = catalog.create_table("n.rows", table.schema)
    found.append(table)
    return found.metadata_location


def lance(table: pa.Table, path: Path) -> str:
    library = pytest.importorskip("lance", reason="pylance is not installed")
    library.write_dataset(table, str(path), max_rows_per_file=50)
    return str(path)


def grouped(rows: np.ndarray, path: Path) -> str:
    zarr.open_group(path, mode="w").create_array("X", data=rows, chunks=(50, 2))
    return str(path)


def stored(rows: np.ndarray, path: Path, name: str) -> str:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        file[name] = rows
    return str(path)


def uncounted(rows: np.ndarray) -> Any:
    lazy = da.from_array(rows, chunks=(50, 3))
    return lazy[da.ones(len(rows), chunks=50) > 0]


def masked(rows: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.array(np.where(np.isnan(rows), -9999, rows), mask=np.isnan(rows))


def annotated(rows: np.ndarray) -> Any:
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    return anndata.AnnData(rows, var=pd.DataFrame(index=list(NAMES)))


def many(table: pd.DataFrame, folder: Path) -> str:
    (folder / "parts").mkdir()
    for number in range(3):
        part = table.iloc[40 * number : 40 * number + 40]
        pq.write_table(arrow(part), folder / "parts" / f"part-{number}.parquet")
    return str(folder / "parts")


ARRAYS: dict[str, Make] = {
    "array": lambda folder, rows: rows,
    "list": lambda folder, rows: rows.tolist(),
    "Fortran order": lambda folder, rows: np.asfortranarray(rows),
    "view": lambda folder, rows: np.repeat(rows, 2, axis=0)[::2],
    "read-only": lambda folder, rows: np.frombuffer(rows.tobytes(), np.float32).reshape(-1, 3),
    "masked": lambda folder, rows: masked(rows),
    "objects": lambda folder, rows: rows.astype(object),
    "dask": lambda folder, rows: da.from_array(rows, chunks=(50, 2)),
    "dask of unknown lengths": lambda folder, rows: uncounted(rows),
    "masked dask": lambda folder, rows: da.from_array(masked(rows), chunks=(50, 2)),
    "npy": lambda folder, rows: saved(lambda path: np.save(path, rows), folder / "x.npy"),
    "memmap": lambda folder, rows: np.load(
        saved(lambda path: np.save(path, rows), folder / "x.npy"), mmap_mode="r"
    ),
    "npz": lambda folder, rows: saved(lambda path: np.savez(path, X=rows), folder / "x.npz"),
    "HDF5": lambda folder, rows: stored(rows, folder / "x.h5", "X"),
    "Zarr": lambda folder, rows: saved(
        lambda path: zarr.save_array(str(path), rows), folder / "x.zarr"
    ),
    "Zarr object": lambda folder, rows: zarr.create_array({}, data=rows, chunks=(50, 2)),
    "outside": lambda folder, rows: Outside(rows),
}
FRAMES: dict[str, Callable[[Path, pd.DataFrame], Any]] = {
    "pandas": lambda folder, table: table,
    "pandas of nullable types": lambda folder, table: table.convert_dtypes(convert_integer=False),
    "pandas over Arrow": lambda folder, table: arrow(table).to_pandas(types_mapper=pd.ArrowDtype),
    "Arrow": lambda folder, table: arrow(table),
    "polars": lambda folder, table: pl.from_arrow(arrow(table)),
    "lazy polars": lambda folder, table: pl.from_arrow(arrow(table)).lazy(),
    "dask frame": lambda folder, table: dd.from_pandas(table, npartitions=3),
    "Parquet": lambda folder, table: parquet(arrow(table), folder / "x.parquet", row_group_size=50),
    "Parquet without statistics": lambda folder, table: parquet(
        arrow(table), folder / "x.parquet", write_statistics=False
    ),
    "Parquet files": lambda folder, table: many(table, folder),
    "csv": lambda folder, table: text(table, folder / "x.csv"),
    "csv with NA": lambda folder, table: text(table, folder / "x.csv", na_rep="NA"),
    "csv, compressed": lambda folder, table: text(table, folder / "x.csv.gz"),
    "csv of bzip2": lambda folder, table: text(table, folder / "x.csv.bz2"),
    "csv of zstd": lambda folder, table: zstd(text(table, folder / "x.csv")),
    "tsv": lambda folder, table: text(table, folder / "x.tsv", sep="\t"),
    "Arrow file": lambda folder, table: ipc(arrow(table), folder / "x.arrow"),
    "Arrow stream": lambda folder, table: ipc(arrow(table), folder / "x.arrow", pa.ipc.new_stream),
    "ORC": lambda folder, table: saved(
        lambda path: orc.write_table(arrow(table), path), folder / "x.orc"
    ),
    "JSON lines": lambda folder, table: json_lines(table, folder / "x.jsonl"),
    "JSON lines, compressed": lambda folder, table: json_lines(table, folder / "x.ndjson.gz"),
    "folders": lambda folder, table: hive(table, folder / "rows"),
    "Delta": lambda folder, table: delta(arrow(table), folder / "rows"),
    "Iceberg": lambda folder, table: iceberg(arrow(table), folder),
    "Lance": lambda folder, table: lance(arrow(table), folder / "x.lance"),
    "Feather": lambda folder, table: saved(
        lambda path: table.to_feather(path), folder / "x.feather"
    ),
}
NAMED: dict[str, Make] = {
    "AnnData": lambda folder, rows: annotated(rows),
    "AnnData view": lambda folder, rows: annotated(np.vstack([rows, rows]))[: len(rows)],
    "h5ad": lambda folder, rows: saved(
        lambda path: annotated(rows).write_h5ad(path), folder / "x.h5ad"
    ),
}
LISTS: dict[str, Make] = {
    "Arrow lists": lambda folder, rows: lists(rows),
    "Parquet lists": lambda folder, rows: parquet(lists(rows), folder / "x.parquet"),
    "JSON lines of lists": lambda folder, rows: json_lines(
        lists(rows).to_pandas(), folder / "x.jsonl"
    ),
    "Arrow file of lists": lambda folder, rows: ipc(lists(rows), folder / "x.arrow"),
}
ALL = [*ARRAYS, *FRAMES, *NAMED, *LISTS]
STORED = [
    "Parquet files",
    "Arrow file",
    "ORC",
    "JSON lines",
    "csv",
    "csv of zstd",
    "folders",
    "Delta",
    "Lance",
]
TEXT = [kind for kind in FRAMES if "sv" in kind or "JSON" in kind]


@pytest.fixture(autouse=True)
def _outside() -> Iterator[None]:
    before = list(SOURCES)
    register()
    yield
    SOURCES[:] = before


def given(kind: str, folder: Path, rows: np.ndarray = ROWS) -> Any:
    if kind in FRAMES:
        return FRAMES[kind](folder, frame(rows))
    return {**ARRAYS, **NAMED, **LISTS}[kind](folder, rows)


@pytest.mark.parametrize("kind", ALL)
def test_every_door_gives_the_same_rows(kind: str, tmp_path: Path) -> None:
    source = given(kind, tmp_path)
    opened = dc.open_dataset(source)
    np.testing.assert_allclose(opened.to_numpy(), ROWS, rtol=1e-6)
    estimator = dc.KMeans(2, init=ROWS[[0, 60]])
    plain = dc.KMeans(2, init=ROWS[[0, 60]]).fit(ROWS)
    for rows in (source, opened):
        model = estimator.fit(rows)
        np.testing.assert_array_equal(np.asarray(model.labels_), plain.labels_)
        np.testing.assert_array_equal(np.asarray(plain.predict(rows)), plain.labels_)
        named = kind in FRAMES or kind in NAMED
        assert getattr(model, "feature_names_in_", np.empty(0)).tolist() == list(NAMES) * named
    url = str(tmp_path / "model")
    record = jobs.fit(source, n_clusters=2, init=ROWS[[0, 60]], model=url)
    assert record.n_rows == 120
    np.testing.assert_allclose(
        dc.load_model(url).cluster_centers_, plain.cluster_centers_, rtol=1e-6
    )
    if isinstance(source, str):
        done = CliRunner().invoke(main, ["score", url, source, "--json"])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("kind", ALL)
def test_nan_null_and_masked_are_missing(kind: str, tmp_path: Path) -> None:
    source = given(kind, tmp_path, GAPPY)
    with pytest.raises(InvalidDataError, match=r"contains NaN: first in row 5.*missing="):
        dc.KMeans(2, random_state=0).fit(source)
    dropped = dc.open_dataset(source, missing="drop")
    np.testing.assert_allclose(dropped.to_numpy(), ROWS[COMPLETE], rtol=1e-6)
    means = dc.open_dataset(source, missing="mean")
    filled = np.where(HOLES, np.nanmean(GAPPY.astype(np.float64), axis=0), ROWS)
    np.testing.assert_allclose(means.to_numpy(), filled, rtol=1e-5)
    model = dc.KMeans(2, init=ROWS[[0, 60]]).fit(means)
    np.testing.assert_array_equal(np.asarray(model.predict(source)), ROWS[:, 0] > 10)
    partial = dc.KMeans(2, init=ROWS[[0, 60]]).fit(dc.open_dataset(source, missing="partial"))
    np.testing.assert_array_equal(np.asarray(partial.labels_), ROWS[:, 0] > 10)
    record = jobs.fit(source, n_clusters=2, model=str(tmp_path / "model"), missing="drop")
    assert record.n_rows == COMPLETE.sum()


@pytest.mark.parametrize("kind", STORED)
def test_tables_in_a_bucket_are_like_those_on_disk(
    kind: str, tmp_path: Path, s3: dict[str, Any]
) -> None:
    import s3fs

    source = FRAMES[kind](tmp_path, frame(GAPPY).assign(id=np.arange(120)))
    name = f"rows/{kind.replace(' ', '-')}/{Path(source).name}"
    s3fs.S3FileSystem(**s3).put(source, name, recursive=True)
    dataset: Any = dc.open_dataset(f"s3://{name}", storage_options=s3, id_column="id")
    np.testing.assert_allclose(dataset.to_numpy(), GAPPY, rtol=1e-6)
    assert np.array_equal(np.asarray(dataset.ids(30, 120)), np.arange(30, 120))
    if (guard := dataset.change_guard()) is not None:
        guard.check()
    assert b"planted" not in pickle.dumps(dataset.recipe())


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_ids_and_weights(kind: str, tmp_path: Path) -> None:
    ids, weights = np.arange(1000, 1120), np.linspace(1, 2, 120)
    source = FRAMES[kind](tmp_path, frame(ROWS).assign(id=ids, w=weights, text="t"))
    dataset: Any = dc.open_dataset(source, drop="text", id_column="id", weights="w")
    np.testing.assert_allclose(dataset.to_numpy(), ROWS, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(dataset.weights), weights)
    assert np.array_equal(np.asarray(dataset.ids(0, 120)), ids)
    assert dataset.feature_names == NAMES
    with pytest.raises(InvalidDataError, match=r"'text' \(.*drop"):
        dc.open_dataset(source)
    with pytest.raises(InvalidDataError, match=r"'text'"):
        dc.KMeans(2).fit(source)
    with pytest.raises(InvalidParameterError, match="no column 'z' in"):
        dc.open_dataset(source, columns=["a", "z"])
    with pytest.raises(InvalidParameterError, match="no column 'z' in"):
        dc.KMeans(2).fit(source, sample_weight="z")
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(np.asarray(again.ids(0, 120)), ids)
    assert (again.id_column, again.weights_column) == ("id", "w")


@pytest.mark.parametrize("kind", ALL)
def test_pickled_rows_are_what_they_were(kind: str, tmp_path: Path) -> None:
    dataset: Any = dc.open_dataset(given(kind, tmp_path, GAPPY), missing="drop")
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(again.to_numpy(), dataset.to_numpy())
    assert again.feature_names == dataset.feature_names
    assert np.array_equal(again.grid.mask, dataset.grid.mask)
    model = dc.KMeans(2, init=ROWS[[0, 60]]).fit(ROWS)
    model.predict(again, output=f"{tmp_path}/labels.npy")
    expected = np.where(COMPLETE, ROWS[:, 0] > 10, -1)
    assert np.array_equal(np.load(tmp_path / "labels.npy"), expected)


@pytest.mark.parametrize(
    "labels",
    [[2001, 2002, 2003], ["a", 1, 2], pd.MultiIndex.from_tuples([("p", 1), ("p", 2), ("q", 1)])],
    ids=["numbers", "mixed", "levels"],
)
def test_labels_that_are_no_text_are_names(labels: Any) -> None:
    table = frame(ROWS).set_axis(labels, axis=1)
    model = dc.KMeans(2, random_state=0).fit(table)
    for other in (table.iloc[:, ::-1], dd.from_pandas(table.iloc[:, [1, 2, 0]], npartitions=2)):
        assert np.array_equal(np.asarray(model.predict(other)), model.labels_)
        assert model.score(other) == pytest.approx(model.score(table))


def test_numbers_of_columns_are_no_names() -> None:
    table = pd.DataFrame(ROWS)
    model = dc.KMeans(2, random_state=0).fit(table)
    assert not hasattr(model, "feature_names_in_")
    for other in (table.iloc[:, ::-1], frame(ROWS)):
        with pytest.warns(UserWarning, match="X has feature names, but KMeans was fitted without"):
            model.predict(other)


def test_weights_of_no_known_name_are_refused() -> None:
    with pytest.raises(
        InvalidParameterError, match="weights='z' names no file or folder here, nor"
    ):
        dc.KMeans(2).fit(ROWS, sample_weight="z")


def test_infinity_is_not_missing() -> None:
    rows = np.where(HOLES, np.inf, ROWS)
    with pytest.raises(InvalidDataError, match=r"infinity.*first in row 5.*Turn infinite values"):
        dc.KMeans(2).fit(dc.open_dataset(rows, missing="drop"))


@pytest.mark.parametrize(
    "source", [pl.Series([1.0, 2.0]), pa.chunked_array([[1.0, 2.0]])], ids=["polars", "Arrow"]
)
def test_a_column_alone_is_no_table(source: Any) -> None:
    with pytest.raises(InvalidDataError, match=r"not a table that.*series\.to_frame"):
        dc.open_dataset(source)


@pytest.mark.parametrize("kind", FRAMES)
def test_booleans_and_integers_keep_their_values(kind: str, tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"a": ROWS[:, 0] > 3, "b": np.arange(120)[::-1] % 7, "c": np.arange(120) % 2}
    )
    dataset = dc.open_dataset(FRAMES[kind](tmp_path, table))
    assert np.array_equal(dataset.to_numpy(), table.to_numpy(np.float64))
    table["b"] = table["b"].astype("Int64").mask(table["c"] > 0)
    (folder := tmp_path / "gappy").mkdir()
    gappy = dc.open_dataset(FRAMES[kind](folder, table), missing="drop")
    assert gappy.n_rows == 60


@pytest.mark.parametrize("kind", TEXT)
def test_a_value_that_cannot_be_read_is_named(kind: str, tmp_path: Path) -> None:
    table = frame(ROWS).astype(object)
    table.loc[7, "b"] = "oops"
    with pytest.raises(InvalidDataError, match=r"x\.(.sv|jsonl|ndjson)") as info:
        dc.open_dataset(FRAMES[kind](tmp_path, table)).to_numpy()
    for part in ("row 7", "'b'", "oops"):
        assert part in str(info.value), info.value


@pytest.mark.parametrize("kind", ALL)
def test_sources_without_rows_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DaskClusterError, match=r"0 sample\(s\)|no rows|got 1D array"):
        dc.open_dataset(given(kind, tmp_path, ROWS[:0]))
    with pytest.raises(InvalidDataError, match=r"0 sample\(s\)"):
        dc.open_dataset(pd.DataFrame())


@pytest.mark.parametrize("kind", ALL)
def test_options_that_a_source_does_not_have_are_refused(kind: str, tmp_path: Path) -> None:
    source = given(kind, tmp_path)
    if kind in ARRAYS or kind in NAMED:
        with pytest.raises(InvalidParameterError, match="choose columns of a table, but"):
            dc.open_dataset(source, columns="a")
    else:
        with pytest.raises(InvalidParameterError, match="array='X' names an array of a Zarr group"):
            dc.open_dataset(source, array="X")
    if not kind.startswith("Zarr") and kind not in ("HDF5", "h5ad"):
        with pytest.raises(InvalidParameterError, match="decode=False says how a stored array"):
            dc.open_dataset(source, decode=False)


def written(kind: str, folder: Path, arrays: dict[str, np.ndarray], **attributes: Any) -> str:
    """Write arrays with attributes, and return their URL."""
    if kind == "npz":
        return saved(lambda path: np.savez(path, **arrays), folder / "x.npz")
    if kind == "HDF5":
        h5py = pytest.importorskip("h5py", reason="h5py is not installed")
        group: Any = h5py.File(folder / "x.h5", "w")
    else:
        group = zarr.open_group(folder / "x.zarr", mode="w", zarr_format=int(kind[-1]))
    for name, values in arrays.items():
        node = group.create_dataset if kind == "HDF5" else group.create_array
        node(name, data=values).attrs.update(attributes)
    if kind == "HDF5":
        group.close()
    return str(folder / ("x.h5" if kind == "HDF5" else "x.zarr"))


@pytest.mark.parametrize("kind", ["Zarr 2", "Zarr 3", "HDF5"])
def test_attributes_decode_numbers_whatever_stores_them(kind: str, tmp_path: Path) -> None:
    codes = np.arange(360).astype("i1").reshape(120, 3)
    packing: Any = {"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -1, "_Unsigned": "true"}
    url = written(kind, tmp_path, {"X": codes}, **packing)
    wanted = np.where(codes == -1, np.nan, codes.view("u1") * 0.5 + 1)
    np.testing.assert_array_equal(dc.open_dataset(url, array="X").to_numpy(), wanted)
    stored_numbers = dc.open_dataset(url, array="X", decode=False)
    np.testing.assert_array_equal(stored_numbers.to_numpy(), codes)
    with pytest.raises(InvalidDataError, match="decoded by attributes of their array, unlike"):
        dc.KMeans(2).fit(stored_numbers).predict(dc.open_dataset(url, array="X"))
    url = written(kind, tmp_path, {"X": codes}, scale_factor=[0.1, 0.2, 0.3])
    with pytest.raises(InvalidDataError, match=r"scale_factor.*should be a number"):
        dc.open_dataset(url, array="X")


@pytest.mark.parametrize("kind", ["npz", "Zarr 3"])
def test_weights_lie_next_to_the_rows(kind: str, tmp_path: Path) -> None:
    weights = np.linspace(1, 2, 120)
    url = written(kind, tmp_path, {"X": ROWS, "w": weights})
    opened = dc.open_dataset(url, array="X", weights="w")
    np.testing.assert_array_equal(np.asarray(opened.weights), weights)
    with pytest.raises(DaskClusterError, match=r"'z'.* in '.*x\..*rrays there"):
        dc.open_dataset(url, array="X", weights="z")


@pytest.mark.parametrize("kind", ["npz", "HDF5", "Zarr 3"])
def test_rows_of_more_axes_are_flattened(kind: str, tmp_path: Path) -> None:
    url = written(kind, tmp_path, {"X": ROWS.reshape(5, 24, 3)})
    opened: Any = dc.open_dataset(url, array="X", flatten=True)
    np.testing.assert_array_equal(opened.to_numpy(), ROWS)
    np.testing.assert_array_equal(opened.fetch(50, 53), ROWS[50:53])


@pytest.mark.parametrize("name", [None, "sample"])
def test_the_index_of_a_stored_frame_is_no_feature(name: str | None, tmp_path: Path) -> None:
    table = frame(ROWS).sample(frac=1, random_state=0).rename_axis(name)
    table.to_parquet(tmp_path / "x.parquet")
    dd.from_pandas(table, npartitions=2, sort=False).to_parquet(tmp_path / "parts")
    for source in (tmp_path / "x.parquet", tmp_path / "parts", pa.Table.from_pandas(table)):
        assert dc.open_dataset(source).feature_names == NAMES
    if name is not None:
        ids = dc.open_dataset(tmp_path / "x.parquet", id_column=name).ids(0, 120)
        assert np.array_equal(np.asarray(ids), table.index)


def test_sparse_rows_are_the_rows() -> None:
    kept = np.where(np.abs(ROWS) > 2, ROWS, 0)
    for kind in (sparse.csr_array, sparse.csc_array, sparse.coo_matrix):
        np.testing.assert_array_equal(
            dc.open_dataset(kind(kept)).load((0, 120)).rows.toarray(), kept
        )


def test_frames_of_sparse_columns_are_sparse_rows() -> None:
    kept = np.where(np.abs(ROWS) > 2, ROWS, 0)
    opened: Any = dc.open_dataset(frame(kept).astype(pd.SparseDtype("float32", 0.0)))
    np.testing.assert_array_equal(opened.load((0, 120)).rows.toarray(), kept)
    assert opened.feature_names == NAMES
    for table in (
        frame(kept).astype({"b": pd.SparseDtype("float32", 0.0)}),
        frame(kept).astype(pd.SparseDtype("float32", np.nan)),
    ):
        for source in (table, dd.from_pandas(table, npartitions=2)):
            np.testing.assert_array_equal(dc.open_dataset(source).to_numpy(), kept)
