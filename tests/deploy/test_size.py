"""Sizes of workers from a dry run: they hold what the engine will admit."""

from __future__ import annotations

import doctest
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zarr
from click.testing import CliRunner

from daskcluster.cli.main import main as command
from tests.deploy.chart import ROOT, load_script

size = load_script("size.py")


def project(rows: str, *flags: str) -> dict[str, Any]:
    """Return what a dry run says of fifty clusters on four workers."""
    arguments = ("fit", rows, "--n-clusters", "50", "--workers", "4", *flags, "--dry-run", "--json")
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_example_of_the_page_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    rows = str(tmp_path / "rows.zarr")
    shape, chunks = (20_000_000, 100), (20_000, 100)
    array = zarr.create_array(rows, shape=shape, chunks=chunks, dtype=np.float32)
    array[:1] = 1  # an array without any chunk is refused
    found = project(rows, "--threads", "4", "--memory-limit", "100GiB")
    least, resident, bounds = (f"{each / 1024**3:g} GiB" for each in size.sizes(found).values())
    text = " ".join((ROOT / "deploy" / "README.md").read_text().split())
    assert f"`least` is {least} for each worker, `resident` {resident}, `bounds` {bounds}." in text
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(found)))
    assert size.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == f"least 4 workers of 4 threads and {least}".split()
    assert lines[-1] == f"at most {found['passes_at_most']} passes and 8 GB from storage"


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    rows = str(tmp_path_factory.mktemp("size") / "rows.zarr")
    shape, chunks = (40_000_000, 16), (500_000, 16)
    array = zarr.create_array(rows, shape=shape, chunks=chunks, dtype=np.float32)
    array[:500_000] = 1  # an array without any chunk is refused

    return partial(project, rows, "--threads", "2")


@pytest.mark.slow
def test_the_engine_admits_the_computed_sizes(dry: Callable[..., dict[str, Any]]) -> None:
    found = dry("--memory-limit", "100GiB")
    for name, each in size.sizes(found).items():
        again = dry("--memory-limit", str(4 * each))
        memory = again["memory"]
        fixed = memory["baseline"] + memory["working"] + memory["state"]
        assert fixed <= 0.75 * memory["limit"]
        all_resident = memory["resident"] == again["bytes_decoded"]
        assert all_resident == (name != "least")
        if name == "bounds":
            room = memory["state_room"] if "state_room" in memory else again["bounds"]["room"]
            assert room >= max(again["bounds"]["needed"].values())
    assert size.sizes(found)["resident"] * 4 > 2 * found["bytes_decoded"]


@pytest.mark.slow
def test_values_for_the_chart(
    dry: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    found = dry("--memory-limit", "100GiB")
    for flags in ([], ["--size", "resident"], ["--size", "huge"]):
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(found)))
        assert size.main(flags) == (1 if "huge" in flags else 0)
    out = capsys.readouterr().out
    made = yaml.safe_load(out[out.index("worker:") :])
    assert made["worker"]["replicas"] == 4
    assert made["worker"]["resources"]["limits"]["cpu"] == "2"
    assert made["worker"]["resources"]["limits"]["memory"].endswith("Mi")


def test_projections_without_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot say beforehand"):
        size.sizes({"planned": False})
    with pytest.raises(ValueError, match="--workers"):
        size.sizes({"planned": True, "processes": -1})


def test_examples() -> None:
    for name in ("size.py", "docker/health.py"):
        assert doctest.testmod(load_script(name)).failed == 0
    assert Path(size.__file__).name == "size.py"
