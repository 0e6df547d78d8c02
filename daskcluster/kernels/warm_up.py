"""Compile the kernels of a fit, or load them from the cache, before the fit needs them.

Kernels of bounds are left out: only some fits have bounds, and loading a kernel from the cache takes only a
few hundredths of a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from daskcluster.host import usable_cores
from daskcluster.kernels import (
    accumulate,
    data_statistics,
    distance,
    panels,
    sampling,
    sparse,
    tile,
)
from daskcluster.kernels.compiling import watched
from daskcluster.kernels.jit import read_only
from daskcluster.kernels.sum_grid import SumGrid

_GRID = SumGrid(0.0, 0.0)

_announced: list[bool] = []
"""Not empty once this process has said that it compiles kernels."""

Calls = list[Callable[[], Any]]


def warm_up(
    n_clusters: int | None = None,
    dtype: Any = np.float32,
    *,
    is_sparse: bool = False,
    last_first: bool = False,
) -> None:
    """Run the kernels of Lloyd's algorithm and its seedings on a handful of rows.

    Parameters
    ----------
    n_clusters : int, optional
        Determines the shape of the register tile. Without it, kernels with a tile are left out.
    dtype : dtype
        Compute dtype of the rows: float32 or float64.
    is_sparse : bool
        Rows are CSR.
    last_first : bool, default False
        Begin with the kernels that a fit needs last, for it compiles the others meanwhile.

    Notes
    -----
    Cost: compiling takes some seconds once per machine; loading from the cache takes a fraction of a
    second. Processes that share a cache visit the kernels in different orders, so that they share the work,
    too.
    """
    centres = np.zeros((n_clusters or 1, 2), dtype)
    calls = (_sparse_rows if is_sparse else _dense_rows)(centres) + _any_rows(centres)
    if n_clusters and not is_sparse:
        calls += _tiles(centres)
    order = np.random.default_rng(os.getpid()).permutation(len(calls))
    for number in range(len(calls))[::-1] if last_first else order:
        calls[number]()


@contextmanager
def compiled_by_two(
    n_clusters: int, dtype: Any, *, is_sparse: bool, tell: Callable[[str], None]
) -> Iterator[None]:
    """While this is open, the first kernel to be compiled starts a process that compiles others meanwhile.

    Numba compiles under the interpreter's lock, so threads would not help. The process fills the cache,
    from which this one loads what is there when it is needed. It ends with the context.

    Parameters
    ----------
    n_clusters, dtype, is_sparse
        As for `warm_up`.
    tell : callable (text) -> None
        Called once, with a line that says that kernels are being compiled.
    """
    helpers: list[subprocess.Popen[bytes]] = []

    def start(number: int) -> None:
        if _announced:
            return
        _announced.append(True)
        tell("Compiling kernels for this machine, which later fits reuse")
        # Elsewhere the executable may be a program of its own.
        if usable_cores() > 1 and os.path.basename(sys.executable).startswith("python"):
            given = (
                f"{n_clusters}, {np.dtype(dtype).name!r}, is_sparse={is_sparse}, last_first=True"
            )
            code = f"from daskcluster.kernels.warm_up import warm_up; warm_up({given})"
            quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            # -P: modules come from where they are installed, not from the working directory.
            helpers.append(subprocess.Popen([sys.executable, "-P", "-c", code], **quiet))

    with watched(start):
        try:
            yield
        finally:
            for helper in helpers:
                helper.terminate()
                helper.wait()


def _any_rows(centres: np.ndarray) -> Calls:
    k = len(centres)
    ones, labels, out = np.ones(4), np.zeros(4, np.int32), (np.zeros(k), np.zeros(k))
    return [
        lambda: accumulate.sum_on_grid(ones, _GRID),
        lambda: accumulate.accumulate_values(ones, labels, _GRID, *out),
        lambda: distance.inertia_terms(np.zeros((k, 2)), None, out[0], centres, np.zeros(2)),
    ]


def _dense_rows(centres: np.ndarray) -> Calls:
    k, dtype = len(centres), centres.dtype
    rows, labels, shift, out = (
        np.zeros((4, 2), dtype),
        np.zeros(4, np.int32),
        np.zeros(2),
        np.zeros(4),
    )
    sums, totals = np.zeros((k, 2)), (np.zeros(k), np.zeros(k))
    grids, counts = (SumGrid(shift, shift), sums, sums.copy(), _GRID), np.zeros(k, np.int64)
    masses, which = ((_GRID,) * 3, np.zeros(2), np.zeros(2)), np.arange(4)
    of_doubles: Calls = [  # float64 rows are summed on two grids, with weights or without
        lambda: accumulate.accumulate_weighted(rows, labels, None, *grids, counts),
        lambda: accumulate.move_weighted(rows, which, labels, labels, None, *grids, counts),
    ]
    return (of_doubles if dtype == np.float64 else []) + [
        lambda: accumulate.accumulate_weighted(rows, labels, np.ones(4), *grids, *totals),
        lambda: accumulate.move(rows, which, labels, labels, shift, sums, counts),
        lambda: distance.sqdist_to_one(rows, centres[0], out),
        lambda: data_statistics.data_statistics(rows, np.zeros(2)),
        lambda: data_statistics.look(rows, centres[0], None, shift, *masses),
        lambda: panels.common_offset(centres),
        lambda: sampling.lower(rows, centres[0], out),
        lambda: sampling.potentials(rows, centres, out, None, _GRID, *totals),
        lambda: distance.sqdist_to_assigned(rows, centres, labels, out),
    ]


def _tiles(centres: np.ndarray) -> Calls:
    rows, labels = np.zeros((4, 2), centres.dtype), np.zeros(4, np.int32)
    sums, counts = np.zeros((len(centres), 2)), np.zeros(len(centres), np.int64)
    return [
        lambda: tile.nearest(rows, tile.pack(centres), labels),
        lambda: tile.nearest_and_sum(rows, tile.pack(centres), labels, np.zeros(2), sums, counts),
    ]


def _sparse_rows(centres: np.ndarray) -> Calls:
    k, dtype = len(centres), centres.dtype
    data, indices = np.zeros(4, dtype), np.zeros(4, np.int32)
    rows = sparse.CsrRows(*map(read_only, (data, indices, np.arange(5, dtype=np.int64))))
    labels, shift, out = np.zeros(4, np.int32), np.zeros(2), np.zeros(4)
    sums, counts, totals = np.zeros((k, 2)), np.zeros(k, np.int64), (np.zeros(k), np.zeros(k))
    grids, which = (SumGrid(shift, shift), sums, sums.copy(), _GRID, counts), np.arange(4)
    packed, norms = sparse.pack_sparse(centres), sparse.squared_norms(centres)
    about = read_only(centres[0]), float(norms[0])
    return [
        lambda: sparse.first_fault(indices, rows[2], 2),
        lambda: sparse.raise_max_abs(rows, np.zeros(2)),
        lambda: sparse.nearest_sparse(rows, packed, labels),
        lambda: accumulate.accumulate(rows, labels, shift, sums, counts),
        lambda: accumulate.move(rows, which, labels, labels, shift, sums, counts),
        lambda: accumulate.accumulate_weighted(rows, labels, None, *grids),
        lambda: sparse.sqdist_to_assigned_sparse(*rows, read_only(centres), norms, labels, out),
        lambda: sparse.measure_sparse(*rows, *about, read_only(shift), np.zeros(2), out),
        lambda: sparse.lower_sparse(*rows, *about, out),
        lambda: sparse.sqdist_all_sparse(rows, packed, np.zeros((4, k))),
        lambda: distance.sqdist_to_assigned(centres, centres, np.zeros(k, np.int32), totals[0]),
    ]
