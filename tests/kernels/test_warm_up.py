"""After the warm-up a fit meets no kernel for the first time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from daskcluster.kernels import warm_up
from daskcluster.kernels.compiling import announce

SCRIPT = """
import sys
import numpy as np
from scipy import sparse
from daskcluster.engine.local import LocalEngine
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.kernels.jit import compilations
from daskcluster.kernels.warm_up import warm_up

dtype, kind = np.dtype(sys.argv[1]), sys.argv[2]
rows = np.random.default_rng(0).standard_normal((500, 6)).astype(dtype)
if kind == "sparse":
    rows = sparse.csr_array(rows * (rows > 0))
warm_up(8, dtype, is_sparse=kind == "sparse")
before = sum(compilations())
KMeans(8, algorithm="lloyd", random_state=0, n_init=1, max_iter=5, engine=LocalEngine(1)).fit(rows)
print(before, sum(compilations()))
"""


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("dtype", "kind"), [("float32", "dense"), ("float64", "dense"), ("float32", "sparse")]
)
def test_a_fit_after_the_warm_up_loads_no_kernel(dtype: str, kind: str) -> None:
    command = [sys.executable, "-c", SCRIPT, dtype, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 0
    assert after == before


def test_the_first_kernel_to_be_compiled_starts_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(warm_up, "_announced", [])
    monkeypatch.setattr(warm_up, "usable_cores", lambda: 2)
    monkeypatch.setattr(warm_up.subprocess, "Popen", start)
    for _ in range(2):
        with warm_up.compiled_by_two(8, "float32", is_sparse=False, tell=said.append):
            announce(1)
            announce(2)
            assert len(started) == 1
    assert said == ["Compiling kernels for this machine, which later fits reuse"]
    assert started[0].wait() != 0  # it was ended with the fit
    assert subprocess.run(started[0].args, check=False).returncode == 0
