"""The image: its recipe is clean; built for real, all roles run in it as its user on a read-only root.

Building takes minutes and some GB, root, buildah and debootstrap: it is behind the marker `slow`. With
``DASKCLUSTER_IMAGE_STORE=FOLDER`` an image that was built there by deploy/docker/build-offline.sh is used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from daskcluster import jobs
from daskcluster.data.convert import convert
from daskcluster.models.fitted import load_document
from tests.data.conftest import KEY_ID, SECRET, s3  # noqa: F401  (a fixture)
from tests.deploy.chart import ROOT
from tests.deploy.programs import Processes, is_healthy
from tests.deploy.standins import interpolated
from tests.jobs.conftest import soon
from tests.servers.processes import free_port

DOCKER = ROOT / "deploy" / "docker"
SCRIPTS = sorted(DOCKER.glob("*.sh"))


MOST_MEGABYTES = 700
"""The root file system with the extra s3 had 674 when this was written; see deploy/README.md."""


def program(name: str) -> str | None:
    nearby = Path(sys.executable).with_name(name)
    return str(nearby) if nearby.exists() else shutil.which(name)


def test_the_recipe_is_clean() -> None:
    hadolint = program("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(
        [hadolint, str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_scripts_are_clean(script: Path) -> None:
    shellcheck = program("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([shellcheck, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert os.access(script, os.X_OK)


def dockerfile_line(word: str) -> str:
    """Return the one line of the recipe that has a word."""
    (found,) = (line for line in (DOCKER / "Dockerfile").read_text().splitlines() if word in line)
    return found


def test_volumes_of_compose_are_writable_by_any_user() -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    # A new volume has the mode of the image's folder: that of /tmp, in which all may write.
    made = dockerfile_line("install -d").split()
    assert made[made.index("-m") + 1] == "1777"
    for service in compose["services"].values():
        named = [each for each in service["volumes"] if isinstance(each, str)]
        assert {each.partition(":")[0] for each in named} == set(compose["volumes"])
        assert {each.partition(":")[2] for each in named} <= set(made)
        (data,) = (each for each in service["volumes"] if isinstance(each, dict))
        assert data["target"] in made
        # Docker makes a missing folder that belongs to root.
        assert (data["type"], data["bind"]) == ("bind", {"create_host_path": False})
        user = interpolated(service["user"], {})
        assert user in dockerfile_line("USER ")
        assert interpolated(service["user"], {"RUN_AS": "1000:100"}) == "1000:100"


def test_wheels_for_another_python_are_refused(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -V ] || exit 1\necho Python 3.13.0\n')
    python.chmod(0o755)
    done = subprocess.run(
        [DOCKER / "wheelhouse.sh"], env={**os.environ, "PYTHON": str(python)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "expected Python 3.11, which the image has, found Python 3.13.0" in done.stderr


def test_compose_has_all_roles_with_few_rights() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    assert set(services) == {"scheduler", "worker", "cli"}
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        environment = service["environment"]
        assert not any("PASSWORD" in str(value) for value in environment.values())
        # From the shell, all that a bucket on a server other than Amazon's needs; no values stand here.
        passed = {name for name, value in environment.items() if value is None}
        assert passed >= {
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ENDPOINT_URL",
            "AWS_REGION",
        }
    assert services["scheduler"]["ports"] == ["127.0.0.1:8786:8786", "127.0.0.1:8787:8787"]


# -- built and run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder of a built image."""
    if os.geteuid() != 0:
        pytest.skip("building an image without a service needs root")
    for tool in ("buildah", "debootstrap"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    given = os.environ.get("DASKCLUSTER_IMAGE_STORE")
    folder = Path(given) if given else tmp_path_factory.mktemp("image")
    if not (folder / "root").exists():
        environment = {**os.environ, "PYTHON": sys.executable}
        subprocess.run([DOCKER / "build-offline.sh", folder], env=environment, check=True)
    yield folder
    if not given:
        shutil.rmtree(folder, ignore_errors=True)


class Image:
    """Runs roles of the image."""

    def __init__(self, store: Path, volumes: Path, environment: dict[str, str]) -> None:
        self.environment = {**os.environ, **environment, "PASS": " ".join(environment)}
        self._start = [str(DOCKER / "run-offline.sh"), str(store), str(volumes)]

    def command(self, *arguments: str) -> list[str]:
        return [*self._start, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True,
            timeout=280, check=False,
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_runs_as_its_user_on_a_read_only_root(store: Path, tmp_path: Path) -> None:
    config = json.loads((store / "config.json").read_text())["OCIv1"]["config"]
    assert config["User"] == "10001:10001"
    image = Image(store, tmp_path / "volumes", {})
    code = (
        "import os, pathlib\n"
        "print(os.getuid(), os.getgid())\n"
        "for place in ('/cache', '/scratch', '/data', '/tmp'):\n"
        "    pathlib.Path(place, 'x').write_text('x')\n"
        "try:\n"
        "    pathlib.Path('/opt/x').write_text('x')\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    done = image.run("python3", "-c", code)
    assert done.stdout.splitlines() == ["10001 10001", "Read-only file system"], done.stderr
    assert image.run("--version").stdout.startswith("daskcluster, version")
    # Nothing is left to install with.
    assert image.run("python3", "-m", "pip", "--version").returncode != 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_is_small(store: Path) -> None:
    done = subprocess.run(
        ["du", "-sm", str(store / "root")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout.split()[0]) <= MOST_MEGABYTES
    (libraries,) = (store / "root").glob("opt/daskcluster/lib/python*/site-packages")
    there = {each.name for each in libraries.iterdir()}
    assert {"daskcluster", "s3fs", "prometheus_client"} <= there
    assert not {"bokeh", "matplotlib", "pandas", "pip", "pyarrow", "pytest"} & there
    tests = {each for each in libraries.rglob("tests") if each.is_dir()}
    assert tests <= {libraries / "numpy" / "_core" / "tests"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_roles_work_in_it(
    store: Path,
    tmp_path: Path,
    s3: dict[str, Any],  # noqa: F811
) -> None:
    rows = np.random.default_rng(3).random((30_000, 8), np.float32)
    convert(rows, "s3://rows/image.zarr", chunk_rows=4_000, storage_options=s3)
    comm, page, worker_page = free_port(), free_port(), free_port()
    address = f"tcp://127.0.0.1:{comm}"
    image = Image(
        store,
        tmp_path / "volumes",
        {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": s3["client_kwargs"]["endpoint_url"],
            "DASK_SCHEDULER_ADDRESS": address,
        },
    )
    processes = Processes(tmp_path / "log")
    own = ("--nthreads", "1", "--memory-limit", "2GiB", "--dashboard-address")
    try:
        for arguments in (
            ("scheduler", "--port", str(comm), "--dashboard-address", f":{page}"),
            ("worker", *own, f":{worker_page}"),
            ("worker", *own, ":0"),
        ):
            processes.start(image.command(*arguments), image.environment, tmp_path)
        soon(lambda: is_healthy(page) and is_healthy(worker_page), 280)
        # The kernels that were compiled before the worker started lie on the volume.
        assert any((tmp_path / "volumes" / "cache" / "numba").rglob("*.nbi"))
        fit = (
            "fit",
            "s3://rows/image.zarr",
            "--n-clusters",
            "12",
            "--random-state",
            "1",
            "--model",
        )
        inside = image.run(*fit, "s3://rows/image-model", "--scheduler", address, "--json")
        assert inside.returncode == 0, inside.stderr + (tmp_path / "log").read_text()
    finally:
        processes.close()
    jobs.fit(
        rows,
        n_clusters=12,
        random_state=1,
        model="memory://image",
        init="k-means||",
        engine="local",
    )
    found, expected = load_document("s3://rows/image-model", s3), load_document("memory://image")
    assert found.centres.tobytes() == expected.centres.tobytes()
