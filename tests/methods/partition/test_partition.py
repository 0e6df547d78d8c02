"""`partition`: every row once, no partition too large, the same bits anywhere, resumed calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.methods.partition import partitioning, training
from tests.estimators.interruption import Killed, record_chunks

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(30, 12))
CHANCES = 1.0 / np.arange(1, 31)
X = CENTRES[RNG.choice(30, 6000, p=CHANCES / CHANCES.sum())] + 0.4 * RNG.normal(size=(6000, 12))
X = X.astype(np.float32)


def check_laws(found: Any, n: int, max_size: int) -> None:
    np.testing.assert_array_equal(
        found.sizes, np.bincount(found.partition, minlength=len(found.centres))
    )
    assert found.partition.shape == (n,)
    assert found.sizes.sum() == n
    assert found.sizes.max() <= max_size


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sizes_are_balanced_and_none_is_too_large(metric: str) -> None:
    found = dc.partition(X, 100, metric=metric)
    check_laws(found, len(X), 200)
    assert found.balance.variation < 0.4
    tight = dc.partition(X, 100, max_size=120, metric=metric)
    check_laws(tight, len(X), 120)


def test_rows_are_in_the_best_partition() -> None:
    found = dc.partition(X, 100, max_size=400)
    centres, penalties = found.assigning.centres.astype(float), found.assigning.penalties
    costs = np.square(X[:, None].astype(float) - centres).sum(axis=2) + penalties
    own = costs[np.arange(len(X)), found.partition]
    np.testing.assert_allclose(own, costs.min(axis=1), rtol=1e-4, atol=1e-4)


def test_equal_rows_are_divided() -> None:
    rows = np.repeat(X[:3], 500, axis=0)
    found = dc.partition(rows, 100, max_size=150)
    check_laws(found, 1500, 150)


def test_the_same_on_any_chunks_and_threads(tmp_path: Path) -> None:
    expected = dc.partition(X, 150, engine=dc.LocalEngine(1))
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(700, 12))
    for source, threads in ((X, 3), (url, 2)):
        found = dc.partition(source, 150, engine=dc.LocalEngine(threads))
        for name in ("partition", "centres"):
            assert getattr(found, name).tobytes() == getattr(expected, name).tobytes()


def test_many_cells_are_trained_by_lists_of_cells(monkeypatch: Any) -> None:
    """Beyond some thousand cells, most searches look at listed ones; the laws are the same."""
    whole = dc.partition(X, 60)
    monkeypatch.setattr(training, "FEW_CELLS", 50)
    monkeypatch.setattr(training, "GROUP_ROWS", 256)
    searched: list[int] = []
    search = training.BalancedKMeans._search_group

    def listed(fit: Any, lifted: Any, group: int) -> None:
        search(fit, lifted, group)
        searched.append(len(fit.lists[group]))

    monkeypatch.setattr(training.BalancedKMeans, "_search_group", listed)
    found = dc.partition(X, 60, engine=dc.LocalEngine(1))
    check_laws(found, len(X), 120)
    assert searched
    assert np.mean(searched) < 70
    assert found.balance.variation < 1.1 * whole.balance.variation + 0.02
    costs = [np.square(X - each.centres[each.partition]).sum() for each in (found, whole)]
    assert costs[0] < 1.02 * costs[1]
    again = dc.partition(X, 60, engine=dc.LocalEngine(3))
    np.testing.assert_array_equal(found.partition, again.partition)
    assert found.centres.tobytes() == again.centres.tobytes()


def test_a_killed_call_does_not_train_again(tmp_path: Path, monkeypatch: Any) -> None:
    expected = dc.partition(X, 100, max_size=110)
    assign = partitioning._Partitioning.assign

    def killed(job: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(partitioning._Partitioning, "assign", killed)
    with pytest.raises(KeyboardInterrupt):
        dc.partition(X, 100, max_size=110, checkpoint=str(tmp_path))
    monkeypatch.setattr(partitioning._Partitioning, "assign", assign)
    drawn: list[Any] = []
    monkeypatch.setattr(partitioning, "draw_rows", lambda *args, **more: drawn.append(args))
    found = dc.partition(X, 100, max_size=110, checkpoint=str(tmp_path), resume=True)
    assert not drawn
    assert found.partition.tobytes() == expected.partition.tobytes()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_round_that_is_killed_continues_with_the_other_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=X, chunks=(500, 12))
    cuts = [(start, start + 500) for start in range(0, len(X), 500)]
    rows = dc.open_dataset(tmp_path / "rows.zarr").with_facts(partitions=cuts)
    expected = dc.partition(rows, 100, max_size=110)
    one: dict[str, Any] = {"checkpoint": tmp_path / "state", "engine": dc.LocalEngine(1)}
    first = record_chunks(monkeypatch, partitioning, "partition_rows", most=17)
    with pytest.raises(Killed):  # in the second round
        dc.partition(rows, 100, max_size=110, **one)
    monkeypatch.undo()
    again = record_chunks(monkeypatch, partitioning, "partition_rows")
    found = dc.partition(rows, 100, max_size=110, resume=True, **one)
    assert found.partition.tobytes() == expected.partition.tobytes()
    assert not set(again[: 12 - 5]) & set(first[12:])


def test_results_are_saved_whole(tmp_path: Path) -> None:
    found = dc.partition(X, 300)
    found.save(str(tmp_path / "out.zarr"))
    group = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    np.testing.assert_array_equal(group["partition"][:], found.partition)


def test_errors() -> None:
    with pytest.raises(InvalidParameterError, match="max_size=50 should be >= target_size=100"):
        dc.partition(X, 100, max_size=50)
    with pytest.raises(InvalidDataError, match="dense"):
        dc.partition(sparse.csr_array(X), 100)
    bad = X.copy()
    bad[5, 3] = np.nan
    with pytest.raises(InvalidDataError, match="NaN"):
        dc.partition(bad, 100)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_faiss_reads_the_partitions(metric: str, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    found = dc.partition(X, 100, metric=metric)
    index = found.to_faiss()
    assert index.ntotal == len(X)
    lists = index.invlists
    for number in range(found.n_partitions):
        ids = faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))
        np.testing.assert_array_equal(np.sort(ids), np.sort(found.rows_of(number)))
    index.nprobe = found.n_partitions
    rows = X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X
    np.testing.assert_array_equal(index.search(rows[:50], 1)[1][:, 0], np.arange(50))
    assert found.to_faiss(fill=False).ntotal == 0
    found.save_centres(tmp_path / "index.faiss")
    empty = faiss.read_index(str(tmp_path / "index.faiss"))
    assert (empty.ntotal, empty.nlist, empty.is_trained) == (0, found.n_partitions, True)
    empty.add(rows)
    empty.nprobe = found.n_partitions
    np.testing.assert_array_equal(empty.search(rows[:50], 1)[1][:, 0], np.arange(50))


def test_arrow_and_npy_have_the_centres(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    found = dc.partition(X, 300)
    lists = found.to_lance()
    assert lists.type.list_size == 12
    np.testing.assert_array_equal(np.array(lists.to_pylist(), np.float32), found.centres)
    table = found.to_vectorchord()
    assert table.column_names == ["id", "parent", "vector"]
    assert table["id"].to_pylist() == list(range(found.n_partitions))
    assert table["parent"].null_count == found.n_partitions
    found.save_centres(str(tmp_path / "centres.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "centres.npy"), found.centres)
    found.save_centres(tmp_path / "centres.parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(tmp_path / "centres.parquet").equals(table)
    with pytest.raises(
        InvalidParameterError, match=r"\.npy, \.faiss, \.parquet files, but the URL is"
    ):
        found.save_centres(tmp_path / "centres.txt")
