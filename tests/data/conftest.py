"""Rows in every container, and an S3 server on loopback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.servers.processes import free_port, running, wait_for_port

SECRET = "planted-secret-value"
KEY_ID = "planted-key-id"


@pytest.fixture(scope="session")
def rows() -> np.ndarray:
    return np.random.default_rng(0).lognormal(size=(5003, 7)).astype(np.float32)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Yield the storage options of an S3 emulator with an empty bucket named ``rows``."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        pytest.skip("moto_server is not installed")
    port, before = free_port(), dict(os.environ)
    log = tmp_path_factory.mktemp("moto") / "moto.out"
    try:
        with running([str(program), "-H", "127.0.0.1", "-p", str(port)], log) as process:
            wait_for_port(port, process, log, 60)
            # The machine's own credentials must play no part.
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                del os.environ[name]
            os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
            client = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}
            options = {"key": KEY_ID, "secret": SECRET, "client_kwargs": client}
            import s3fs

            s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="rows")
            yield options
    finally:
        os.environ.clear()
        os.environ.update(before)
