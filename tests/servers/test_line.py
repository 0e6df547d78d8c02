"""A real client of S3 on a line that fails: what its own retries and ours make of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.data.convert import convert
from daskcluster.errors import DatasetNotFoundError
from daskcluster.storage import retry as patience
from tests.servers.conftest import forget_file_systems, moto
from tests.servers.proxy import Line, proxied

ROWS = np.random.default_rng(0).lognormal(size=(6000, 6)).astype(np.float32)
SETTINGS = {"random_state": 0, "max_iter": 4, "tol": 0.0}


def is_chunk(method: str, path: str) -> bool:
    return method == "GET" and "/c/" in path


def is_written(method: str, path: str) -> bool:
    return method == "PUT"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """Yield a line to an S3 emulator that holds rows."""
    before = dict(os.environ)
    with moto(tmp_path_factory.mktemp("line")) as server:
        os.environ.update(server.environment)
        forget_file_systems()
        convert(ROWS, "s3://servers/rows.zarr", chunk_rows=1000, storage_options=server.options)
        place = urlsplit(server.options["client_kwargs"]["endpoint_url"])
        with proxied(place.hostname or "", place.port or 0) as line:
            yield line
    os.environ.clear()
    os.environ.update(before)
    forget_file_systems()


@pytest.fixture
def options(line: Line, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(patience, "PAUSES", (0.01, 0.02, 0.03, 0.04))
    return {
        "client_kwargs": {"endpoint_url": line.url, "region_name": "us-east-1"},
        # The client gives up soon, so that what it leaves to us is seen.
        "config_kwargs": {"read_timeout": 1, "retries": {"max_attempts": 1}},
    }


@pytest.mark.parametrize("name", ["503", "reset", "cut body", "stall"])
def test_reads_are_waited_for(line: Line, options: dict[str, Any], name: str) -> None:
    dataset = dc.open_dataset("s3://servers/rows.zarr", storage_options=options)
    with line.failing(name, 2 if name == "stall" else 6, is_chunk):
        found = dc.KMeans(5, **SETTINGS).fit(dataset)
    assert line.met[name] >= 2
    assert found.n_iter_ == 4
    again = dc.KMeans(5, **SETTINGS).fit(dataset)
    assert found.cluster_centers_.tobytes() == again.cluster_centers_.tobytes()


@pytest.mark.parametrize("name", ["500", "reset"])
def test_writes_are_waited_for(line: Line, options: dict[str, Any], name: str) -> None:
    url = f"s3://servers/written-{name}.zarr"
    with line.failing(name, 5, is_written):
        convert(ROWS, url, chunk_rows=2000, storage_options=options)
    assert line.met[name] == 5
    assert np.array_equal(dc.open_dataset(url, storage_options=options).to_numpy(), ROWS)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("denied", r"No permission to reach the dataset at 's3://servers/rows.zarr' .*Credentials"),
        ("expired", r"No permission to reach the dataset at 's3://servers/rows.zarr' .*expired"),
    ],
)
def test_refused_permissions_are_reported_at_once(
    line: Line, options: dict[str, Any], name: str, message: str
) -> None:
    dataset = dc.open_dataset("s3://servers/rows.zarr", storage_options=options)
    with line.failing(name, on=is_chunk), pytest.raises(DatasetNotFoundError, match=message):
        dc.KMeans(5, **SETTINGS, engine=dc.LocalEngine(1)).fit(dataset)
    # As many as are read at a time, and none of them twice.
    assert line.met[name] <= 6


def test_a_store_that_stays_down_ends_the_fit(line: Line, options: dict[str, Any]) -> None:
    dataset = dc.open_dataset("s3://servers/rows.zarr", storage_options=options)
    message = (
        r"The dataset at 's3://servers/rows.zarr' cannot be reached .*reduce your request rate"
    )
    with line.failing("503", on=is_chunk), pytest.raises(DatasetNotFoundError, match=message):
        dc.KMeans(5, **SETTINGS, engine=dc.LocalEngine(1)).fit(dataset)


def test_an_output_on_a_line_that_stays_down_is_absent(
    line: Line, options: dict[str, Any], tmp_path: Path
) -> None:
    url = "s3://servers/absent.zarr"
    fitted = dc.KMeans(5, **SETTINGS).fit(ROWS)
    with (
        line.failing("denied", on=lambda m, p: m == "PUT" and p.endswith("zarr.json")),
        pytest.raises(DatasetNotFoundError, match="No permission to reach the output"),
    ):
        fitted.predict(ROWS, output=url, storage_options=options)
    with pytest.raises(DatasetNotFoundError):
        dc.open_dataset(url, storage_options=options)
    fitted.predict(ROWS, output=url, storage_options=options)
