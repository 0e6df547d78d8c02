"""Object stores on loopback: an S3 emulator, a real S3 gateway, and the emulator of Azure."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers import ceph
from tests.servers.processes import ServerError, free_port, running, wait_for_port

_AZURE_ACCOUNT = "devstoreaccount1"
# The emulator's own, which its documentation gives to everybody.
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class Server:
    """An empty container of an object store.

    Attributes
    ----------
    url : str
        Of the container.
    options : mapping
        Storage options that are no secrets.
    environment : mapping
        Where the credentials are.
    """

    url: str
    options: Mapping[str, Any]
    environment: Mapping[str, str]

    def flags(self) -> list[str]:
        """Return what the command line needs to know of it."""
        endpoint = self.options.get("client_kwargs", {}).get("endpoint_url")
        if endpoint is None:
            return []
        return ["--storage-option", f"client_kwargs.endpoint_url={endpoint}"]


@contextmanager
def _s3(endpoint: str, key: str, secret: str) -> Iterator[Server]:
    import s3fs

    client = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    environment = {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    fs = s3fs.S3FileSystem(key=key, secret=secret, client_kwargs=client)
    fs.call_s3("create_bucket", Bucket="servers")
    yield Server("s3://servers", {"client_kwargs": client}, environment)


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        pytest.skip("moto_server is not installed")
    port, log = free_port(), folder / "moto.out"
    with running([str(program), "-H", "127.0.0.1", "-p", str(port)], log) as process:
        wait_for_port(port, process, log, 60)
        with _s3(f"http://127.0.0.1:{port}", "of-moto", "its-secret") as server:
            yield server


@contextmanager
def _ceph(folder: Path) -> Iterator[Server]:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    missing = ceph.missing()
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (ceph-mon ceph-osd radosgw ceph-common)")
    with (
        ceph.gateway(folder) as endpoint,
        _s3(endpoint, ceph.KEY, ceph.SECRET) as server,
    ):
        yield server


@contextmanager
def _azurite(folder: Path) -> Iterator[Server]:
    pytest.importorskip("adlfs", reason="adlfs is not installed")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed (npm package azurite)")
    port, log = free_port(), folder / "azurite.out"
    words = ["--skipApiVersionCheck", "--silent", "--location", str(folder / "azurite")]
    words += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with running([program, *words], log) as process:
        wait_for_port(port, process, log, 60)
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={_AZURE_ACCOUNT};AccountKey={_AZURE_KEY};"
            f"BlobEndpoint=http://127.0.0.1:{port}/{_AZURE_ACCOUNT};"
        )
        import adlfs

        adlfs.AzureBlobFileSystem(connection_string=connection).mkdir("servers")
        yield Server("abfs://servers", {}, {"AZURE_STORAGE_CONNECTION_STRING": connection})


_SERVERS = {"moto": moto, "ceph": _ceph, "azurite": _azurite}


@pytest.fixture(scope="package", params=list(_SERVERS))
def server(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield an object store, its credentials in the environment and nobody else's."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        del os.environ[name]
    try:
        with _SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as server:
            os.environ.update(server.environment)
            forget_file_systems()
            yield server
    except ServerError as error:
        pytest.fail(f"{request.param} did not start: {error}")
    finally:
        os.environ.clear()
        os.environ.update(before)
        forget_file_systems()


def forget_file_systems() -> None:
    # They are cached in a process, with the credentials that they found.
    import fsspec

    for name in ("s3", "abfs"):
        try:
            fsspec.get_filesystem_class(name).clear_instance_cache()
        except ImportError:
            continue
