"""Kernels that are shipped: which of them suit a machine, and that only these are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from daskcluster.cli import warm_up as targets
from daskcluster.cli.warm_up import CPUS, runnable, take_shipped


def pretend(monkeypatch: pytest.MonkeyPatch, features: frozenset[str]) -> None:
    there = dict.fromkeys(features, True) | {"sse4a": False}
    monkeypatch.setattr(targets.binding, "get_host_cpu_features", lambda: there)


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    for cpu in CPUS:
        folder = tmp_path / "shipped" / cpu
        (folder / "kernels_1").mkdir(parents=True)
        (folder / "kernels_1" / "a.nbc").write_text(cpu)
        (folder / targets.DIGEST_FILE).write_text("5")
    return tmp_path / "shipped"


@pytest.mark.parametrize(
    ("bits", "found"),
    [
        (0xECFFFFFB, ["neoverse-n1"]),  # as qemu says of its fullest processor
        (0x119FFF & ~(1 << 20), []),
        (0xFF, []),  # a Cortex-A72
    ],
)
def test_arm_processors_are_recognized_by_their_capabilities(
    bits: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, frozenset())
    monkeypatch.setattr(targets, "host_capabilities", lambda: bits)
    monkeypatch.setattr(targets.platform, "machine", lambda: "aarch64")
    assert runnable() == found


@pytest.mark.parametrize(
    ("features", "found"),
    [
        (CPUS["x86-64-v4"] | {"amx"}, ["x86-64-v4", "x86-64-v3"]),
        (CPUS["x86-64-v4"] - {"avx512vl"}, ["x86-64-v3"]),
        (CPUS["x86-64-v3"] - {"fma"}, []),
        (CPUS["neoverse-n1"] | {"sve"}, ["neoverse-n1"]),
    ],
)
def test_a_machine_takes_the_best_that_it_runs(
    features: frozenset[str],
    found: list[str],
    shipped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, features)
    assert runnable() == found
    cache = tmp_path / "cache"
    assert take_shipped(shipped, cache, 5) == (found[0] if found else None)
    if found:
        assert (cache / "kernels_1" / "a.nbc").read_text() == found[0]


def test_other_kernels_than_those_installed_are_left(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, CPUS["x86-64-v4"])
    assert take_shipped(shipped, tmp_path / "cache", 6) is None
    assert take_shipped(tmp_path / "none", tmp_path / "cache", 5) is None
    assert not (tmp_path / "cache").exists()
    (shipped / "x86-64-v4" / targets.DIGEST_FILE).write_text("6")
    assert take_shipped(shipped, tmp_path / "cache", 5) == "x86-64-v3"


def test_kernels_of_the_cache_are_not_replaced(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, CPUS["x86-64-v3"])
    own = tmp_path / "cache" / "kernels_1" / "a.nbc"
    own.parent.mkdir(parents=True)
    own.write_text("own")
    assert take_shipped(shipped, tmp_path / "cache", 5) == "x86-64-v3"
    assert own.read_text() == "own"
