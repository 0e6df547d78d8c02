"""Fits that die within a pass: a resumed fit continues the pass, to the same bits."""

from __future__ import annotations

import time
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.data import readahead
from daskcluster.engine import local, pass_run
from daskcluster.engine.operations import WorkQueue
from daskcluster.events import PassEnded
from daskcluster.storage import pass_totals
from daskcluster.storage.pass_totals import PassTotal, PassTotals
from tests.estimators.interruption import Killed
from tests.laws.data import lognormal

N, K = 24_000, 6

FITS: dict[str, Any] = {
    "lloyd": lambda **kept: dc.KMeans(K, algorithm="lloyd", max_iter=4, tol=0, **kept),
    "k-means++": lambda **kept: dc.KMeans(K, init="k-means++", max_iter=2, **kept),
    "elkan": lambda **kept: dc.KMeans(K, algorithm="elkan", max_iter=4, tol=0, **kept),
    "truncated EM": lambda **kept: dc.VariationalGaussianMixture(
        K, truncation=3, n_neighbors=3, max_iter=3, tol=0, warmup_steps=1, **kept
    ),
    "exact EM": lambda **kept: dc.VariationalGaussianMixture(
        K, truncation=K, covariance_type="diag", max_iter=2, tol=0, **kept
    ),
    "coreset": lambda **kept: dc.LightweightCoreset(500, **kept),
    "variance reduced": lambda **kept: dc.VarianceReducedKMeans(K, max_iter=2, **kept),
    "levels": lambda **kept: dc.HierarchicalKMeans(12, n_coarse=3, refine=True, **kept),
}
ARRAYS = "cluster_centers_", "means_", "covariances_", "component_weights_", "labels_"


@pytest.fixture(params=["dense", "weighted float64"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    dtype = np.float32 if request.param == "dense" else np.float64
    X = lognormal(N, 16, dtype=dtype)
    zarr.create_array(str(tmp_path / "rows.zarr"), data=X, chunks=(1024, 16))
    weights = None
    if request.param != "dense":
        weights = np.random.default_rng(0).lognormal(sigma=2.0, size=N)
    opened = dc.open_dataset(str(tmp_path / "rows.zarr"), weights=weights)
    return opened.with_facts(partitions=[(at, min(N, at + 1024)) for at in range(0, N, 1024)])


def results(model: Any) -> list[bytes]:
    if isinstance(model, dc.LightweightCoreset):
        return [model.coreset_.to_numpy().tobytes(), np.asarray(model.coreset_.weights).tobytes()]
    return [np.asarray(getattr(model, name)).tobytes() for name in ARRAYS if hasattr(model, name)]


add_rows = WorkQueue.add_rows


def slow_rows(queue: WorkQueue, count: int) -> None:
    """Let a pass take so long that totals are due within it."""
    time.sleep(0.002)
    add_rows(queue, count)


@pytest.fixture
def kept_always(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let totals be due at any time; return the numbers of rows of those that were kept."""
    found: list[int] = []
    keep = PassTotal.keep

    def counted(self: PassTotal, value: Any, spans: Any) -> None:
        keep(self, value, spans)
        found.append(sum(stop - start for start, stop in [*self.spans, *spans]))

    monkeypatch.setattr(pass_totals, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(pass_totals, "_COST", 0)
    monkeypatch.setattr(local, "_POLL_SECONDS", 0.0005)
    monkeypatch.setattr(WorkQueue, "add_rows", slow_rows)
    monkeypatch.setattr(readahead, "WINDOW_BYTES", 1)
    monkeypatch.setattr(pass_run, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(PassTotal, "keep", counted)
    return found


def dies_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the fit die after so many totals were kept."""
    write, made = PassTotals.write, [0]

    def last(self: PassTotals, name: str, payload: bytes) -> None:
        write(self, name, payload)
        made[0] += 1
        if made[0] == number:
            raise Killed

    monkeypatch.setattr(PassTotals, "write", last)


def fit_with_deaths(make: Any, rows: Any, engines: Any, steps: Any, **kept: Any) -> Any:
    """Fit in processes that die after so many kept totals; return the model and the number of deaths."""
    deaths = 0
    for step, engine in zip(steps, cycle(engines), strict=False):
        with pytest.MonkeyPatch.context() as monkeypatch:
            dies_at(monkeypatch, step)
            try:
                return make(engine=engine, **kept).fit(rows, resume=deaths > 0), deaths
            except Killed:
                deaths += 1
    return make(engine=engines[0], **kept).fit(rows, resume=True), deaths


@pytest.mark.parametrize("name", FITS)
def test_a_fit_killed_within_passes_ends_with_the_same_bits(
    rows: Any, kept_always: list[int], tmp_path: Path, name: str
) -> None:
    make = FITS[name]
    whole = results(make(random_state=3, engine="local").fit(rows))
    kept = {"random_state": 3, "checkpoint": str(tmp_path / "kept")}
    steps = 1, 9, 4, 23, 2, 16, 1, 30, 11, 7, 3, 40
    model, deaths = fit_with_deaths(make, rows, [dc.LocalEngine(2)], steps, **kept)
    assert deaths > 2
    assert any(0 < count < N for count in kept_always)
    assert results(model) == whole


def test_another_engine_continues_a_pass(
    rows: Any, kept_always: list[int], tmp_path: Path, client: Any
) -> None:
    make = FITS["truncated EM"]
    whole = results(make(random_state=3, engine="local").fit(rows))
    kept = {"random_state": 3, "checkpoint": str(tmp_path / "kept")}
    steps = 3, 2, 9, 4, 14, 2
    model, deaths = fit_with_deaths(make, rows, [dc.LocalEngine(1), client], steps, **kept)
    assert deaths > 2
    assert any(0 < count < N for count in kept_always)
    assert results(model) == whole


def test_a_short_pass_keeps_nothing(rows: Any, tmp_path: Path) -> None:
    FITS["lloyd"](random_state=3, checkpoint=str(tmp_path / "kept")).fit(rows)
    assert not list((tmp_path / "kept").glob("*/passes"))


def test_the_seed_of_an_unseeded_fit_is_kept_before_its_first_commit(
    rows: Any, kept_always: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"checkpoint": str(tmp_path / "kept"), "engine": "local"}
    with pytest.MonkeyPatch.context() as within:
        dies_at(within, 3)
        with pytest.raises(Killed):
            FITS["lloyd"](**kept).fit(rows)
    heard: list[Any] = []
    FITS["lloyd"](**kept, callbacks=(heard.append,)).fit(rows, resume=True)
    read = [event.bytes_read for event in heard if isinstance(event, PassEnded)]
    assert read[0] < N * 16 * rows.dtype.itemsize


def test_a_damaged_total_is_left_out(rows: Any, kept_always: list[int], tmp_path: Path) -> None:
    whole = results(FITS["lloyd"](random_state=3).fit(rows))
    kept = {"random_state": 3, "checkpoint": str(tmp_path / "kept"), "engine": "local"}
    with pytest.MonkeyPatch.context() as within:
        dies_at(within, 2)
        with pytest.raises(Killed):
            FITS["lloyd"](**kept).fit(rows)
    for file in (tmp_path / "kept").glob("*/passes/*"):
        file.write_bytes(file.read_bytes()[:-9] + b"123456789")
    with pytest.warns(RuntimeWarning, match="its pass is made again"):
        assert results(FITS["lloyd"](**kept).fit(rows, resume=True)) == whole
