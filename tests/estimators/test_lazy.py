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


@pytest.mark.parametrize("scale", [None, "standard"])
def test_labels_of_a_frame_become_its_column(scale: str | None, tmp_path: Any) -> None:
    frame, rows = frames("real")
    frame = frame.assign(name=frame["a"].astype(str)).repartition(npartitions=4)
    model = dc.KMeans(3, random_state=0).fit(
        dc.open_dataset(frame, columns=["a", "b"], scale=scale)
    )
    labels = model.predict(frame[["a", "b"]])
    assert isinstance(labels, dd.Series)
    whole = frame.assign(
        label=labels, far=model.predict(frame[["a", "b"]], return_distance=True)[1]
    )
    whole.to_parquet(str(tmp_path / "labelled"))
    back = dd.read_parquet(str(tmp_path / "labelled")).compute()
    assert np.array_equal(back["label"], model.predict(rows))
    assert np.array_equal(back["name"], frame["name"].compute())
    assert model.transform(frame[["a", "b"]]).compute().shape == (60, 3)
    mixture = dc.VariationalGaussianMixture(3, random_state=0).fit(frame[["a", "b"]])
    densities = mixture.score_samples(frame[["a", "b"]])
    assert isinstance(densities, dd.Series)
    assert np.array_equal(densities.compute(), mixture.score_samples(rows))
