"""Balanced samples: even, exact, the same rows anywhere, from any model, written with their ids."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from scipy import sparse

import daskcluster as dc
from daskcluster import events, jobs
from daskcluster.errors import InvalidDataError, InvalidParameterError, OutputExistsError
from daskcluster.jobs import predicting as sampling
from daskcluster.jobs.predicting import write_sample
from daskcluster.models.balance import quotas_of_levels, sizes_of_levels
from tests.clusters import default_scheduler_kept
from tests.methods.hierarchical.test_levels import uneven

X, TRUE = uneven(3000)
SCORES = np.random.default_rng(5).permutation(3000).astype(float)


@pytest.fixture(scope="module")
def model() -> Any:
    given = {"level_sizes": [12], "resample_rounds": 2, "random_state": 0}
    return dc.HierarchicalKMeans(40, **given).fit(X)


@pytest.fixture(scope="module")
def three() -> Iterator[Any]:
    """Yield a client of three workers, which are threads of this process."""
    from distributed import Client

    with (
        default_scheduler_kept(),
        Client(
            n_workers=3,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            set_as_default=False,
        ) as client,
    ):
        yield client


def by_hand(model: Any, rows: np.ndarray, size: int, how: str, seed: int) -> np.ndarray:
    """Return the rows of the sample, cluster by cluster."""
    labels, wide = model.predict(rows), rows.astype(float)
    if model.metric == "cosine":
        wide = (wide / np.sqrt((wide * wide).sum(axis=1))[:, None]).astype(rows.dtype).astype(float)
    distances = ((wide - model.cluster_centers_[labels]) ** 2).sum(axis=1)
    parents = getattr(model, "parents_", [])
    sizes = sizes_of_levels(np.bincount(labels, minlength=len(model.cluster_centers_)), parents)
    quotas = quotas_of_levels(sizes, parents, size, seed)[0]
    random = sampling.Key(seed, "balanced sample").uniforms(0, len(rows))
    keys = {"random": random, "nearest": distances, "farthest": -distances, "score": -SCORES}[how]
    chosen = []
    for cluster, quota in enumerate(quotas):
        own = np.flatnonzero(labels == cluster)
        chosen.extend(own[np.lexsort((own, keys[own]))][:quota].tolist())
    return np.sort(chosen)


@pytest.mark.parametrize("how", ["random", "nearest", "farthest", "score"])
@pytest.mark.parametrize("size", [37, 900])
def test_rows_are_those_by_hand(model: Any, how: str, size: int) -> None:
    given = SCORES if how == "score" else how
    found = dc.balanced_sample(model, X, size=size, how=given, random_state=7)
    assert found.rows.tolist() == by_hand(model, X, size, how, 7).tolist()
    assert len(found) == size == found.quotas[0].sum() == found.quotas[1].sum()
    assert np.array_equal(found.clusters, model.labels_[found.rows])
    assert np.bincount(found.clusters, minlength=40).tolist() == found.quotas[0].tolist()
    weights = np.bincount(found.clusters, weights=found.weights, minlength=40)
    filled = found.quotas[0] > 0
    assert weights[filled] == pytest.approx(found.sizes[0][filled])
    assert np.array_equal(found.take(), X[found.rows])


@pytest.mark.parametrize("how", ["random", "nearest", "score"])
def test_same_rows_anywhere(tmp_path: Path, model: Any, three: Any, how: str) -> None:
    given = SCORES if how == "score" else how
    found = []
    for chunk, engine in ((101, "local"), (640, dc.LocalEngine(3)), (3000, three), (101, three)):
        url = str(tmp_path / f"{len(found)}.zarr")
        zarr.create_array(url, data=X, chunks=(chunk, X.shape[1]))
        sample = dc.balanced_sample(model, url, size=500, how=given, random_state=3, engine=engine)
        found.append(sample.rows.tolist())
    for engine in (dc.LocalEngine(1), dc.LocalEngine(3), three):
        found.append(
            dc.balanced_sample(
                model, X, size=500, how=given, random_state=3, engine=engine
            ).rows.tolist()
        )
    assert all(rows == found[0] for rows in found)
    other = dc.balanced_sample(model, X, size=500, how=given, random_state=4)
    assert (other.rows.tolist() == found[0]) is False


def test_two_passes(model: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(500, X.shape[1]))
    heard: list[Any] = []
    engine = dc.LocalEngine(1, memory_limit=500 << 20)  # no room for resident rows
    for how in ("random", "nearest"):
        given = {"size": 500, "how": how, "random_state": 2}
        found = dc.balanced_sample(model, url, **given, engine=engine, callbacks=[heard.append])
        assert np.array_equal(found.rows, dc.balanced_sample(model, X, **given).rows)
    passes = [event.bytes_read for event in heard if isinstance(event, events.PassEnded)]
    assert passes == [X.nbytes, 0, X.nbytes, X.nbytes]


def test_the_limit_of_random_keys_may_be_too_low(model: Any, monkeypatch: Any) -> None:
    expected = dc.balanced_sample(model, X, size=500, random_state=3).rows
    monkeypatch.setattr(sampling, "_DEVIATIONS", -2.0)
    monkeypatch.setattr(sampling, "_ROOM", 0.0)
    assert np.array_equal(dc.balanced_sample(model, X, size=500, random_state=3).rows, expected)


def variation(rows: np.ndarray) -> float:
    sizes = np.bincount(TRUE[rows], minlength=30)
    return float(sizes.std() / sizes.mean())


def test_samples_are_more_even_than_random_ones() -> None:
    """The sizes of the true clusters, which follow a power law, in samples of 300 rows."""
    random = variation(np.random.default_rng(0).choice(3000, 300, replace=False))
    found = {}
    for levels in (1, 2, 3):
        fitted = dc.HierarchicalKMeans(150, n_levels=levels, random_state=0).fit(X)
        found[levels] = variation(dc.balanced_sample(fitted, X, size=300, random_state=0).rows)
    assert found[1] < random
    assert found[2] < 0.4 * random
    assert found[3] < 0.5 * random


@pytest.mark.parametrize(
    "other",
    [
        dc.KMeans(8, random_state=0),
        dc.KMeans(8, metric="cosine", random_state=0),
        dc.VariationalGaussianMixture(5, random_state=0),
        dc.KernelKMeans(4, random_state=0, max_iter=2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_model(other: Any) -> None:
    rows = X[:600]
    fitted = other.fit(rows)
    found = dc.balanced_sample(fitted, rows, size=60, random_state=0)
    labels = fitted.predict(rows)
    assert np.array_equal(found.clusters, labels[found.rows])
    assert found.sizes[0].tolist() == np.bincount(labels, minlength=len(found.sizes[0])).tolist()
    if isinstance(other, dc.KMeans):
        nearest = dc.balanced_sample(fitted, rows, size=60, how="nearest", random_state=0)
        assert nearest.rows.tolist() == by_hand(fitted, rows, 60, "nearest", 0).tolist()
    else:
        with pytest.raises(InvalidParameterError, match="needs a model of k-means"):
            dc.balanced_sample(fitted, rows, size=60, how="nearest")


def test_a_model_by_its_url_and_scaled_rows(tmp_path: Path) -> None:
    wide = X * np.array([1.0, 100.0, 1.0, 0.01], np.float32)
    fitted = dc.KMeans(8, random_state=0).fit(dc.open_dataset(wide, scale="standard"))
    fitted.save(str(tmp_path / "m"))
    found = dc.balanced_sample(str(tmp_path / "m"), wide, size=80, random_state=0)
    assert np.array_equal(found.clusters, fitted.predict(wide)[found.rows])
    assert np.array_equal(found.take(), wide[found.rows])  # as the source has them


def test_rows_without_weight_are_not_drawn(model: Any) -> None:
    weights = np.arange(3000) % 2
    found = dc.balanced_sample(model, dc.open_dataset(X, weights=weights), size=1500)
    assert np.array_equal(found.rows, np.arange(1, 3000, 2))
    with pytest.raises(
        InvalidParameterError, match=r"size=1501 should be <= n_samples=1500, the rows that"
    ):
        dc.balanced_sample(model, dc.open_dataset(X, weights=weights), size=1501)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"size": 3001}, InvalidParameterError, "size=3001 should be <= n_samples=3000"),
        ({"size": 0}, InvalidParameterError, r"'size' parameter of balanced_sample must be an int"),
        (
            {"how": "median"},
            InvalidParameterError,
            "how='median' should be random, nearest, farthest, or",
        ),
        ({"how": -SCORES}, InvalidParameterError, "scores, which are read as weights of rows"),
        ({"how": SCORES[:5]}, InvalidParameterError, "scores, which are read as weights of rows"),
        ({"random_state": -1}, InvalidParameterError, "random_state"),
    ],
)
def test_invalid_arguments_are_refused(
    model: Any, given: dict[str, Any], error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        dc.balanced_sample(model, X, **{"size": 10, **given})


def test_other_features_are_refused(model: Any) -> None:
    with pytest.raises(
        InvalidDataError, match="X has 3 features, but HierarchicalKMeans is expecting 4"
    ):
        dc.balanced_sample(model, X[:, :3], size=5)
    with pytest.raises(InvalidDataError, match="NaN"):
        dc.balanced_sample(model, np.where(X[7, 0] == X, np.nan, X), size=5)


# -- outputs ------------------------------------------------------------------------------------------


def table(folder: Path) -> str:
    ids = [f"r{i}" for i in range(3000)]
    columns = {"id": ids, "emb": list(X), "quality": SCORES}
    pq.write_table(pa.table(columns), folder / "t.parquet", row_group_size=700)
    return str(folder / "t.parquet")


def test_ids_of_a_table(tmp_path: Path, model: Any) -> None:
    model.save(str(tmp_path / "m"))
    columns = {"columns": ["emb"], "id_column": "id"}
    output = str(tmp_path / "ids.parquet")
    record = jobs.sample(
        str(tmp_path / "m"), table(tmp_path), size=200, how="quality", output=output,
        columns=columns, random_state=1,
    )  # fmt: skip
    assert (record.size, record.passes, record.levels, record.how) == (200, 2, [40, 12], "quality")
    found = pq.read_table(output)
    expected = dc.balanced_sample(model, X, size=200, how=SCORES, random_state=1)
    assert found["id"].to_pylist() == [f"r{row}" for row in expected.rows]
    assert found["cluster"].to_pylist() == expected.clusters.tolist()
    assert found["weight"].to_pylist() == expected.weights.tolist()
    assert [balance["variation"] for balance in record.after] == pytest.approx(
        [quotas.std() / quotas.mean() for quotas in expected.quotas]
    )
    assert pickle.loads(pickle.dumps(record)) == record


@pytest.mark.parametrize("dtype", ["f2", "i2"])
def test_rows_as_parquet(tmp_path: Path, model: Any, dtype: str) -> None:
    rows = (10.0 * X).astype(dtype)
    found = dc.balanced_sample(model, rows, size=250, random_state=1)
    url = str(tmp_path / "few.parquet")
    write_sample(found, str(tmp_path / "n.npy"), rows=url, weighted=True)
    read = pq.read_table(url)
    assert read.column_names == ["row", "X", "weight"]
    assert read["row"].to_pylist() == found.rows.tolist()
    assert read["weight"].to_pylist() == found.weights.tolist()
    values = np.array(read["X"].to_pylist(), dtype)
    assert np.array_equal(values, rows[found.rows])
    opened = dc.open_dataset(url, columns=["X"], weights="weight", id_column="row")
    assert np.array_equal(opened.to_numpy(), rows[found.rows])
    with pytest.raises(OutputExistsError):
        write_sample(found, str(tmp_path / "other.npy"), rows=url)
    assert not (tmp_path / "other.npy").exists()
    write_sample(found, str(tmp_path / "other.npy"), rows=url, overwrite=True)
    assert pq.read_table(url).column_names == ["row", "X"]


def test_parquet_has_the_names_of_the_features(tmp_path: Path, model: Any) -> None:
    names = [f"f{column}" for column in range(X.shape[1])]
    columns = {"id": [f"r{i}" for i in range(3000)]} | dict(zip(names, X.T, strict=True))
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=700)
    source = dc.open_dataset(str(tmp_path / "t.parquet"), columns=names, id_column="id")
    found = dc.balanced_sample(model, source, size=250, random_state=1)
    write_sample(found, str(tmp_path / "ids.csv"), rows=str(tmp_path / "few.parquet"))
    read = pq.read_table(tmp_path / "few.parquet")
    assert read.column_names == ["id", *names]
    assert read["id"].to_pylist() == [f"r{row}" for row in found.rows]
    assert np.array_equal(np.stack([read[name].to_numpy() for name in names], axis=1), found.take())


def test_parquet_has_the_name_of_a_column_of_lists(tmp_path: Path, model: Any) -> None:
    pq.write_table(pa.table({"id": np.arange(3000), "emb": list(X)}), tmp_path / "t.parquet")
    source = dc.open_dataset(str(tmp_path / "t.parquet"), id_column="id")
    found = dc.balanced_sample(model, source, size=250, random_state=1)
    write_sample(found, str(tmp_path / "ids.csv"), rows=str(tmp_path / "few.parquet"))
    read = pq.read_table(tmp_path / "few.parquet")
    assert read.column_names == ["id", "emb"]
    assert np.array_equal(np.stack(read["emb"].to_numpy()), found.take())


def test_sparse_rows_are_not_written_as_parquet(tmp_path: Path, model: Any) -> None:
    found = dc.balanced_sample(model, sparse.csr_array(np.float64(X)), size=50, random_state=1)
    with pytest.raises(InvalidDataError, match=r"sparse.*\.zarr"):
        write_sample(found, str(tmp_path / "n.npy"), rows=str(tmp_path / "few.parquet"))
    assert not list(tmp_path.iterdir())


def test_numbers_and_rows(tmp_path: Path, model: Any) -> None:
    url = str(tmp_path / "rows.zarr")
    zarr.create_array(url, data=X, chunks=(100, X.shape[1]))
    found = dc.balanced_sample(model, url, size=250, random_state=1)
    write_sample(found, str(tmp_path / "n.zarr"), rows=str(tmp_path / "few.zarr"))
    assert np.array_equal(zarr.open_array(str(tmp_path / "n.zarr"), mode="r")[:], found.rows)
    assert np.array_equal(dc.open_dataset(str(tmp_path / "few.zarr")).to_numpy(), X[found.rows])
    write_sample(found, str(tmp_path / "n.npy"), rows=str(tmp_path / "w.zarr"), weighted=True)
    assert np.array_equal(np.load(tmp_path / "n.npy"), found.rows)
    opened = dc.open_dataset(str(tmp_path / "w.zarr"))
    assert np.array_equal(np.asarray(opened.weights), found.weights)
    assert np.asarray(opened.weights).sum() == pytest.approx(3000)
    with pytest.raises(OutputExistsError):
        write_sample(found, str(tmp_path / "n.npy"))
    write_sample(found, str(tmp_path / "n.npy"), overwrite=True)


def test_only_chunks_with_sampled_rows_are_read_again(tmp_path: Path, model: Any) -> None:
    zarr.create_array(str(tmp_path / "rows.zarr"), data=X, chunks=(10, X.shape[1]))
    found = dc.balanced_sample(model, str(tmp_path / "rows.zarr"), size=40, random_state=0)
    other = np.setdiff1d(np.arange(300), found.rows // 10)[0]
    (tmp_path / "rows.zarr" / "c" / str(other) / "0").write_bytes(b"no chunk")
    assert np.array_equal(found.take(), X[found.rows])


def test_sparse_rows_stay_sparse(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 5, (900, 20)) * (rng.random((900, 20)) < 0.2)
    csr = sparse.csr_array(rows.astype(np.float32))
    fitted = dc.KMeans(6, random_state=0).fit(csr)
    found = dc.balanced_sample(fitted, csr, size=90, random_state=0)
    write_sample(found, str(tmp_path / "n.npy"), rows=str(tmp_path / "few.zarr"))
    again = dc.open_dataset(str(tmp_path / "few.zarr"))
    assert "Sparse" in type(again).__name__
    assert np.array_equal(again.to_numpy(), rows[found.rows])


def test_numbers_are_those_of_the_source(tmp_path: Path, model: Any) -> None:
    rows = X.copy()
    rows[::3] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    model.save(str(tmp_path / "m"))
    output = str(tmp_path / "n.npy")
    given = {"size": 100, "missing": "drop", "random_state": 0}
    jobs.sample(str(tmp_path / "m"), str(tmp_path / "rows.npy"), output=output, **given)
    assert not (np.load(output) % 3 == 0).any()
