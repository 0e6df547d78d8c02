"""``--missing``, ``--features`` and ``--nodata``: rows that lack values, and rasters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from click.testing import Result


def test_a_raster_becomes_a_map(
    tmp_path: Path, record: Callable[..., Any], run: Callable[..., Result]
) -> None:
    rng = np.random.default_rng(8)
    values = rng.integers(0, 40, (3, 30, 20)).astype(np.int8)
    values[:, :, 10:] += 60
    values[1, 4:9, 3] = -128
    raster, model, cover = (str(tmp_path / name) for name in ("r.zarr", "m.zarr", "c.zarr"))
    zarr.create_array(raster, data=values, chunks=(1, 10, 20))
    for overwrite in ([], ["--overwrite"]):
        fitted = record(
            "fit", raster, "--features", "0", "--nodata", "-128", "--n-clusters", "2",
            "--model", model, "--labels", cover, "--random-state", "0", *overwrite,
        )  # fmt: skip
    assert fitted["n_rows"] == 595
    found = zarr.open_group(cover, mode="r")["label"][:]
    assert found.shape == (30, 20)
    assert np.array_equal(found == -1, values[1] == -128)
    assert len(np.unique(found[:, 11:])) == 1
    record("predict", model, raster, "--features", "0", "--nodata", "-128", "--output", f"{cover}2")
    assert np.array_equal(zarr.open_group(f"{cover}2", mode="r")["label"][:], found)
    facts = record("info", raster, "--features", "0")
    assert (facts["rows"], facts["features"]) == (600, 3)
    plan = run(
        "fit", raster, "--features", "0", "--nodata", "-128", "--n-clusters", "2", "--dry-run"
    )
    assert "600 x 3" in plan.stdout


def test_rows_with_nan_are_left_out_or_filled_in(
    tmp_path: Path, record: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(8)
    gappy = rng.normal(size=(500, 3)).astype(np.float32)
    gappy[::50, 1] = np.nan
    np.save(tmp_path / "x.npy", gappy)
    rows, model = str(tmp_path / "x.npy"), str(tmp_path / "m2.zarr")
    for missing, n_rows in (("drop", 490), ("mean", 500)):
        done = record(
            "fit", rows, "--missing", missing, "--n-clusters", "2", "--model", model, "--overwrite",
        )  # fmt: skip
        assert done["n_rows"] == n_rows
    labels = str(tmp_path / "labels.npy")
    record("predict", model, rows, "--output", labels)
    assert (np.load(labels) >= 0).all()
