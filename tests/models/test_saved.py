"""Documents that are in the world already stay readable: folders that were saved once, kept as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daskcluster.methods.load import load_model
from daskcluster.models.fitted import load_document, save_model

SAVED = Path(__file__).parent / "saved"
LATER = {"created_with", "parameters"}
KINDS = pytest.mark.parametrize("kind", ["kmeans", "mixture"])


@KINDS
def test_a_saved_model_is_read_and_written_as_it_was(kind: str, tmp_path: Path) -> None:
    model = load_document(str(SAVED / f"{kind}.zarr"))
    assert model.kind == kind
    assert (model.n_clusters, model.n_features, model.n_rows) == (2, 2, 6)
    assert sorted(map(tuple, model.centres)) == [(1.0, 2.0), (10.0, 2.0)]
    assert len(model.history) == model.n_iter > 0
    save_model(model, str(tmp_path / "again.zarr"))
    again = tmp_path / "again.zarr" / "zarr.json"
    assert again.read_text() == (SAVED / f"{kind}.zarr" / "zarr.json").read_text()


@KINDS
def test_a_saved_model_is_an_estimator_again(kind: str) -> None:
    estimator = load_model(str(SAVED / f"{kind}.zarr"))
    model, again = load_document(str(SAVED / f"{kind}.zarr")), estimator.to_model()
    # Parameters that were unknown then have their defaults, and our versions are others.
    ours, theirs = (
        {name: value for name, value in each.body().items() if name not in LATER}
        for each in (again, model)
    )
    assert ours == theirs
    assert again.body()["parameters"].keys() >= model.body()["parameters"].keys()
    for name, values in model.arrays().items():
        assert np.array_equal(again.arrays()[name], values)
    labels = estimator.predict(np.array([[1.0, 2.0], [10.0, 2.0]], np.float32))
    assert model.centres[labels][:, 0].tolist() == [1.0, 10.0]
