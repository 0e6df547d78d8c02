"""CSR rows in Zarr: AnnData's layout, read by values, row by row the same as in memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.data import zarr as zarr_rows
from daskcluster.data.writer import RowsShape, write_rows
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, OutputExistsError
from daskcluster.sparse_rows import dense_rows, join_rows
from tests.data.test_sparse import make

N = 40_000
MATRIX = make(N, 300)
"""600,000 values."""


def put(
    group: Any,
    matrix: Any = MATRIX,
    *,
    chunks: int | tuple[int, int] = 50_000,
    shards: int | None = None,
    index: Any = np.int32,
    **attributes: Any,
) -> Any:
    """Write a matrix as AnnData does, with storage chunks of so many values (and columns)."""
    data_chunk, index_chunk = chunks if isinstance(chunks, tuple) else (chunks, chunks)
    sizes = {"data": data_chunk, "indices": index_chunk, "indptr": len(matrix.indptr)}
    parts = {
        "data": matrix.data,
        "indices": matrix.indices.astype(index),
        "indptr": matrix.indptr.astype(index),
    }
    for name, values in parts.items():
        kwargs = {"shards": (shards,)} if shards and name != "indptr" else {}
        array = group.create_array(
            name, shape=values.shape, chunks=(sizes[name],), dtype=values.dtype, **kwargs
        )
        array[:] = values
    facts = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": matrix.shape}
    group.attrs.update({**facts, **attributes})
    return group


def gathered(dataset: Any, ranges: Any) -> np.ndarray:
    return dense_rows(join_rows([chunk.rows for chunk in dataset.chunks(ranges)]))


@pytest.mark.parametrize(
    ("chunks", "index"),
    [(1000, np.int32), (50_000, np.int64), (10**7, np.int32), ((40_000, 100_000), np.int64)],
)
def test_rows_are_those_of_the_matrix(tmp_path: Path, chunks: Any, index: Any) -> None:
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), chunks=chunks, index=index)
    dataset = open_dataset(tmp_path / "rows.zarr")
    assert (dataset.n_rows, dataset.n_features, dataset.dtype) == (N, 300, np.float32)
    assert not dataset.in_memory
    assert sum(dataset.chunk_sizes) == N
    parts = dataset.partitions
    assert (parts[0][0], parts[-1][1]) == (0, N)
    for _ in range(2):  # the second time with remembered ends of rows
        assert np.array_equal(gathered(dataset, parts), MATRIX.toarray())
    some = MATRIX[[5, *range(100, 30_000)]].toarray()
    assert np.array_equal(gathered(dataset, [(5, 6), (100, 30_000)]), some)
    rows = np.array([39_999, 0, 777, 777])
    assert np.array_equal(dataset.take(rows), MATRIX[rows].toarray())
    assert np.array_equal(dataset.to_scipy()[:50].toarray(), MATRIX[:50].toarray())


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_formats_and_shards(tmp_path: Path, zarr_format: Any) -> None:
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w", zarr_format=zarr_format)
    put(group, shards=200_000 if zarr_format == 3 else None)
    dataset = open_dataset(tmp_path / "rows.zarr")
    assert len(dataset.chunk_sizes) == 12
    assert np.array_equal(dataset.to_numpy(), MATRIX.toarray())


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Note every slice that is read: array, first and last storage chunk."""
    heard = []
    real = zarr_rows.read_chunk

    def read(array: Any, index: slice, where: str, *location: Any) -> Any:
        if index.stop is not None:
            chunk = array.chunks[0]
            heard.append((array.basename, index.start // chunk, (index.stop - 1) // chunk))
        return real(array, index, where, *location)

    monkeypatch.setattr(zarr_rows, "read_chunk", read)
    return heard


def test_storage_chunks_are_decoded_once_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), chunks=150_000)
    dataset = open_dataset(tmp_path / "rows.zarr")
    assert len(dataset.partitions) == 4
    list(dataset.chunks(dataset.partitions))
    heard = count_reads(monkeypatch)
    list(dataset.chunks(dataset.partitions))
    for name in ("data", "indices"):
        touched = [n for part, a, b in heard if part == name for n in range(a, b + 1)]
        assert sorted(touched) == [0, 1, 2, 3]


def test_large_chunks_are_handed_over_in_blocks_of_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of very different lengths: blocks of equal numbers of rows would be far too large."""
    lengths = np.r_[np.full(100, 300), np.full(3900, 1)]
    indptr = np.append(0, np.cumsum(lengths))
    indices = np.concatenate([np.arange(length) for length in lengths])
    matrix = csr_array((np.ones(len(indices), np.float32), indices, indptr), shape=(4000, 300))
    dataset = open_dataset(put(zarr.open_group(tmp_path / "x.zarr", mode="w"), matrix))
    monkeypatch.setattr("daskcluster.data.dataset.MOST_BYTES", 16_000)
    monkeypatch.setattr("daskcluster.data.dataset.READ_BYTES", 8_000)
    blocks = [chunk.rows for chunk in dataset.chunks([(0, 4000)])]
    assert max(8 * len(rows.data) + 8 * len(rows) for rows in blocks) <= 8_000
    assert np.array_equal(dense_rows(join_rows(blocks)), matrix.toarray())


def test_bytes_are_counted(tmp_path: Path) -> None:
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"))
    heard: list[int] = []
    dataset = open_dataset(tmp_path / "rows.zarr")
    list(dataset.chunks(dataset.partitions, on_read=heard.append))
    assert sum(heard) == MATRIX.nnz * 8 + N * 8
    assert len(heard) < 50
    model = dc.KMeans(3, init=MATRIX[:3].toarray(), max_iter=4, tol=0, engine="local")
    model.set_params(engine=dc.LocalEngine(memory_limit=700 << 20)).fit(dataset)
    assert model.bytes_read_ == sum(heard)  # later passes find the rows in memory


def test_a_group_in_anndata_and_weights_next_to_it(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "cells.zarr", mode="w")
    root.attrs["encoding-type"] = "anndata"
    put(root.create_group("X"))
    root.create_group("obs").create_array("w", data=np.arange(1.0, N + 1))
    dataset = open_dataset(tmp_path / "cells.zarr", array="X", weights="obs/w")
    assert np.array_equal(dataset.load((5, 9)).weights, [6.0, 7.0, 8.0, 9.0])
    assert open_dataset(tmp_path / "cells.zarr" / "X").n_rows == N
    assert open_dataset(zarr.open_group(tmp_path / "cells.zarr")["X"]).n_rows == N
    with pytest.raises(InvalidDataError, match=r"is a Zarr group.* X \(40000 x 300 CSR\)"):
        open_dataset(tmp_path / "cells.zarr")
    with pytest.raises(DatasetNotFoundError, match=r"no array 'Y' .*X \(40000 x 300 CSR\)"):
        open_dataset(tmp_path / "cells.zarr", array="Y")
    with pytest.raises(InvalidDataError, match=r"array='obs' in .* is a Zarr group"):
        open_dataset(tmp_path / "cells.zarr", array="obs")
    root["X"].attrs["encoding-type"] = "csc_matrix"
    with pytest.raises(InvalidDataError, match=r"column by column .* tocsr\(\)"):
        open_dataset(tmp_path / "cells.zarr", array="X")


def test_recipes_open_elsewhere_and_notice_a_change(tmp_path: Path) -> None:
    group = put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), make(100, 20))
    dataset = open_dataset(tmp_path / "rows.zarr")
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(again.to_numpy(), dataset.to_numpy())
    recipe = pickle.loads(pickle.dumps(dataset.recipe()))
    assert recipe.open() is dataset.recipe().open()
    group.attrs["shape"] = [100, 21]
    stale = zarr_rows.ZarrSparseRecipe(recipe.location, "", "another digest")
    with pytest.raises(InvalidDataError, match="was replaced since the dataset was opened"):
        stale.open()


def test_disordered_blocks_are_sorted_as_they_are_read(tmp_path: Path) -> None:
    matrix = MATRIX.copy()
    flip = slice(matrix.indptr[777], matrix.indptr[778])
    for part in (matrix.data, matrix.indices):
        part[flip] = part[flip][::-1].copy()
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), matrix)
    dataset = open_dataset(tmp_path / "rows.zarr")
    rows = dataset.load((0, N)).rows
    assert np.array_equal(rows.indices, MATRIX.indices)
    assert np.array_equal(rows.data, MATRIX.data)


def spoil(matrix: Any, part: str, at: int, value: int) -> Any:
    getattr(matrix, part)[at] = value
    return matrix


@pytest.mark.parametrize(
    ("matrix", "text"),
    [
        (spoil(make(200, 20), "indptr", 7, 10**6), r"CSR group at .* falls from 1000000 to \d+ at row 7"),
        (spoil(make(200, 20), "indptr", -1, 5), r"200 values in data, 200 in indices, .* to 5;"),
        (spoil(make(200, 20), "indices", 9, 20), r"Row \d+ of .* has a value in column 20; columns"),
    ],
)  # fmt: skip
def test_faulty_groups_are_refused(tmp_path: Path, matrix: Any, text: str) -> None:
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), matrix)
    with pytest.raises(InvalidDataError, match=text):
        open_dataset(tmp_path / "rows.zarr").to_numpy()


def test_half_a_group_is_refused(tmp_path: Path) -> None:
    group = put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), make(200, 20))
    for shape in ("20", [201, 20], [200], [200, 20, 1]):
        group.attrs["shape"] = shape
        text = (
            "shape=.* in its attributes" if shape != [201, 20] else "201 rows and an indptr of 201"
        )
        with pytest.raises(InvalidDataError, match=text):
            open_dataset(tmp_path / "rows.zarr")
    group.attrs["shape"] = [200, 20]
    del group["indptr"]
    group.create_array("indptr", data=np.zeros((201, 1), np.int64))
    with pytest.raises(InvalidDataError, match=r"'indptr' .* shape=\(201, 1\) .* should have one"):
        open_dataset(tmp_path / "rows.zarr")
    del group["indices"]
    with pytest.raises(InvalidDataError, match=r"has no array 'indices'; data, indices"):
        open_dataset(tmp_path / "rows.zarr")


def test_arrays_without_chunks_are_refused(tmp_path: Path) -> None:
    put(zarr.open_group(tmp_path / "rows.zarr", mode="w"), make(200, 20))
    for chunk in (tmp_path / "rows.zarr" / "data" / "c").iterdir():
        chunk.unlink()
    with pytest.raises(InvalidDataError, match="none of its 1 chunks"):
        open_dataset(tmp_path / "rows.zarr")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8])
def test_written_rows_are_read_back(tmp_path: Path, dtype: Any) -> None:
    matrix = (MATRIX * 100).astype(dtype)
    source = open_dataset(matrix)
    write_rows(
        tmp_path / "rows.zarr", (chunk.rows for chunk in source.chunks(source.partitions)), source
    )
    found = open_dataset(tmp_path / "rows.zarr")
    assert found.dtype == dtype
    assert np.array_equal(found.to_numpy(), matrix.toarray())
    group = zarr.open_group(tmp_path / "rows.zarr", mode="r")
    assert dict(group.attrs)["encoding-type"] == "csr_matrix"
    assert group["indptr"].dtype == np.int64
    assert (
        group["data"].chunks == group["indices"].chunks == (RowsShape.of(source).entries_per_chunk,)
    )
    with pytest.raises(OutputExistsError):
        write_rows(tmp_path / "rows.zarr", [source.held], source)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.zarr"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    source = open_dataset(MATRIX)

    def blocks() -> Any:
        yield source.held[:100]
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        write_rows(tmp_path / "rows.zarr", blocks(), source)
    assert list(tmp_path.iterdir()) == []


def test_no_values_at_all(tmp_path: Path) -> None:
    from scipy import sparse

    empty = open_dataset(sparse.csr_array((50, 4), dtype=np.float32))
    write_rows(tmp_path / "rows.zarr", [empty.held], empty)
    dataset = open_dataset(tmp_path / "rows.zarr")
    assert np.array_equal(dataset.to_numpy(), np.zeros((50, 4)))
    with pytest.warns(UserWarning, match="distinct clusters"):
        assert dc.KMeans(2, random_state=0, engine="local").fit(dataset).inertia_ == 0.0


def test_on_s3(s3: Any) -> None:
    matrix = make(3000, 50)
    source = open_dataset(matrix)
    write_rows("s3://rows/csr.zarr", [source.held], source, storage_options=s3)
    dataset = open_dataset("s3://rows/csr.zarr", storage_options=s3)
    assert np.array_equal(dataset.to_numpy(), matrix.toarray())
    assert b"planted-secret-value" not in pickle.dumps(dataset)
