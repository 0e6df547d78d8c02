"""``daskcluster warm-up``: which folders it fills, and what it tells the shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from daskcluster.cli import warm_up as targets
from daskcluster.kernels.jit import sources_digest

Run = Callable[..., Result]


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Return what is shipped, in place of minutes of compiling."""
    found: list[tuple[str, Path]] = []
    monkeypatch.setattr(targets, "runnable", lambda: ["x86-64-v4", "x86-64-v3"])
    monkeypatch.setattr(
        "daskcluster.cli.warm_up.ship", lambda cpu, folder: found.append((cpu, folder))
    )
    return found


def test_a_folder_is_filled_for_each_cpu(
    shipped: list[tuple[str, Path]], record: Callable[..., dict[str, Any]]
) -> None:
    assert record("warm-up", "--output", "k")["cpus"] == ["x86-64-v4", "x86-64-v3"]
    assert shipped == [("x86-64-v4", Path("k")), ("x86-64-v3", Path("k"))]


def test_a_machine_without_any_of_the_cpus_is_reported(
    run: Run, shipped: list[tuple[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "runnable", list)
    result = run("warm-up", "--output", "k")
    assert result.exit_code == 2
    assert "this machine can run code for none of them" in " ".join(result.stderr.split())
    assert shipped == []


def test_without_a_folder_this_machine_is_warmed_up(
    record: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskcluster.cli.warm_up.fill", lambda: 7)
    assert record("warm-up") == {"compiled": 7}


def test_options_that_do_not_go_together_are_refused(run: Run) -> None:
    result = run("warm-up", "--take", "a", "--output", "b")
    assert result.exit_code == 2
    assert "give one of them" in result.stderr


def test_take_prints_the_variables_that_numba_needs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "runnable", lambda: ["x86-64-v3"])
    (tmp_path / "x86-64-v3").mkdir()
    (tmp_path / "x86-64-v3" / targets.DIGEST_FILE).write_text(str(sources_digest()))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    name, features = run("warm-up", "--take", str(tmp_path)).stdout.splitlines()
    assert name == "export NUMBA_CPU_NAME=x86-64-v3"
    assert features.startswith("export NUMBA_CPU_FEATURES=+avx,+avx2,")
    assert run("warm-up", "--take", str(tmp_path / "none")).stdout == ""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert "set it to a folder" in run("warm-up", "--take", str(tmp_path)).stderr
