"""Lazy results of dask frames whose columns may lack values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import daskcluster as dc

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")

COLUMNS = {
    "real": {"a": "Float64", "b": "Float64"},
    "single": {"a": "Float32", "b": "Float32"},
    "whole": {"a": "Int64", "b": "Int64"},
    "mixed": {"a": "Float64", "b": "float32"},
}


def frames(kind: str) -> tuple[Any, np.ndarray]:
    rows = np.random.default_rng(0).integers(-9, 9, (60, 2)) + [[0, 0], [40, 40], [0, 90]] * 20
    frame = pd.DataFrame(rows, columns=["a", "b"]).astype(COLUMNS[kind])
    return dd.from_pandas(frame, npartitions=3), rows.astype(float)


@pytest.mark.parametrize("kind", COLUMNS)
def test_frames_of_nullable_columns_are_labelled(kind: str) -> None:
    frame, rows = frames(kind)
    model = dc.KMeans(3, init=rows[:3], random_state=0).fit(frame)
    assert np.array_equal(np.asarray(model.predict(frame)), model.predict(rows))
    assert np.allclose(np.asarray(model.transform(frame)), model.transform(rows))


def test_frames_of_nullable_columns_are_labelled_by_a_mixture() -> None:
    frame, rows = frames("real")
    model = dc.VariationalGaussianMixture(3, random_state=0).fit(frame)
    assert np.array_equal(np.asarray(model.predict(frame)), model.predict(rows))
