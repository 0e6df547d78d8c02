"""From a bucket to a bucket, on servers that are not ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import daskcluster as dc
from daskcluster.cli.main import main
from daskcluster.data.convert import convert
from daskcluster.data.writer import ZarrSink
from daskcluster.engine.connect import local_cluster
from daskcluster.errors import DatasetNotFoundError, InvalidDataError
from daskcluster.events import IterationEnded
from daskcluster.storage.change_guard import objects_at
from daskcluster.storage.location import locate
from tests.servers.conftest import Server

SETTINGS = {"random_state": 0, "max_iter": 6, "tol": 0.0}


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).lognormal(size=(20_000, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def stored(server: Server, rows: np.ndarray) -> Server:
    options = dict(server.options)
    convert(rows, f"{server.url}/plain.zarr", chunk_rows=2000, storage_options=options)
    convert(
        rows, f"{server.url}/sharded.zarr", chunk_rows=500, shard_rows=5000, storage_options=options
    )
    return server


@pytest.fixture(scope="module")
def truth(rows: np.ndarray) -> dc.KMeans:
    return dc.KMeans(6, **SETTINGS).fit(rows)


def names(server: Server, path: str) -> set[str]:
    found = objects_at(locate(f"{server.url}/{path}", server.options))
    assert found is not None
    return set(found)


def test_the_versions_of_objects_are_known(stored: Server) -> None:
    found = objects_at(locate(f"{stored.url}/plain.zarr", stored.options))
    assert found is not None
    assert set(found) == {"zarr.json", *(f"c/{i}/0" for i in range(10))}
    assert all(size and version for size, version in found.values())


@pytest.mark.parametrize("name", ["plain", "sharded"])
def test_a_fit_keeps_its_state_there_and_continues(
    stored: Server, truth: dc.KMeans, name: str
) -> None:
    dataset = dc.open_dataset(f"{stored.url}/{name}.zarr", storage_options=dict(stored.options))
    place = locate(f"{stored.url}/kept-{name}", stored.options)
    kept = {**SETTINGS, "init": truth_start(truth), "checkpoint": place, "checkpoint_every": 1}

    def stop(event: Any) -> None:
        if isinstance(event, IterationEnded) and event.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dc.KMeans(6, **kept, callbacks=(stop,)).fit(dataset)
    found = dc.KMeans(6, **kept).fit(dataset, resume=True)
    expected = dc.KMeans(6, **SETTINGS, init=truth_start(truth)).fit(dataset.to_numpy())
    assert found.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    found.save(f"{stored.url}/model-{name}", storage_options=dict(stored.options))
    again = dc.load_model(f"{stored.url}/model-{name}", storage_options=dict(stored.options))
    assert again.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()


def truth_start(truth: dc.KMeans) -> np.ndarray:
    return np.ascontiguousarray(truth.cluster_centers_[::-1]) * np.float32(0.5)


def test_workers_read_and_write_there(stored: Server, truth: dc.KMeans, rows: np.ndarray) -> None:
    url, options = f"{stored.url}/plain.zarr", dict(stored.options)
    dataset = dc.open_dataset(url, storage_options=options)
    with local_cluster(2) as client:
        start = truth_start(truth)
        found = dc.KMeans(6, **SETTINGS, init=start, engine=client).fit(dataset)
        output = f"{stored.url}/labels.zarr"
        found.predict(dataset, output=output, storage_options=options)
    expected = dc.KMeans(6, **SETTINGS, init=start).fit(rows)
    assert found.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    labels = zarr.open_array(output, mode="r", storage_options=options)
    assert np.array_equal(labels[:], expected.labels_)


def test_outputs_are_whole_or_absent(stored: Server) -> None:
    url, options = f"{stored.url}/output.zarr", dict(stored.options)
    create: dict[str, Any] = {"n_rows": 10, "chunk_rows": 4, "storage_options": options}

    def write(sink: ZarrSink) -> None:
        for start in range(0, 10, 4):
            sink.write(start, np.arange(start, min(start + 4, 10)))

    half = ZarrSink.create(url, **create)
    half.write(0, np.arange(4))
    with pytest.raises(DatasetNotFoundError, match="is half-written"):
        dc.open_dataset(url, storage_options=options)
    with ZarrSink.create(url, **create).transaction() as sink:
        write(sink)
    assert names(stored, "output.zarr") == {"zarr.json", "c/0", "c/1", "c/2"}
    again = ZarrSink.create(url, overwrite=True, **create)
    with pytest.raises(ZeroDivisionError), again.transaction():
        raise ZeroDivisionError
    assert names(stored, "output.zarr") == set()


@pytest.mark.parametrize("what", ["lost", "changed"])
def test_rows_that_change_under_a_fit(stored: Server, what: str, truth: dc.KMeans) -> None:
    url, options = f"{stored.url}/moving-{what}.zarr", dict(stored.options)
    convert(np.ones((4000, 4), np.float32), url, chunk_rows=1000, storage_options=options)
    fs, path = locate(url, options).filesystem()
    acts: dict[str, Callable[[], None]] = {
        "lost": lambda: fs.rm_file(f"{path}/c/2/0"),
        "changed": lambda: fs.pipe_file(f"{path}/c/2/0", fs.cat_file(f"{path}/c/2/0")[::-1]),
    }

    def act(event: Any) -> None:
        if isinstance(event, IterationEnded) and event.iteration == 1:
            acts[what]()

    start = np.zeros((2, 4), np.float32)
    model = dc.KMeans(2, init=start, max_iter=3, tol=0, callbacks=(act,))
    message = "c/2/0 has disappeared" if what == "lost" else "c/2/0 was rewritten"
    with pytest.raises(InvalidDataError, match=message):
        model.fit(dc.open_dataset(url, storage_options=options))


def test_from_bucket_to_bucket_by_commands(
    stored: Server, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", rows)
    flags, top = stored.flags(), f"{stored.url}/commands"

    def run(*words: str) -> dict[str, Any]:
        result = CliRunner().invoke(main, [*words, *flags, "--json"])
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return found

    run("convert", "rows.npy", f"{top}/rows.zarr", "--chunk-rows", "4000", "--shard-rows", "8000")
    fit = ["fit", f"{top}/rows.zarr", "--n-clusters", "5", "--random-state", "0", "--resume"]
    fit += ["--checkpoint", f"{top}/kept", "--model", f"{top}/m", "--labels", f"{top}/l.zarr"]
    fitted = run(*fit)
    assert run(*fit, "--overwrite")["n_iter"] == fitted["n_iter"]
    assert run("score", f"{top}/m", f"{top}/rows.zarr")["inertia"] == fitted["inertia"]
    run("predict", f"{top}/m", f"{top}/rows.zarr", "--output", f"{top}/again.zarr")
    first, second = (
        zarr.open_array(f"{top}/{name}.zarr", mode="r", storage_options=dict(stored.options))[:]
        for name in ("l", "again")
    )
    assert np.array_equal(first, second)
    run("coreset", f"{top}/rows.zarr", "--size", "300", "--output", f"{top}/few")
    assert run("info", f"{top}/few")["rows"] == 300
    secrets = [value for name, value in os.environ.items() if "SECRET" in name]
    assert not any(secret in json.dumps(fitted) for secret in secrets)
