"""Figures of a processor without AVX-512, made on one that has it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tests.benchmarks.__main__ import main
from tests.benchmarks.harness import mask

PROGRAM = """
from daskcluster.kernels.jit import cpu_features, tile_name
from tests.benchmarks.harness.mask import is_masked
wide = [name for name in cpu_features() if name.startswith(("avx512", "avx10", "amx"))]
print(tile_name(), is_masked(), wide)
"""


def test_nobody_is_reported_of_avx512_in_a_masked_process() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the mask is one of x86 processors")
    environment = mask.without_avx512(os.environ)
    environment.pop("DASKCLUSTER_TILE", None)
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() in (["avx2", "True", "[]"], ["portable", "True", "[]"])


def test_the_command_begins_anew_with_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def begin(path: str, words: list[str], environment: dict[str, str]) -> None:
        started.append((words, environment))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", begin)
    monkeypatch.setattr(sys, "argv", ["tests.benchmarks", "compare", "--without-avx512"])
    monkeypatch.delenv(mask.MARK, raising=False)
    CliRunner().invoke(main, ["compare", "--without-avx512", "--only", "assign"])
    [(words, environment)] = started
    assert words[1:] == ["-m", "tests.benchmarks", "compare", "--without-avx512"]
    assert environment[mask.MARK] == mask.AVX2
