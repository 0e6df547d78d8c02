"""Saved models come back as the estimators that were fitted, and nothing in a file is imported."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import ModelFormatError
from daskcluster.estimators.base import registered_name
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.methods.load import load_model
from daskcluster.models.fitted import KMeansModel, load_document, save_model

X = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_class_that_was_fitted_comes_back(name: str, tmp_path: Path) -> None:
    entry = ALGORITHMS[name]
    arguments = entry.arguments({"n_clusters": 4, "random_state": 1})
    fitted = resolve_name(entry.estimator)(**arguments, engine="local").fit(X)
    fitted.save(str(tmp_path / "m"))
    again = load_model(str(tmp_path / "m"))
    assert type(again) is type(fitted)
    objects = {"engine": None, "callbacks": ()}
    assert again.get_params() == {**fitted.get_params(), **objects}
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.score(X) == fitted.score(X)
    again.save(str(tmp_path / "again"))
    one, other = (load_document(str(tmp_path / name)) for name in ("m", "again"))
    assert one.body() == other.body()


def test_documents_that_name_no_estimator_are_of_kmeans() -> None:
    model = KMeansModel(np.zeros((2, 3), np.float32), np.ones(2), n_rows=2)
    body = model.body()
    del body["estimator"]
    assert KMeansModel.from_parts(body, model.arrays()).estimator == "KMeans"


@pytest.mark.parametrize("name", ["NoSuchMeans", "os:system", "daskcluster.data.open:open_dataset"])
def test_unknown_estimators_are_refused_by_name(name: str) -> None:
    url = "memory://test_load/unknown"
    model = KMeansModel(np.eye(2), np.ones(2), n_rows=2, estimator=name)
    save_model(model, url, overwrite=True)
    with pytest.raises(ModelFormatError, match=r"of the estimator '.*', known are KMeans.*newer"):
        load_model(url)


def test_a_class_of_ones_own_comes_back_as_its_base(tmp_path: Path) -> None:
    class Mine(dc.KMeans):
        pass

    assert registered_name(Mine) == "KMeans"
    assert registered_name(dict) == "dict"
    fitted: Any = Mine(2, random_state=0, engine="local").fit(X)
    fitted.save(str(tmp_path / "m"))
    assert type(load_model(str(tmp_path / "m"))) is dc.KMeans
