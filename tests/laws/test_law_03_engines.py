"""Law 3: engine and worker count do not matter, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import daskcluster as dc
from tests.laws.data import CASES, case
from tests.laws.test_law_02_chunking import INITS, fit, same_bits


def stored(folder, X):
    array = zarr.create_array(folder / "rows.zarr", shape=X.shape, chunks=(100, 5), dtype=X.dtype)
    array[:] = X
    return str(folder / "rows.zarr")


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("name", CASES)
def test_two_workers_equal_threads(tmp_path, client, name, init):
    X, w = case(name)
    rows = stored(tmp_path, X)
    expected = fit(X, init, X, w, engine=dc.LocalEngine(n_threads=1))
    same_bits(fit(rows, init, X, w, engine=client), expected)
    same_bits(fit(rows, init, X, w, engine=dc.LocalEngine(n_threads=2)), expected)


def test_numpy_on_a_cluster(client):
    X, w = case("weighted float32")
    expected = fit(X, "k-means++", X, w, engine="local")
    found = fit(X, "k-means++", X, w, engine=client)
    same_bits(found, expected)
    assert isinstance(found.labels_, np.ndarray)


def test_four_workers_of_which_one_leaves(tmp_path):
    from distributed import Client, LocalCluster

    X, w = case("weighted float64")
    rows = stored(tmp_path, X)
    expected = fit(X, "k-means||", X, w, engine="local")
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as four,
    ):
        same_bits(fit(rows, "k-means||", X, w, engine=four), expected)
        left = []

        def retire(event):
            if type(event).__name__ == "IterationEnded" and not left:
                left.append(next(iter(four.scheduler_info(n_workers=-1)["workers"])))
                four.retire_workers(left)

        same_bits(fit(rows, "k-means||", X, w, engine=four, callbacks=[retire]), expected)
        assert left
