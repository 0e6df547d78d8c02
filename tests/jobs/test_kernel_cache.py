"""Kernels that are compiled for another CPU's name and shipped: a fit that takes them compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from daskcluster.cli.warm_up import runnable, settings, ship, take_shipped
from daskcluster.kernels.jit import sources_digest

FIT = """
import numpy as np
import daskcluster as dc
from daskcluster.kernels.jit import compilations
rows = np.random.default_rng(0).random((20_000, 16), dtype=np.float32)
dc.KMeans(50, random_state=0).fit(rows)
print(*compilations())
"""


@pytest.mark.slow
def test_a_fit_with_shipped_kernels_compiles_nothing(tmp_path: Path) -> None:
    cpus = runnable()
    if not cpus:
        pytest.skip("this machine is none of the CPUs that kernels are shipped for")
    ship(cpus[-1], tmp_path / "shipped")
    cache = tmp_path / "cache"
    assert take_shipped(tmp_path / "shipped", cache, sources_digest()) == cpus[-1]
    environment = {**os.environ, **settings(cpus[-1]), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, check=True
    )
    loaded, compiled = map(int, done.stdout.split())
    assert loaded > 10
    assert compiled == 0
