"""Models of fits that left out rows with missing values do so with other rows, unless a call says how."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs
from daskcluster.cli.console import Failure
from daskcluster.cli.main import main
from daskcluster.errors import InvalidDataError
from daskcluster.models.fitted import load_document

ROWS = np.random.default_rng(7).normal(size=(1200, 3)).astype(np.float32)
GAPPY = ROWS.copy()
GAPPY[::7, 1] = np.nan
COMPLETE = np.isfinite(GAPPY).all(axis=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    zarr.create_array(str(tmp_path / "x.zarr"), data=GAPPY, chunks=(100, 3))
    return str(tmp_path / "x.zarr")


def size_of(report: dict[str, Any]) -> int:
    return sum(list(report["clusters"].values())[-1]["sizes"])


@pytest.mark.parametrize("scale", [None, "standard"])
@pytest.mark.parametrize(
    "estimator",
    [
        dc.KMeans(4, random_state=0),
        dc.KMeans(4, random_state=0, metric="cosine"),
        dc.KernelKMeans(4, random_state=0),
        dc.HierarchicalKMeans(4, random_state=0),
        dc.VariationalGaussianMixture(4, random_state=0),
    ],
    ids=str,
)
def test_rows_are_left_out_as_in_the_fit(
    estimator: Any, scale: str | None, url: str, tmp_path: Path
) -> None:
    fitted = estimator.fit(dc.open_dataset(GAPPY, missing="drop", scale=scale))
    fitted.save(str(tmp_path / "model"))
    expected = np.where(COMPLETE, 0, -1)
    expected[COMPLETE] = fitted.predict(ROWS[COMPLETE])
    rows_of = getattr(fitted, "score_samples", getattr(fitted, "transform", None))
    values = rows_of(ROWS[COMPLETE])
    for model in (
        fitted,
        dc.load_model(str(tmp_path / "model")),
        pickle.loads(pickle.dumps(fitted)),
    ):
        for source in (GAPPY, url, da.from_array(GAPPY, chunks=(500, 3))):
            np.testing.assert_array_equal(np.asarray(model.predict(source)), expected)
        rows_of = getattr(model, "score_samples", getattr(model, "transform", None))
        found = rows_of(GAPPY)
        np.testing.assert_array_equal(found[COMPLETE], values)
        assert np.isnan(found[~COMPLETE]).all()
        for source in (GAPPY, url):
            assert model.score(source) == pytest.approx(model.score(ROWS[COMPLETE]), rel=1e-12)
        assert size_of(model.report(GAPPY).as_dict()) == COMPLETE.sum()
        assert model.predict(GAPPY[:1]).tolist() == [-1]
        with pytest.raises(InvalidDataError, match="NaN"):
            model.predict(dc.open_dataset(GAPPY, missing="error"))
        filled = model.predict(dc.open_dataset(GAPPY, missing="mean"))
        assert (filled >= 0).all()


def test_jobs_and_commands_leave_them_out(url: str, tmp_path: Path) -> None:
    model, out = str(tmp_path / "model"), str(tmp_path / "labels.npy")
    main(["fit", url, "-k", "4", "--model", model, "--missing", "drop"], standalone_mode=False)
    assert load_document(model).missing == "drop"
    expected = dc.load_model(model).predict(GAPPY)
    main(["predict", model, url, "--output", out], standalone_mode=False)
    np.testing.assert_array_equal(np.load(out), expected)
    complete = jobs.score(model, ROWS[COMPLETE], metrics=["davies-bouldin"])
    found = jobs.score(model, url, metrics=["davies-bouldin"])
    assert found.inertia == pytest.approx(complete.inertia)
    assert found.n_rows == COMPLETE.sum()
    assert found.metrics == pytest.approx(complete.metrics)
    report = str(tmp_path / "report.json")
    main(["report", model, "--data", url, "--output", report], standalone_mode=False)
    assert size_of(json.loads(Path(report).read_text())) == COMPLETE.sum()
    sample, other = str(tmp_path / "ids.npy"), str(tmp_path / "again.npy")
    given = ["sample", model, url, "--size", "300", "--random-state", "0"]
    main([*given, "--output", sample], standalone_mode=False)
    main([*given, "--missing", "drop", "--output", other], standalone_mode=False)
    drawn = np.load(sample)
    assert len(drawn) == 300
    assert COMPLETE[drawn].all()
    np.testing.assert_array_equal(drawn, np.load(other))
    for source in (GAPPY, url):
        again = dc.balanced_sample(dc.load_model(model), source, size=300, random_state=0)
        np.testing.assert_array_equal(again.rows, drawn)
        np.testing.assert_array_equal(again.take(), GAPPY[drawn])
    for refused in ("predict", "score", "sample"):
        given = [refused, model, url, "--missing", "error"]
        given += ["--output", out, "--overwrite"] if refused != "score" else []
        given += ["--size", "9"] if refused == "sample" else []
        with pytest.raises(Failure, match="NaN"):
            main(given, standalone_mode=False)


def test_models_of_streams_leave_them_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    frame = pd.DataFrame(GAPPY, columns=["a", "b", "c"])
    frame.to_parquet(tmp_path / "in" / "1.parquet")
    for missing in ("drop", "error"):
        state = str(tmp_path / missing)
        cycle = jobs.stream(str(tmp_path / "in"), state=state, n_clusters=3, missing=missing)
        assert cycle.rows_seen == (COMPLETE.sum() if missing == "drop" else 0)
        if cycle.model is not None:
            model = dc.load_model(cycle.model)
            assert load_document(cycle.model).missing == "drop"
            assert ((model.predict(frame) == -1) == ~COMPLETE).all()


def test_other_models_refuse_them_and_earlier_ones_open(tmp_path: Path) -> None:
    fitted = dc.KMeans(4, random_state=0).fit(ROWS)
    assert "missing" not in fitted.to_model().body()
    del vars(fitted)["_missing"]
    fitted.save(str(tmp_path / "model"))
    for model in (fitted, dc.load_model(str(tmp_path / "model"))):
        with pytest.raises(InvalidDataError, match="NaN"):
            model.predict(GAPPY)


def test_a_frame_with_missing_values_gets_a_column_of_labels() -> None:
    frame = pd.DataFrame(GAPPY, columns=["missing", "b", "c"], index=np.arange(1200) * 2)
    fitted = dc.KMeans(4, random_state=0).fit(dc.open_dataset(frame, missing="drop"))
    joined = frame.assign(label=fitted.labels_, again=fitted.predict(frame[["c", "missing", "b"]]))
    assert joined.label.equals(joined.again)
    assert (joined.label == -1).equals(joined.b.isna())


def test_a_model_of_a_grid_leaves_out_what_its_grid_left_out(tmp_path: Path) -> None:
    grid = dc.open_grid(GAPPY.reshape(40, 30, 3))
    fitted = dc.KMeans(4, random_state=0).fit(grid.dataset)
    fitted.save(str(tmp_path / "model"))
    expected = np.full(len(GAPPY), -1)
    expected[COMPLETE] = fitted.labels_
    for model in (fitted, dc.load_model(str(tmp_path / "model"))):
        assert np.array_equal(model.predict(GAPPY), expected)
    refusing = dc.KMeans(4, random_state=0).fit(
        dc.open_grid(ROWS.reshape(40, 30, 3), missing="error").dataset
    )
    with pytest.raises(InvalidDataError, match="NaN"):
        refusing.predict(GAPPY)
