"""Labels that were being written when the process died are not computed again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs
from daskcluster.data.writer import StagedArray, ZarrSink
from daskcluster.events import PassProgress
from tests.laws.data import lognormal

N, CHUNK = 9000, 700
Killed = KeyboardInterrupt


def stored(folder: Path) -> str:
    url = str(folder / "rows.zarr")
    zarr.create_array(url, data=lognormal(N, 64), chunks=(CHUNK, 64))
    return url


def fitted(kind: str) -> Any:
    X, one = lognormal(500, 64), {"random_state": 0, "engine": dc.LocalEngine(1)}
    if kind == "k-means":
        return dc.KMeans(5, **one).fit(X)
    if kind == "kernel":
        return dc.MiniBatchKernelKMeans(3, max_iter=3, **one).fit(X)
    return dc.VariationalGaussianMixture(5, truncation=2, n_neighbors=2, **one).fit(X)


def killed_after(monkeypatch: pytest.MonkeyPatch, n_blocks: int, call: Any) -> None:
    """Let the process die once so many blocks are written."""
    written, write = [0], StagedArray.write

    def counted(self: StagedArray, start: int, values: np.ndarray) -> None:
        if written[0] == n_blocks:
            raise Killed
        write(self, start, values)
        written[0] += 1

    with monkeypatch.context() as patch:
        patch.setattr(StagedArray, "write", counted)
        with pytest.raises(Killed):
            call()


@pytest.mark.parametrize("kind", ["k-means", "mixture", "kernel"])
@pytest.mark.parametrize("n_blocks", [0, 2])
def test_predict_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, n_blocks: int
) -> None:
    source, output, model = stored(tmp_path), str(tmp_path / "labels.zarr"), fitted(kind)

    def predict() -> None:
        model.predict(source, output=output, resume=True)

    killed_after(monkeypatch, n_blocks, predict)
    assert not os.path.exists(output)
    blocks: list[int] = []
    write = StagedArray.write

    def noted(self: StagedArray, start: int, values: np.ndarray) -> None:
        blocks.append(start)
        write(self, start, values)

    monkeypatch.setattr(StagedArray, "write", noted)
    predict()
    assert min(blocks) > 0 if n_blocks else min(blocks) == 0
    assert np.array_equal(zarr.open_array(output)[:], model.predict(source))
    assert sorted(os.listdir(tmp_path)) == ["labels.zarr", "rows.zarr"]


def test_without_resume_an_interrupted_predict_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output, model = stored(tmp_path), str(tmp_path / "labels.zarr"), fitted("k-means")
    killed_after(monkeypatch, 2, lambda: model.predict(source, output=output))
    assert os.listdir(tmp_path) == ["rows.zarr"]


@pytest.mark.parametrize("change", ["model", "rows"])
def test_labels_of_something_else_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    source, output, model = stored(tmp_path), str(tmp_path / "labels.zarr"), fitted("k-means")
    killed_after(monkeypatch, 2, lambda: model.predict(source, output=output, resume=True))
    if change == "model":
        model.cluster_centers_ = model.cluster_centers_[::-1].copy()
    else:
        zarr.open_array(source)[N - 1] = 0.5
    model.predict(source, output=output, resume=True)
    assert np.array_equal(zarr.open_array(output)[:], model.predict(source))


def test_a_cluster_continues_where_threads_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Any
) -> None:
    source, output, model = stored(tmp_path), str(tmp_path / "labels.zarr"), fitted("k-means")
    killed_after(monkeypatch, 1, lambda: model.predict(source, output=output, resume=True))
    heard: list[Any] = []
    url = str(tmp_path / "model.zarr")
    model.save(url)
    jobs.predict(url, source, output=output, resume=True, engine=client, callbacks=(heard.append,))
    progress = [event.rows for event in heard if isinstance(event, PassProgress)]
    assert sum(progress) == N
    assert progress[0] % CHUNK == 0  # what was finished before
    assert np.array_equal(zarr.open_array(output)[:], model.predict(source))


def test_labels_and_posteriors_are_seen_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, url = stored(tmp_path), str(tmp_path / "model.zarr")
    model = fitted("mixture")
    model.save(url)
    outputs = {name: str(tmp_path / f"{name}.zarr") for name in ("output", "posteriors")}

    def predict() -> Any:
        return jobs.predict(url, source, **outputs, resume=True, engine=dc.LocalEngine(1))

    with monkeypatch.context() as patch:
        patch.setattr(ZarrSink, "write", _dies)
        with pytest.raises(Killed):
            predict()
    assert not any(os.path.exists(output) for output in outputs.values())
    record = predict()
    assert record.passes == 1  # the labels were there
    assert np.array_equal(zarr.open_array(outputs["output"])[:], model.predict(source))
    found = zarr.open_group(outputs["posteriors"])["components"][:, 0]
    assert np.array_equal(found, model.predict(source))


_write = ZarrSink.write


def _dies(self: ZarrSink, start: int, values: np.ndarray) -> None:
    if values.dtype.names is not None:  # posteriors
        raise Killed
    _write(self, start, values)


@pytest.mark.parametrize("algorithm", ["lloyd", "vc-gmm"])
def test_a_fit_that_died_while_it_wrote_labels_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    source = stored(tmp_path)
    urls = {name: str(tmp_path / f"{name}.zarr") for name in ("model", "labels")}
    given = {"n_clusters": 5, "algorithm": algorithm, "random_state": 0}
    given |= {"max_iter": 5, "tol": 0.0}
    given |= {"coreset_size": 600} if algorithm == "vc-gmm" else {}

    def fit(resume: bool) -> Any:
        kept = {"checkpoint": str(tmp_path / "kept"), "engine": dc.LocalEngine(1)}
        return jobs.fit(source, **given, **urls, **kept, resume=resume)

    killed_after(monkeypatch, 2, lambda: fit(True))
    assert not any(os.path.exists(url) for url in urls.values())
    record = fit(True)
    assert record.n_iter == 5
    model = dc.load_model(urls["model"])
    assert np.array_equal(zarr.open_array(urls["labels"])[:], model.predict(source))
    assert sorted(os.listdir(tmp_path)) == ["kept", "labels.zarr", "model.zarr", "rows.zarr"]
