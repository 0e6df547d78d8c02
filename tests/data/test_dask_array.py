"""Dask arrays and frames: computed here, block by block, each once per pass."""

from __future__ import annotations

import threading
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.data.csr import csr_of
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.metrics import adjusted_rand_index


def test_every_block_is_computed_once_per_pass(rows: np.ndarray) -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def watch(block: np.ndarray) -> np.ndarray:
        if block.size:
            with lock:
                seen.append(len(block))
        return block

    array = da.from_array(rows, chunks=(1000, 7)).map_blocks(watch, dtype=rows.dtype)
    dataset = open_dataset(array)
    assert seen == []
    for _ in range(2):
        for _ in dataset.chunks(dataset.partitions):
            pass
    assert sorted(seen) == sorted([1000] * 10 + [3] * 2)


def test_opening_is_lazy_and_lengths_are_counted_once(rows: np.ndarray) -> None:
    calls: list[int] = []

    def keep(block: np.ndarray) -> np.ndarray:
        if len(block) > 1:  # not the sample that dask looks at
            calls.append(len(block))
        return block[block[:, 0] > 1]

    array = da.from_array(rows, chunks=(2000, 7)).map_blocks(
        keep, dtype=rows.dtype, chunks=((np.nan,) * 3, (7,))
    )
    dataset = open_dataset(array)
    assert len(calls) == 3
    assert np.array_equal(dataset.to_numpy(), rows[rows[:, 0] > 1])
    assert np.isnan(array.shape[0]), "the caller's array is left as it was"


def test_blocks_that_all_end_up_empty(rows: np.ndarray) -> None:
    array = da.from_array(rows, chunks=(2000, 7))
    with pytest.raises(InvalidDataError, match=r"Found array with 0 sample"):
        open_dataset(array[array[:, 0] < 0])


def test_the_current_client_is_not_asked(rows: np.ndarray, client: Any) -> None:
    array = da.from_array(rows, chunks=(2000, 7)).map_blocks(
        lambda block: np.full(block.shape, dask.config.get("here", 1.0)), dtype=np.float64
    )
    with client.as_current(), dask.config.set(here=2):  # the workers do not know of it
        assert open_dataset(array).to_numpy().min() == 2


# -- sparse blocks --------------------------------------------------------------------------------


def sparse_blocks(form: str, n: int = 900) -> tuple[np.ndarray, Any]:
    """Return rows, most of them zero, and a dask array of them whose blocks are of a scipy class."""
    rng = np.random.default_rng(0)
    dense = (rng.poisson(0.4, (n, 11)) * (1 + rng.integers(0, 3, (n, 1)))).astype(np.float32)
    kind = getattr(sparse, form)
    blocks = da.from_array(dense, chunks=((300, 0, 450, 150), 11))
    return dense, blocks.map_blocks(kind, dtype=dense.dtype, meta=kind((0, 0), dtype=dense.dtype))


@pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "csc_matrix", "coo_array"])
def test_sparse_blocks_stay_sparse(form: str) -> None:
    dense, array = sparse_blocks(form)
    dataset = open_dataset(array)
    assert csr_of(dataset) is not None
    assert (dataset.n_rows, dataset.n_features, dataset.dtype) == (900, 11, np.float32)
    assert dataset.n_entries == np.count_nonzero(dense)
    assert dataset.chunk_sizes == (300, 450, 150)
    assert np.array_equal(dataset.to_numpy(), dense)
    assert np.array_equal(dataset.take(np.array([899, 0, 299, 300])), dense[[899, 0, 299, 300]])


def test_blocks_cut_along_columns_and_lengths_that_are_not_known() -> None:
    dense, array = sparse_blocks("csr_matrix")
    wide = da.concatenate([array, array], axis=1)
    assert np.array_equal(open_dataset(wide).to_numpy(), np.hstack([dense, dense]))
    unknown = array.map_blocks(lambda block: block, chunks=((np.nan,) * 4, (11,)), meta=array._meta)
    assert np.array_equal(open_dataset(unknown).to_numpy(), dense)


def test_sparse_blocks_with_dense_metadata_are_refused() -> None:
    dense, array = sparse_blocks("csr_array")
    silent = array.map_blocks(lambda block: block, dtype=dense.dtype, meta=np.empty((0, 0), "f4"))
    with pytest.raises(InvalidDataError, match=r"meta=scipy\.sparse\.csr_array"):
        open_dataset(silent).to_numpy()
    lying = da.from_array(dense, chunks=(300, 11)).map_blocks(
        np.array, meta=sparse.csr_array((0, 0))
    )
    with pytest.raises(InvalidDataError, match="make all of them sparse"):
        open_dataset(lying)


_ESTIMATORS = {
    "KMeans": {},
    "MiniBatchKMeans": {"batch_size": 256},
    "BackwardEulerKMeans": {"batch_size": 256, "max_iter": 5},
}


@pytest.mark.parametrize("name", _ESTIMATORS)
def test_estimators_take_sparse_blocks_as_they_take_a_matrix(name: str) -> None:
    dense, array = sparse_blocks("csr_matrix")
    model = getattr(dc, name)(
        3, init=dense[:3], random_state=0, engine="local", **_ESTIMATORS[name]
    )
    expected, found = clone(model).fit(sparse.csr_matrix(dense)), model.fit(array)
    assert np.array_equal(found.cluster_centers_, expected.cluster_centers_)
    labels = found.predict(array)
    assert labels.chunks[0] == array.chunks[0]
    assert np.array_equal(labels.compute(), expected.predict(dense))
    assert np.allclose(found.transform(array).compute(), expected.transform(dense), atol=1e-4)
    assert np.array_equal(np.asarray(found.labels_), expected.labels_)


def test_workers_get_sparse_blocks(client: Any) -> None:
    dense, array = sparse_blocks("csr_matrix")
    model = dc.KMeans(3, init=dense[:3])
    expected = clone(model).fit(sparse.csr_matrix(dense))
    for rows in (array, array.persist()):
        found = clone(model).set_params(engine=client).fit(rows)
        assert np.array_equal(found.cluster_centers_, expected.cluster_centers_)
        assert np.array_equal(np.asarray(found.labels_), expected.labels_)
    assert np.array_equal(found.predict(array).compute(), expected.labels_)


def test_chosen_columns_of_a_frame(rows: np.ndarray) -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(rows[:90], columns=list("abcdefg")).assign(
        id=[f"r{i}" for i in range(90)], w=np.arange(90.0)
    )
    frame.loc[7, "c"] = np.nan
    lazy = dd.from_pandas(frame, npartitions=3)
    dataset = dc.open_dataset(lazy, id_column="id", weights="w", missing="drop")
    left = np.delete(np.arange(90), 7)
    assert np.array_equal(dataset.to_numpy(), rows[left])
    assert list(dataset.ids(6, 9)) == ["r6", "r8", "r9"]
    assert np.array_equal(np.asarray(dataset.weights), left)
    assert np.isnan(dc.open_dataset(lazy, columns="c").to_numpy()[7])
    nullable = frame[["a", "c"]].astype({"a": "float32[pyarrow]", "c": "Float32"})
    mixed = dd.from_pandas(nullable, npartitions=3)
    assert np.array_equal(
        dc.open_dataset(mixed).to_numpy(), frame[["a", "c"]].astype("f4"), equal_nan=True
    )
    wrong = da.from_array(np.ones((4, 2), int)).map_blocks(lambda x: x * np.nan, dtype=int)
    with pytest.raises(InvalidDataError, match=r"lacks values, and its metadata says int64"):
        dc.open_dataset(wrong).to_numpy()
    lazy["w"] = lazy["w"].astype("Float64").where(lazy["w"] != 5)
    with pytest.raises(InvalidParameterError, match=r"weight nan of row 5"):
        dc.open_dataset(lazy, columns="a", weights="w")
    with pytest.raises(InvalidParameterError, match=r"no column 'z' in the frame; columns: a, b"):
        dc.open_dataset(lazy, columns=["z"])
    with pytest.raises(InvalidParameterError, match=r"choose columns of a table"):
        dc.open_dataset(lazy[["a"]].to_dask_array(lengths=True), id_column="id")


@pytest.mark.parametrize("kind", ["frame", "derived", "array"])
def test_rows_that_were_persisted_on_a_cluster(kind: str, rows: np.ndarray) -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    from distributed import Client

    with Client(processes=False, dashboard_address=None, set_as_default=False) as client:
        held = client.persist(dd.from_pandas(pd.DataFrame(rows), npartitions=4))
        given = {
            "frame": held,
            "derived": held.map_partitions(lambda part: part * 1),
            "array": held.to_dask_array(lengths=[1251, 1251, 1251, 1250]),
        }[kind]
        assert np.array_equal(open_dataset(given).to_numpy(), rows)
        model = dc.KMeans(3, init=rows[:3]).fit(given)
    assert np.array_equal(
        model.cluster_centers_, dc.KMeans(3, init=rows[:3]).fit(rows).cluster_centers_
    )


def unknown(rows: np.ndarray, empty: bool = True) -> tuple[Any, np.ndarray]:
    """Return rows of a dask array whose chunk lengths are not known, one of them 0, and the same rows."""
    values = rows[:3000].copy()
    values[1000:2000, 0] = -1 if empty else 2
    array = da.from_array(values, chunks=(1000, 4))
    return array[array[:, 0] > 1], values[values[:, 0] > 1]


@pytest.mark.parametrize(
    "estimator",
    [
        dc.KMeans(3, random_state=0),
        dc.KMeans(3, metric="cosine", random_state=0),
        dc.MiniBatchKMeans(3, random_state=0),
        dc.HierarchicalKMeans(3, random_state=0),
        dc.CoresetKMeans(3, random_state=0),
        dc.StreamingKMeans(3, random_state=0),
        dc.KernelKMeans(3, random_state=0),
        dc.MiniBatchKernelKMeans(3, random_state=0),
        dc.VariationalGaussianMixture(3, random_state=0),
    ],
    ids=lambda each: f"{type(each).__name__} {getattr(each, 'metric', '')}",
)
def test_lengths_that_are_not_known(estimator: Any, rows: np.ndarray) -> None:
    array, values = unknown(rows)
    known = array.copy()
    known.compute_chunk_sizes()
    expected = clone(estimator).fit(known)
    model = clone(estimator).fit(array)
    assert np.isnan(array.shape[0]), "the caller's array is left as it was"
    assert model.n_rows_ == len(values)
    labels = np.asarray(model.labels_)
    assert np.array_equal(labels, np.asarray(expected.labels_))
    assert np.array_equal(np.asarray(clone(estimator).fit_predict(array)), labels)
    for method in ("predict", "transform", "score_samples"):
        if hasattr(model, method):
            found = getattr(model, method)(array)
            assert np.isnan(found.shape[0]), "results stay lazy"
            assert np.array_equal(found.compute(), np.asarray(getattr(model, method)(values)))
    assert model.score(array) == pytest.approx(model.score(values))


def test_weights_and_labels_of_lengths_that_are_not_known(rows: np.ndarray) -> None:
    array, values = unknown(rows)
    weights = array[:, 1] ** 2
    model = dc.KMeans(3, init=values[:3]).fit(array, sample_weight=weights)
    expected = dc.KMeans(3, init=values[:3]).fit(values, sample_weight=values[:, 1] ** 2)
    assert np.allclose(model.cluster_centers_, expected.cluster_centers_)
    sizes = tuple(int((rows[at : at + 1000, 0] > 1).sum()) for at in (0, 2000))
    assert model.labels_.chunks == ((sizes[0], 0, sizes[1]),)
    batch = dc.MiniBatchKMeans(3, init=values[:3]).partial_fit(array)
    alone = dc.MiniBatchKMeans(3, init=values[:3]).partial_fit(values)
    assert np.array_equal(batch.cluster_centers_, alone.cluster_centers_)
    assert adjusted_rand_index(model.predict(array), expected.labels_) == 1.0
    assert adjusted_rand_index(model.labels_, expected.labels_) == 1.0


def test_lengths_of_any_axis_that_are_not_known(rows: np.ndarray) -> None:
    chosen = np.array([True, False, True, True, False, False, True])
    array = da.from_array(rows, chunks=(2000, 3))[:, da.from_array(chosen, chunks=3)]
    assert np.array_equal(open_dataset(array).to_numpy(), rows[:, chosen])
    cube = rows[:4200].reshape(600, 7, 7)
    some = da.from_array(cube, chunks=(200, 3, 4))
    some = some[some[:, 0, 0] > 1]
    expected = cube[cube[:, 0, 0] > 1]
    assert np.array_equal(open_dataset(some, flatten=True).to_numpy(), expected.reshape(-1, 7))
    grid = dc.open_grid(some)
    assert grid.shape == expected.shape[:2]
    assert np.array_equal(grid.dataset.to_numpy(), expected.reshape(-1, 7))  # type: ignore[attr-defined]


def test_a_frame_as_an_array(rows: np.ndarray) -> None:
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame(rows, columns=list("abcdefg")), npartitions=3)
    frame = frame[frame["a"] > 1]
    model = dc.KMeans(3, random_state=0).fit(frame.to_dask_array())
    assert np.array_equal(np.asarray(model.labels_), model.predict(rows[rows[:, 0] > 1]))
