"""Law 9: passes are counted and equal what the docstrings' Cost sections promise."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import events


class Counting:
    def __init__(self):
        self.passes = []

    def __call__(self, event):
        if isinstance(event, events.PassEnded):
            self.passes.append(event.name)


@pytest.fixture
def rows(tmp_path):
    X = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)
    array = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(500, 3), dtype=X.dtype)
    array[:] = X
    return str(tmp_path / "x.zarr")


@pytest.mark.parametrize(
    ("init", "seeding"),
    [("array", 0), ("random", 0), ("k-means||", 6), ("k-means++", 6), ("afk-mc2", 2)],
)
def test_fit(rows, init, seeding):
    heard = Counting()
    start = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    model = dc.KMeans(
        5,
        init=start if init == "array" else init,
        random_state=0,
        callbacks=[heard],
        engine=dc.LocalEngine(memory_limit=600 * 2**20),  # nothing stays resident
    ).fit(rows)
    empty = sum(1 for record in model.history_ if record["n_empty"])
    assert model.passes_ == seeding + model.n_iter_ + empty + 1
    assert len(heard.passes) == model.passes_


def test_bytes_of_a_stateless_fit(rows):
    engine = dc.LocalEngine(n_threads=1, memory_limit=286 * 2**20 + 64 * 2**20)
    model = dc.KMeans(3, init="random", random_state=0, engine=engine, max_iter=4).fit(rows)
    probe = model.bytes_read_ - model.passes_ * 4000 * 12
    assert 0 <= probe <= 2 * 4000 * 12  # rows fetched for the probe and for the centres


def test_resident_rows_are_read_once(rows):
    model = dc.KMeans(3, init="random", random_state=0, engine="local", max_iter=4).fit(rows)
    assert model.bytes_read_ <= 3 * 4000 * 12


def test_predict_is_one_pass_and_labels_are_lazy(rows):
    heard = Counting()
    model = dc.KMeans(3, init="random", random_state=0, engine="local", callbacks=[heard]).fit(rows)
    before = model.passes_
    labels = np.asarray(model.labels_)
    assert model.passes_ == before
    assert np.array_equal(labels, model.predict(rows))
