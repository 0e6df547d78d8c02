"""Laws 1, 3 and 7 for bounds: kept by workers, lost with them, and chunks that need not be read."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import events
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.methods.kmeans.bounds import BOUNDS
from tests.laws.test_law_02_chunking import same_bits
from tests.tiles import BOUNDS_SPARE

N, D, K = 200_000, 16, 30


def mixture(*, in_order):
    rng = np.random.default_rng(11)
    centres = 6 * rng.standard_normal((K, D))
    labels = rng.integers(0, K, N)
    if in_order:
        labels = np.sort(labels)
    return (centres[labels] + rng.standard_normal((N, D))).astype(np.float32)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Return URLs of rows in arrival order (plain chunks) and in random order (shards)."""
    folder = tmp_path_factory.mktemp("bounds")
    urls = {}
    for name, shards in [("in order", None), ("at random", (32_768, D))]:
        url = str(folder / f"{name}.zarr")
        array = zarr.create_array(url, shape=(N, D), chunks=(4096, D), shards=shards, dtype="f4")
        array[:] = mixture(in_order=shards is None)
        urls[name] = url
    return urls


def start_of(url):
    return zarr.open_array(url)[:: N // K][:K]


def fitted(url, algorithm, engine, **options):
    return dc.KMeans(
        K, init=start_of(url), algorithm=algorithm, tol=0, max_iter=25, engine=engine, **options
    ).fit(url)


@pytest.fixture(scope="module")
def plain(rows):
    return {name: fitted(url, "lloyd", dc.LocalEngine(2)) for name, url in rows.items()}


@pytest.mark.parametrize("algorithm", ["auto", "hamerly", "yinyang", "elkan"])
@pytest.mark.parametrize("order", ["in order", "at random"])
def test_workers_and_threads(client, rows, plain, algorithm, order):
    same_bits(fitted(rows[order], algorithm, client), plain[order])
    same_bits(fitted(rows[order], algorithm, dc.LocalEngine(2)), plain[order])


@pytest.mark.parametrize("algorithm", ["hamerly", "yinyang", "elkan"])
def test_chunks_without_a_failing_row_are_not_read(rows, plain, algorithm):
    state = N * BOUNDS[algorithm].row_bytes(K, np.dtype(np.float32))
    engine = dc.LocalEngine(2, memory_limit=2 * (BASELINE_BYTES + state + 2**17))
    model = fitted(rows["in order"], algorithm, engine)
    same_bits(model, plain["in order"])
    whole = N * D * 4
    read = [record["bytes_read"] for record in model.history_]
    assert read[0] == read[1] == whole, "nothing stays resident in this little memory"
    if BOUNDS_SPARE:
        assert min(read[2:]) < 0.7 * whole
    else:
        assert set(read) == {whole}


def test_a_worker_that_dies_takes_bounds_along(rows, plain):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        killed = []

        def kill(event):
            if isinstance(event, events.IterationEnded) and event.iteration == 4:
                killed.append(sorted(client.run(os.getpid).values())[0])
                os.kill(killed[0], signal.SIGKILL)

        for algorithm in ("hamerly", "yinyang"):
            killed.clear()
            client.wait_for_workers(2, timeout=30)
            model = fitted(rows["at random"], algorithm, client, callbacks=[kill])
            assert killed
            same_bits(model, plain["at random"])
