"""A scheduler and a worker that speak TLS alone, each a process of its own, and who is let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from daskcluster import jobs
from daskcluster.engine import choose
from daskcluster.engine.connect import connect
from daskcluster.engine.dask import DaskEngine
from daskcluster.engine.tls import client_security
from daskcluster.errors import InvalidParameterError, SchedulerUnreachableError
from daskcluster.models.fitted import load_document
from tests.cli.conftest import record, rows, run  # noqa: F401  (fixtures)
from tests.jobs.conftest import Cluster

pytest.importorskip("cryptography", reason="cryptography is not installed")
from tests.security.certificates import Files, make_files, private_bytes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tls"), "our authority")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("strangers"), "another authority")


@pytest.fixture(scope="module")
def scheduler(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a scheduler with one worker."""
    tls = ("--protocol", "tls", *files.of_dask())
    with closing(Cluster(tmp_path_factory.mktemp("cluster"), {}, tls)) as cluster:
        cluster.add_worker()
        yield cluster.address


@pytest.fixture
def stored(tmp_path: Path, rows: np.ndarray, record: Callable[..., Any]) -> str:  # noqa: F811
    np.save(tmp_path / "rows.npy", rows)
    record(
        "convert", str(tmp_path / "rows.npy"), str(tmp_path / "rows.zarr"), "--chunk-rows", "500"
    )
    return str(tmp_path / "rows.zarr")


def test_the_command_line_uses_a_scheduler_over_tls(
    scheduler: str,
    files: Files,
    stored: str,
    tmp_path: Path,
    record: Callable[..., dict[str, Any]],  # noqa: F811
) -> None:
    assert scheduler.startswith("tls://")
    fit = ("fit", stored, "--n-clusters", "4", "--random-state", "0")
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    record(*fit, "--model", here)
    without_scheme = scheduler.removeprefix("tls://")
    record(*fit, "--model", there, "--scheduler", without_scheme, *files.flags())
    assert load_document(there).centres.tobytes() == load_document(here).centres.tobytes()
    scored = record("score", there, stored, "--scheduler", scheduler, *files.flags())
    assert scored["inertia"] == load_document(here).inertia


def test_a_job_takes_certificates_from_an_engine_and_from_dasks_configuration(
    scheduler: str, files: Files, stored: str, tmp_path: Path
) -> None:
    given = {"n_clusters": 3, "random_state": 1, "algorithm": "lloyd"}
    security = client_security(files.ca, files.cert, files.key)
    with DaskEngine(scheduler, security=security, timeout=30) as engine:
        one = jobs.fit(stored, model=str(tmp_path / "one"), engine=engine, **given)
    client = "distributed.comm.tls.client"
    tls = {f"{client}.cert": files.cert, f"{client}.key": files.key}
    with dask.config.set({**tls, "distributed.comm.tls.ca-file": files.ca}):
        other = jobs.fit(stored, model=str(tmp_path / "other"), engine=scheduler, **given)
        choose._connected.pop(scheduler).close()
    assert one.inertia == other.inertia == jobs.score(str(tmp_path / "one"), stored).inertia


def test_a_job_runs_inside_the_cluster(
    scheduler: str, files: Files, stored: str, tmp_path: Path
) -> None:
    security = client_security(files.ca, files.cert, files.key)
    with connect(scheduler, 30, security=security) as client:
        task = client.submit(jobs.fit, stored, n_clusters=3, model=str(tmp_path / "m"), pure=False)
        assert task.result(120).inertia == load_document(str(tmp_path / "m")).inertia


# -- who is not let in -----------------------------------------------------------------------------


def test_a_stranger_is_turned_away(scheduler: str, files: Files, strangers: Files) -> None:
    both_strange = client_security(strangers.ca, strangers.cert, strangers.key)
    not_known_there = client_security(files.ca, strangers.cert, strangers.key)
    not_trusted_here = client_security(strangers.ca, files.cert, files.key)
    for security in (both_strange, not_known_there, not_trusted_here):
        with pytest.raises(SchedulerUnreachableError, match="each side trusts the authority"):
            connect(scheduler, 5, security=security)


def test_plain_text_is_not_answered(scheduler: str) -> None:
    with pytest.raises(SchedulerUnreachableError):
        connect(scheduler.replace("tls://", "tcp://"), 3)


def test_certificates_for_a_plain_address_are_refused(files: Files) -> None:
    security = client_security(files.ca, files.cert, files.key)
    with pytest.raises(InvalidParameterError, match=r"is not encrypted, .* 'tls://127.0.0.1:1'"):
        connect("tcp://127.0.0.1:1", 5, security=security)


def test_an_encrypted_address_needs_certificates() -> None:
    with pytest.raises(InvalidParameterError, match="needs certificates: give --tls-ca"):
        connect("tls://127.0.0.1:1", 5)


# -- files -----------------------------------------------------------------------------------------


def test_files_that_are_not_there(files: Files, run: Callable[..., Any]) -> None:  # noqa: F811
    flags = (*files.flags()[:2], "--tls-cert", "absent.pem")
    found = run("score", "m", "rows.npy", "--scheduler", "tls://127.0.0.1:1", *flags)
    assert found.exit_code == 1
    assert "the file 'absent.pem' cannot be read (No such file" in found.stderr


def test_files_that_do_not_go_together(files: Files, strangers: Files, tmp_path: Path) -> None:
    (tmp_path / "nonsense.pem").write_text("nonsense")
    wrong = (
        (files.ca, files.cert, strangers.key),
        (files.ca, str(tmp_path / "nonsense.pem"), files.key),
        (str(tmp_path / "nonsense.pem"), files.cert, files.key),
        (files.ca, files.cert, None),
    )
    for each in wrong:
        with pytest.raises(InvalidParameterError, match="do not match"):
            client_security(*each)


def test_a_key_in_the_certificates_file(files: Files, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(Path(files.cert).read_text() + Path(files.key).read_text())
    assert client_security(files.ca, str(both)).require_encryption


def test_a_passphrase_is_not_waited_for(files: Files, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec

    locked = tmp_path / "locked.pem"
    locked.write_bytes(private_bytes(ec.generate_private_key(ec.SECP256R1()), b"hunter2"))
    with pytest.raises(InvalidParameterError, match="needs a passphrase"):
        client_security(files.ca, files.cert, str(locked))
