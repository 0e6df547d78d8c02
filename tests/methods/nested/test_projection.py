"""What a nested fit says beforehand, against what it takes."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.nested.estimator import plan_fit


def parameters(**changes):
    defaults = {p.name: p.default for p in ALGORITHMS["nested"].table}
    return {**defaults, "n_clusters": 4, "max_iter": 6, **changes}


@pytest.fixture
def stored(tmp_path):
    X = np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32)
    array = zarr.create_array(str(tmp_path / "rows"), shape=X.shape, chunks=(100, 3), dtype=X.dtype)
    array[:] = X
    return open_dataset(str(tmp_path / "rows"))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 200, "rho": 0.5},
        {"batch_size": 200, "shuffle": False},
        {"batch_size": 2000, "tol": 0.0},
        {"batch_size": 200, "init": "random"},
    ],
)
def test_no_fit_makes_more_passes_than_its_plan_says(stored, changes):
    values = parameters(**changes)
    plan = plan_fit(stored, values)
    model = dc.NestedMiniBatchKMeans(**{**values, "random_state": 0}).fit(stored)
    assert model.passes_ <= plan.passes_at_most
    assert model.seeding_ == plan.seeding


def test_bounds_are_announced_only_if_there_are_any(stored):
    assert plan_fit(stored, parameters(bounds="hamerly")).states == {"hamerly": 12 * 2000}
    assert plan_fit(stored, parameters(bounds=False)).states == {}
    assert plan_fit(stored, parameters(bounds_memory=7)).states_at_most == 7
