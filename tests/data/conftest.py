"""Rows in every container, and an S3 server on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECRET = "planted-secret-value"
KEY_ID = "planted-key-id"


@pytest.fixture(scope="session")
def rows() -> np.ndarray:
    return np.random.default_rng(0).lognormal(size=(5003, 7)).astype(np.float32)


def _moto() -> str | None:
    program = Path(sys.executable).with_name("moto_server")
    return str(program) if program.exists() else None


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, Any]]:
    """Yield the storage options of an S3 emulator with an empty bucket named ``rows``."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    program = _moto()
    if program is None:
        pytest.skip("moto_server is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], **quiet)
    before = dict(os.environ)
    try:
        _wait_for(url)
        # The machine's own credentials must play no part.
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
        options = {
            "key": KEY_ID,
            "secret": SECRET,
            "client_kwargs": {"endpoint_url": url, "region_name": "us-east-1"},
        }
        import s3fs

        s3fs.S3FileSystem(**options).call_s3("create_bucket", Bucket="rows")
        yield options
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.terminate()
        server.wait()


def _wait_for(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/moto-api/", timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the S3 emulator did not start")
