"""Laws 2, 3, 4, 6 and 8 for CSR rows: chunks, engines and copies do not matter, labels are predictions."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from scipy.sparse import random

import daskcluster as dc
from daskcluster.data.memory import scipy_rows
from daskcluster.data.writer import RowsShape, write_rows
from tests.data.test_sparse_zarr import put
from tests.laws.data import CASES
from tests.laws.test_law_02_chunking import INITS, fit, same_bits
from tests.laws.test_law_05_precision import sparse_case
from tests.laws.test_law_08_memory import measure

N = 1500


def stored(folder, rows, chunks):
    put(zarr.open_group(folder / "rows.zarr", mode="w"), rows, chunks=chunks)
    return str(folder / "rows.zarr")


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", CASES)
def test_chunks(tmp_path, name, init):
    dense, rows, w = sparse_case(name, n=N)
    expected = fit(rows, init, dense, w, engine="local")
    for chunks in (1000, 10**6):
        found = fit(stored(tmp_path, rows, chunks), init, dense, w, engine="local")
        same_bits(found, expected)
        assert found.bytes_read_ > 0


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", ["float32", "weighted float64"])
def test_engines(tmp_path, client, name, init):
    dense, rows, w = sparse_case(name, n=N)
    expected = fit(rows, init, dense, w, engine=dc.LocalEngine(n_threads=1))
    same_bits(fit(rows, init, dense, w, engine=dc.LocalEngine(n_threads=3)), expected)
    same_bits(fit(rows, init, dense, w, engine=client), expected)
    same_bits(fit(stored(tmp_path, rows, 5000), init, dense, w, engine=client), expected)


def test_rows_too_large_to_send_go_through_a_scratch_folder(client, monkeypatch):
    from daskcluster.engine import pass_run as reach

    dense, rows, w = sparse_case("weighted float32", n=N)
    expected = fit(rows, "k-means++", dense, w, engine="local")
    monkeypatch.setattr(reach, "SEND_BYTES", 1000)
    same_bits(fit(rows, "k-means++", dense, w, engine=client), expected)


def test_rows_in_a_store_of_this_process_go_through_a_scratch_folder(client):
    dense, rows, w = sparse_case("weighted float32", n=N)
    group = put(zarr.open_group(zarr.storage.MemoryStore(), mode="w"), rows)
    expected = fit(group, "k-means||", dense, w, engine="local")
    same_bits(fit(group, "k-means||", dense, w, engine=client), expected)


def test_weight_equals_copies():
    _, rows, _ = sparse_case("float64", n=600)
    counts = np.random.default_rng(5).integers(0, 4, 600)
    start = rows[np.flatnonzero(counts)[::60][:7]].toarray()
    one = dc.KMeans(7, init=start, tol=0, engine="local").fit(rows, sample_weight=counts)
    other = dc.KMeans(7, init=start, tol=0, engine="local").fit(
        rows[np.repeat(np.arange(600), counts)]
    )
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-12)
    assert one.inertia_ == pytest.approx(other.inertia_, rel=1e-12)
    assert np.array_equal(np.repeat(one.labels_, counts), other.labels_)


def test_labels_of_rows_on_disk(tmp_path):
    _, rows, _ = sparse_case("float32", n=N)
    source = stored(tmp_path, rows, 4000)
    model = dc.KMeans(6, random_state=0, engine="local").fit(source)
    labels = np.asarray(model.labels_)
    assert np.array_equal(labels, model.predict(rows))
    assert np.array_equal(labels, model.predict(source))
    assert np.array_equal(labels, model.labels_.to_dask().compute())
    model.predict(source, output=str(tmp_path / "labels.zarr"))
    assert np.array_equal(zarr.open_array(tmp_path / "labels.zarr", mode="r")[:], labels)
    model.save(str(tmp_path / "model"))
    assert np.array_equal(dc.load_model(str(tmp_path / "model")).predict(rows), labels)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_times_the_rows(tmp_path):
    """Law 8: nothing grows with the rows but where each of them begins."""
    few, many = 300_000, 3_000_000
    for n in (few, many):
        url = str(tmp_path / f"{n}.zarr")
        block = scipy_rows(random(n // 100, 20_000, 0.002, "csr", np.float32, random_state=0))
        write_rows(url, [block] * 100, RowsShape(n, 20_000, block.dtype, 100 * len(block.data)))
    choice = "random", "lloyd", 600
    measure(str(tmp_path / f"{few}.zarr"), *choice)  # compiles what is not in the cache
    small = measure(str(tmp_path / f"{few}.zarr"), *choice)
    large = measure(str(tmp_path / f"{many}.zarr"), *choice)
    assert large["read"] > 5 * small["read"]
    assert large["peak"] - small["peak"] <= 8 * (many - few) + 64 * 2**20
