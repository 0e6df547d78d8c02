"""The commands of deploy/README.md are run as they stand there, in one session; links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import click
import pytest
import yaml
import zarr

import daskcluster
from daskcluster.cli.main import main
from daskcluster.methods.streaming.service import HealthCheck, StreamMetrics
from daskcluster.methods.streaming.sources import Oddity
from daskcluster.models.fitted import load_document
from tests.data.conftest import KEY_ID, SECRET, s3  # noqa: F401  (a fixture)
from tests.deploy import standins
from tests.deploy.chart import CHART, FIT, pods, render
from tests.deploy.programs import programs
from tests.servers.processes import free_port
from tests.test_docs import LINK, Block, blocks_of, commands_of, run_console

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "deploy" / "README.md"
PAGES = sorted((ROOT / "deploy").rglob("README.md"))
EVERYWHERE = (
    "model",
    "again",
    "there",
    "demo/contained",
    "s3://bucket/by-hand",
    "s3://bucket/encrypted",
)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of the session; whatever it started is stopped."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "deploy").symlink_to(ROOT / "deploy")
    monkeypatch.chdir(work)
    try:
        yield work
    finally:
        standins.stop_all(tmp_path / "standins")
        for file in work.glob("*.pid"):
            with suppress(ProcessLookupError):  # as it should be
                os.kill(int(file.read_text()), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(2400)  # 29 commands, most of which import and compile
def test_from_a_laptop_to_a_cloud(
    work: Path,
    tmp_path: Path,
    s3: dict[str, Any],  # noqa: F811
) -> None:
    pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    import s3fs

    s3fs.S3FileSystem(**s3).call_s3("create_bucket", Bucket="bucket")
    port = free_port()
    shell = {
        **programs(tmp_path / "bin"),
        **standins.install(tmp_path / "bin", tmp_path / "standins", port),
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": s3["client_kwargs"]["endpoint_url"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "REGISTRY": "registry.example.com/team",
    }
    for block in blocks_of(PAGE):
        text = block.text.replace("8786", str(port))
        run_console(Block(block.language, text, block.line), PAGE, shell)

    found = [load_document(url, s3 if "://" in url else None) for url in EVERYWHERE]
    assert len({model.centres.tobytes() for model in found}) == 1
    for url in ("s3://bucket/labels.zarr", "s3://bucket/labels-of-all.zarr"):
        assert zarr.open_array(url, mode="r", storage_options=s3).shape == (20_000,)
    # What was made of the dry run sizes the workers.
    sized = render(yaml.safe_load((work / "size.yaml").read_text()))
    named = (each for each in sized if each["metadata"]["name"].endswith("-worker"))
    (worker,) = (each for each in named if each["kind"] == "Deployment")
    assert worker["spec"]["replicas"] == 2
    for log in (tmp_path / "standins").glob("*.log"):
        assert SECRET not in log.read_text()
    assert not list((tmp_path / "standins").glob("*.pid"))


def test_one_tag_is_built_started_and_pulled() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    compose = yaml.safe_load((ROOT / "deploy" / "docker" / "compose.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {daskcluster.__version__}
    image = f"daskcluster:{daskcluster.__version__}"
    assert f"--tag {image} ." in PAGE.read_text()
    for page in PAGES:
        assert set(re.findall(r"daskcluster:[\w.]+", page.read_text())) <= {image}
    for service in compose["services"].values():
        assert standins.interpolated(service["image"], {}) == image
    pulled = {
        container["image"]
        for mode in ("deployment", "operator")
        for pod in pods(render({"mode": mode, "job": {"enabled": True, "args": FIT}}))
        for container in pod["containers"]
    }
    assert pulled == {image}


def test_the_metrics_of_a_stream_are_those_of_the_page() -> None:
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    metrics = StreamMetrics(HealthCheck(60))
    try:
        with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=20) as found:
            exported = set(re.findall(r"^# TYPE (\w+)", found.read().decode(), re.MULTILINE))
    finally:
        metrics.close()
    listed = re.findall(r"^\| `(daskcluster_\w+)` \|", PAGE.read_text(), re.MULTILINE)
    # The client library adds to each counter when it was created.
    assert {name for name in exported if not name.endswith("_created")} == set(listed)
    stream = (ROOT / "docs" / "how-to" / "streams.md").read_text()
    rows = re.findall(r"^\| (`.*`) \|", stream.partition("| condition |")[2], re.MULTILINE)
    conditions = {name for row in rows[:5] for name in re.findall(r"`(\w+)`", row)}
    assert conditions == {str(oddity) for oddity in Oddity}


def test_commands_are_understood() -> None:
    lines = [re.split(r" [|>&]", line)[0] for line in commands_of(PAGE)]
    assert len(lines) > 10
    for line in lines:
        _, name, *given = shlex.split(line)
        command = main.get_command(click.Context(main), name)
        assert command is not None, line
        with command.make_context(name, given):
            pass


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
