"""Figures of a processor without AVX-512, made on one that has it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from tests.benchmarks.harness import mask

PROGRAM = """
from daskcluster.kernels.jit import cpu_features, tile_name
from tests.benchmarks.harness.mask import is_masked
wide = [name for name in cpu_features() if name.startswith(("avx512", "avx10", "amx", "avxvnni"))]
print(tile_name(), is_masked(), wide)
"""


def test_a_masked_process_has_no_avx512() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the mask is one of x86 processors")
    environment = mask.without_avx512(os.environ)
    environment.pop("DASKCLUSTER_TILE", None)
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() in (["avx2", "True", "[]"], ["portable", "True", "[]"])
