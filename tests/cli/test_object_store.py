"""From bucket to bucket: rows, model and labels in S3, credentials from the environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import Result

from daskcluster.models.fitted import load_document
from tests.data.conftest import KEY_ID, SECRET, s3  # noqa: F401  (a fixture)


def test_from_bucket_to_bucket(
    here: Path,
    s3: dict[str, Any],  # noqa: F811
    rows: np.ndarray,
    run: Callable[..., Result],
    record: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = s3["client_kwargs"]["endpoint_url"]
    options = ("--storage-option", f"client_kwargs.endpoint_url={endpoint}")
    absent = run("info", "s3://rows/cli/rows.zarr", *options)
    assert absent.exit_code == 1
    assert absent.stderr.startswith("Error: ")

    # File systems are cached in a process, with the credentials they found (none, so far).
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    source, model, labels = (f"s3://rows/cli/{name}.zarr" for name in ("rows", "model", "labels"))
    record("convert", "rows.npy", source, "--chunk-rows", "500", *options)
    fit = ("fit", source, "--n-clusters", "6", "--model", model, "--labels", labels, *options)
    fitted = record(*fit)
    assert fitted["bytes_read"] >= rows.nbytes
    assert record("score", model, source, *options)["inertia"] == fitted["inertia"]
    assert record("info", model, *options)["n_clusters"] == 6

    found = load_document(model, s3)
    written = zarr.open_array(labels, mode="r", storage_options=s3)
    np.testing.assert_array_equal(np.bincount(written[:], minlength=6), found.sizes)
    assert run(*fit).exit_code == 1
    assert record(*fit, "--overwrite")["inertia"] == fitted["inertia"]
    wrong = run("fit", source, "--n-clusters", "6", "--model", source, "--overwrite", *options)
    assert "would replace the source" in wrong.stderr
