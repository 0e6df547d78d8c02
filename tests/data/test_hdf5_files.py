"""HDF5 files as rows: dense arrays in place, AnnData's names as ids, CSR matrices."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc
from daskcluster.data.csr import csr_of
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

ROWS = np.random.default_rng(4).normal(size=(900, 5)).astype(np.float32)
NAMES = [f"cell-{i}" for i in range(900)]


def write_h5ad(path: Path, rows: Any = ROWS, **options: Any) -> Path:
    """Write rows and names as AnnData lays them out."""
    with h5py.File(path, "w") as file:
        if sparse.issparse(rows):
            group = file.create_group("X")
            group.attrs["encoding-type"] = f"{rows.format}_matrix"
            group.attrs["shape"] = rows.shape
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(rows, name)
        else:
            file.create_dataset("X", data=rows, **options)
        file["obsm/X_pca"] = ROWS[:, :2]
        obs = file.create_group("obs")
        obs.attrs["_index"] = "names"
        obs["names"] = NAMES[: rows.shape[0]]
    return path


@pytest.mark.parametrize("options", [{}, {"chunks": (64, 5), "compression": "gzip"}])
def test_dense_rows_and_their_names(options: dict[str, Any], tmp_path: Path) -> None:
    path = write_h5ad(tmp_path / "cells.h5ad", **options)
    dataset: Any = dc.open_dataset(path)
    assert np.array_equal(dataset.to_numpy(), ROWS)
    assert dataset.ids(10, 12).to_pylist() == NAMES[10:12]
    wanted = np.array([899, 0, 64])
    assert np.array_equal(pickle.loads(pickle.dumps(dataset)).take(wanted), ROWS[wanted])
    assert dc.open_dataset(path, array="obsm/X_pca").n_features == 2
    model = dc.KMeans(3, init=ROWS[:3]).fit(str(path))
    assert np.array_equal(model.labels_, dc.KMeans(3, init=ROWS[:3]).fit(ROWS).labels_)
    pq = pytest.importorskip("pyarrow.parquet")
    model.predict(str(path), output=f"{tmp_path}/l.parquet")
    assert pq.read_table(tmp_path / "l.parquet").column("obs_names").to_pylist() == NAMES


def test_csr_rows(tmp_path: Path) -> None:
    rows = sparse.random(900, 40, 0.1, format="csr", dtype=np.float32, random_state=0)
    path = write_h5ad(tmp_path / "cells.h5ad", rows)
    dataset: Any = dc.open_dataset(path)
    assert csr_of(dataset) is not None
    assert not dataset.in_memory
    assert np.array_equal(dataset.to_numpy(), rows.toarray())
    assert dataset.ids(10, 12).to_pylist() == NAMES[10:12]
    again = pickle.loads(pickle.dumps(dataset))
    wanted = np.array([899, 0, 64])
    assert np.array_equal(again.take(wanted), rows.toarray()[wanted])
    start = rows[:4].toarray()
    fitted, expected = (dc.KMeans(4, init=start).fit(X) for X in (str(path), rows))
    assert np.array_equal(fitted.cluster_centers_, expected.cluster_centers_)
    with pytest.raises(InvalidDataError, match=r"holds a csc_matrix where rows are needed"):
        dc.open_dataset(write_h5ad(tmp_path / "columns.h5ad", rows.tocsc()))


def test_csr_rows_of_several_files(tmp_path: Path, client: Any) -> None:
    rows = sparse.random(900, 40, 0.1, format="csr", dtype=np.float32, random_state=0)
    folder = tmp_path / "cells"
    folder.mkdir()
    for i in range(3):
        write_h5ad(folder / f"part-{i}.h5ad", rows[300 * i : 300 * i + 300])
    dataset: Any = dc.open_dataset(folder)
    assert np.array_equal(dataset.to_numpy(), rows.toarray())
    start = rows[:4].toarray()
    expected = dc.KMeans(4, init=start).fit(rows)
    fitted = dc.KMeans(4, init=start, engine=client).fit(dataset)
    assert np.array_equal(fitted.cluster_centers_, expected.cluster_centers_)
    assert np.array_equal(np.asarray(fitted.labels_), expected.labels_)
    write_h5ad(folder / "part-2.h5ad", rows[:299])
    with pytest.raises(InvalidDataError, match=r"part-2.h5ad was rewritten"):
        dc.KMeans(4, init=start).fit(dataset)
    write_h5ad(folder / "part-2.h5ad", ROWS)
    with pytest.raises(InvalidDataError, match=r"part-2.h5ad' has rows of 5 x <f4"):
        dc.open_dataset(folder)


def test_several_files_and_a_bucket(s3: dict[str, Any], tmp_path: Path) -> None:
    import s3fs

    for i in range(3):
        write_h5ad(tmp_path / f"part-{i}.h5ad", ROWS[300 * i : 300 * i + 300])
    assert np.array_equal(dc.open_dataset(f"{tmp_path}/*.h5ad").to_numpy(), ROWS)
    s3fs.S3FileSystem(**s3).put(str(tmp_path), "rows/cells", recursive=True)
    stored = dc.open_dataset("s3://rows/cells/part-*.h5ad", storage_options=s3)
    assert np.array_equal(stored.to_numpy(), ROWS)
    write_h5ad(tmp_path / "part-9.h5ad", ROWS[:9, :4])
    with pytest.raises(
        InvalidDataError, match=r"part-9.h5ad' has rows of 4 x <f4 in 'X', where .* has 5"
    ):
        dc.open_dataset(tmp_path)


def test_invalid_files_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["a"], file["b"] = ROWS, ROWS
    with pytest.raises(InvalidDataError, match=r"several arrays.*a \(900 x 5 float32\), b"):
        dc.open_dataset(tmp_path / "two.h5")
    with pytest.raises(DatasetNotFoundError, match=r"no array 'c' in .*two.h5'; arrays there: a"):
        dc.open_dataset(tmp_path / "two.h5", array="c")
    with pytest.raises(InvalidParameterError, match=r"choose columns of a table"):
        dc.open_dataset(tmp_path / "two.h5", array="a", id_column="id")
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(InvalidDataError, match=r"text.h5' is no readable HDF5 file"):
        dc.open_dataset(tmp_path / "text.h5")


def test_a_virtual_array_needs_its_files(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((900, 5), np.float32)
    for i in range(3):
        with h5py.File(tmp_path / f"part-{i}.h5", "w") as file:
            file["d"] = ROWS[300 * i : 300 * i + 300]
        layout[300 * i : 300 * i + 300] = h5py.VirtualSource(f"part-{i}.h5", "d", (300, 5))
    path = str(tmp_path / "all.h5")
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("X", layout, fillvalue=-9)
    assert np.array_equal(dc.open_dataset(path).to_numpy(), ROWS)
    (tmp_path / "part-1.h5").unlink()
    with h5py.File(path, "r") as file:
        for opens in (dc.open_dataset, dc.KMeans(2).fit):
            for given in (path, file["X"], file):
                with pytest.warns(UserWarning, match=r"lacks 1 of its 3 files.*-9.0: 'part-1.h5'"):
                    opens(given)
        for i in (0, 2):
            (tmp_path / f"part-{i}.h5").unlink()
        for given in (path, file["X"]):
            with pytest.raises(InvalidDataError, match="lacks 3 of its 3 files"):
                dc.open_dataset(given)


def test_values_that_no_file_has_are_counted(tmp_path: Path) -> None:
    source, path = str(tmp_path / "part.h5"), str(tmp_path / "all.h5")
    with h5py.File(source, "w") as file:
        file["d"], file["empty"] = ROWS, h5py.Empty("f8")
        written = file.create_dataset("half", (900, 5), "f4", chunks=(300, 5))
        written[:600] = ROWS[:600]
        file.create_dataset("none", (900, 5), "f4", chunks=(300, 5))
    assert np.array_equal(dc.open_dataset(source, array="d").to_numpy(), ROWS)
    with pytest.warns(UserWarning, match=r"'/half' in .* lacks 1 of 3 chunks"):
        dc.open_dataset(source, array="half")
    with pytest.raises(InvalidDataError, match="has none of its 3 chunks"):
        dc.open_dataset(source, array="none")

    def virtual(name: str, of: str, n_rows: int) -> None:
        layout = h5py.VirtualLayout((900, 5), np.float32)
        layout[:n_rows] = h5py.VirtualSource(of, name, (900, 5))[:n_rows]
        with h5py.File(path, "w") as file:
            file.create_virtual_dataset("X", layout)

    virtual("d", "part.h5", 500)
    with pytest.warns(UserWarning, match="has 2000 of 4500 values in no file"):
        dc.open_dataset(path)
    virtual("nope", "part.h5", 900)
    with pytest.raises(InvalidDataError, match=r"reads .nope. of .*, which is not there"):
        dc.open_dataset(path)
    layout = h5py.VirtualLayout((900, 5), np.float32)
    layout[:] = h5py.VirtualSource("all.h5", "X", (900, 5))
    with h5py.File(tmp_path / "outer.h5", "w") as file:
        file.create_virtual_dataset("X", layout)
    with pytest.raises(InvalidDataError, match=r"reads .nope. of .*, which is not there"):
        dc.open_dataset(tmp_path / "outer.h5")


def test_ranges_of_valid_values_mask_nothing(tmp_path: Path) -> None:
    """As in xarray, which leaves valid_min, valid_max and valid_range alone; missing_value is missing."""
    xr = pytest.importorskip("xarray", reason="xarray is not installed")
    codes = np.arange(20, dtype=np.int16).reshape(10, 2)
    facts = {"valid_min": 3, "valid_max": 9, "valid_range": [3, 9], "missing_value": np.int16(5)}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = codes
        file["X"].attrs.update(facts)
    expected = xr.decode_cf(xr.Dataset({"X": (("y", "x"), codes, facts)}))["X"].to_numpy()
    assert np.array_equal(dc.open_dataset(tmp_path / "x.h5").to_numpy(), expected, equal_nan=True)
    assert np.isnan(expected).sum() == 1


def test_frames_in_the_layout_of_anndata(tmp_path: Path) -> None:
    path = write_h5ad(tmp_path / "cells.h5ad")
    with h5py.File(path, "r+") as file:
        frame = file.create_group("obsm/frame")
        frame.attrs.update({"encoding-type": "dataframe", "column-order": ["v", "u"]})
        frame["u"], frame["v"] = ROWS[:, 1], ROWS[:, 0].astype(np.float64)
        kinds = file.create_group("obsm/kinds")
        kinds.attrs.update({"encoding-type": "dataframe", "column-order": ["kind"]})
        kinds.create_group("kind").attrs["encoding-type"] = "categorical"
    dataset: Any = dc.open_dataset(path, array="frame")
    assert dataset.feature_names == ("v", "u")
    assert np.array_equal(dataset.to_numpy(), ROWS[:, :2].astype(np.float64))
    assert dataset.ids(10, 12).to_pylist() == NAMES[10:12]
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(again.take(np.array([899, 3])), ROWS[[899, 3], :2].astype(np.float64))
    assert np.array_equal(dc.KMeans(2, random_state=0).fit(dataset).feature_names_in_, ["v", "u"])
    with pytest.raises(InvalidDataError, match=r"no real numbers: 'kind' \(categorical\); write"):
        dc.open_dataset(path, array="kinds")
