"""After the warm-up a fit meets no kernel for the first time, but those of its tile."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np
from scipy import sparse
from daskcluster.engine.local import LocalEngine
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.kernels import tile
from daskcluster.kernels.jit import compilations
from daskcluster.kernels.warm_up import warm_up

dtype, kind = np.dtype(sys.argv[1]), sys.argv[2]
rows = np.random.default_rng(0).standard_normal((500, 6)).astype(dtype)
if kind == "sparse":
    rows = sparse.csr_array(rows * (rows > 0))
warm_up(dtype, is_sparse=kind == "sparse")
if kind == "dense":
    labels, counts = np.zeros(500, np.int32), np.zeros(8, np.int64)
    tile.nearest(rows, tile.pack(rows[:8]), labels)
    tile.nearest_and_sum(rows, tile.pack(rows[:8]), labels, np.zeros(6), np.zeros((8, 6)), counts)
before = sum(compilations())
KMeans(8, algorithm="lloyd", random_state=0, n_init=1, max_iter=5, engine=LocalEngine(1)).fit(rows)
print(before, sum(compilations()))
"""


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("dtype", "kind"), [("float32", "dense"), ("float64", "dense"), ("float32", "sparse")]
)
def test_a_fit_after_the_warm_up_loads_no_kernel_but_those_of_its_tile(
    dtype: str, kind: str
) -> None:
    command = [sys.executable, "-c", SCRIPT, dtype, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 0
    assert after == before
