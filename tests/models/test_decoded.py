"""Models remember whether they were fitted on decoded rows, and refuse others unless decode= is given."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs
from daskcluster.errors import InvalidDataError
from daskcluster.models.fitted import load_document

CODES = np.random.default_rng(4).integers(0, 90, (400, 3)).astype(np.int16)


@pytest.fixture
def packed(tmp_path: Path) -> str:
    url = str(tmp_path / "packed.zarr")
    zarr.create_array(url, data=CODES, chunks=(100, 3), attributes={"scale_factor": 0.5})
    return url


def labels_of(model: str, source: str, **more: bool) -> np.ndarray:
    jobs.predict(model, source, output="memory://decoded-labels", overwrite=True, **more)
    return np.asarray(zarr.open_array("memory://decoded-labels", mode="r")[:])


def test_a_fit_of_stored_numbers_labels_stored_numbers(packed: str, tmp_path: Path) -> None:
    url = str(tmp_path / "model")
    jobs.fit(packed, n_clusters=5, model=url, random_state=0, decode=False)
    fitted = dc.load_model(url)
    assert load_document(url).decoded is False
    expected = fitted.predict(CODES)
    np.testing.assert_array_equal(labels_of(url, packed, decode=False), expected)
    for model in (fitted, pickle.loads(pickle.dumps(fitted))):
        with pytest.raises(
            InvalidDataError, match="unlike the stored numbers of the fit of KMeans"
        ):
            model.predict(packed)
    with pytest.raises(InvalidDataError, match=r"decode=False \(--no-decode\)"):
        labels_of(url, packed)


def test_a_model_of_an_earlier_version_asks(packed: str, tmp_path: Path) -> None:
    url = str(tmp_path / "model")
    jobs.fit(packed, n_clusters=5, model=url, random_state=0)
    fitted = dc.load_model(url)
    np.testing.assert_array_equal(labels_of(url, packed), fitted.predict(CODES * 0.5))
    old = dc.KMeans(5, random_state=0).fit(CODES)
    del vars(old)["_decoded"]
    old.save(url, overwrite=True)
    assert load_document(url).decoded is None
    with pytest.raises(InvalidDataError, match="earlier versions did not always do"):
        labels_of(url, packed)
    np.testing.assert_array_equal(labels_of(url, packed, decode=False), old.predict(CODES))
    np.testing.assert_array_equal(labels_of(url, packed, decode=True), old.predict(CODES * 0.5))


def test_streams_remember_it(packed: str, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    done = jobs.stream(packed, state=state, n_clusters=5, decode=False)
    assert done.rows_seen == 400
    model = json.loads((tmp_path / "state" / "latest.json").read_text())["model"]
    assert load_document(f"{state}/{model}").decoded is False
