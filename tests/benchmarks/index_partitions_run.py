"""One division of rows into partitions in a separate process, so that its peak memory can be measured.

``python -m tests.benchmarks.index_partitions_run RUN ROWS.npy QUERIES.npz TARGET THREADS`` prints one JSON
object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import daskcluster as dc
from daskcluster.methods.partition.partitioning import PartitionPlan
from tests.benchmarks.harness.memory import forget_peak, peak_bytes

SCANS = (0.0025, 0.005, 0.01, 0.02, 0.05)
"""Shares of all rows that a search compares with a query, in the mean of all queries."""
_BLOCK = 1 << 16
_TILE = 250


@dataclass(frozen=True)
class IndexFigures:
    """Figures of one division.

    Attributes
    ----------
    seconds : float
        Training and assignment.
    training_seconds : float
        0 where these are not apart.
    n_partitions : int
    variation, largest_over_mean : float
        Of sizes.
    recalls : list of lists
        For each of `SCANS`, recall@10 of every query.
    peak_bytes, stated_bytes : int
    """

    seconds: float
    training_seconds: float
    n_partitions: int
    variation: float
    largest_over_mean: float
    recalls: list[list[float]]
    peak_bytes: int
    stated_bytes: int


def nearest_rows(rows: np.ndarray, queries: np.ndarray, many: int = 10) -> np.ndarray:
    """Return the nearest rows of each query, int64 (q, many), by brute force in float32."""
    best = np.full((len(queries), many), np.inf, np.float32)
    which = np.zeros((len(queries), many), np.int64)
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK].astype(np.float32)
        norms = np.square(block).sum(axis=1)
        for start in range(0, len(queries), _TILE):
            own = slice(start, start + _TILE)
            squares = norms - 2.0 * (queries[own] @ block.T)
            near = np.argpartition(squares, many - 1, axis=1)[:, :many]
            found = np.column_stack([best[own], np.take_along_axis(squares, near, axis=1)])
            numbers = np.column_stack([which[own], near + first])
            order = np.argsort(found, axis=1, kind="stable")[:, :many]
            best[own] = np.take_along_axis(found, order, axis=1)
            which[own] = np.take_along_axis(numbers, order, axis=1)
    return which


def recalls_at(
    scans: Sequence[float],
    centres: np.ndarray,
    partitions: np.ndarray,
    queries: np.ndarray,
    truth: np.ndarray,
) -> np.ndarray:
    """Return the recall of every query where searches compare these shares of the rows, float64 (s, q).

    A search looks into a number of partitions that is the same for all queries; between two numbers, it
    changes linearly.

    Parameters
    ----------
    scans : sequence of float
    centres : ndarray of shape (k, d)
    partitions : ndarray of shape (n,)
    queries : ndarray of shape (q, d)
    truth : ndarray of shape (q, many)
        Nearest rows.
    """
    k, n = len(centres), len(partitions)
    sizes = np.bincount(partitions, minlength=k)
    squares = np.square(centres).sum(axis=1) - 2.0 * (queries @ centres.T)
    order = np.argsort(squares, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(k), order.shape), axis=1)
    scanned = np.concatenate([[0.0], sizes[order].mean(axis=0).cumsum()]) / n
    first = ranks[np.arange(len(queries))[:, None], partitions[truth]]
    curves = np.zeros((len(queries), k + 1))
    for number in range(k):
        curves[:, number + 1] = curves[:, number] + (first == number).mean(axis=1)
    recalls = np.empty((len(scans), len(queries)))
    for at, scan in enumerate(scans):
        after = int(np.searchsorted(scanned, scan))
        part = (scan - scanned[after - 1]) / (scanned[after] - scanned[after - 1])
        recalls[at] = (1.0 - part) * curves[:, after - 1] + part * curves[:, after]
    return recalls


def measure(run: str, path: Path, asked: Path, target: int, threads: int) -> IndexFigures:
    """Divide the rows; return the figures."""
    rows = np.load(path, mmap_mode="r")
    given = np.load(asked)
    engine = dc.LocalEngine(threads)
    dc.partition(np.array(rows[:4000]), 100, engine=engine)  # compiles
    forget_peak()
    began, trained, stated = time.perf_counter(), 0.0, 0
    if run.startswith("faiss"):
        every = run == "faiss-all"
        centres, partitions, trained = _faiss(rows, len(rows) // target, every, threads)
    else:
        found = dc.partition(str(path), target, engine=engine)
        centres, partitions = found.centres, found.partition
        stated = PartitionPlan.of(dc.open_dataset(str(path)), target).memory(threads)
    seconds, peak = time.perf_counter() - began, peak_bytes()
    sizes = np.bincount(partitions, minlength=len(centres))
    recalls = recalls_at(SCANS, centres, partitions, given["queries"], given["truth"])
    return IndexFigures(
        seconds, trained, len(centres),
        float(sizes.std() / sizes.mean()), float(sizes.max() / sizes.mean()),
        np.round(recalls, 4).tolist(), peak, stated,
    )  # fmt: skip


def _faiss(
    rows: np.ndarray, k: int, all_rows: bool, threads: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return centres and labels as `IndexIVFFlat` trains and assigns, and the seconds of training."""
    import faiss

    faiss.omp_set_num_threads(threads)
    began = time.perf_counter()
    dense = rows.astype(np.float32)
    quantizer = faiss.IndexFlatL2(rows.shape[1])
    index = faiss.IndexIVFFlat(quantizer, rows.shape[1], k)
    if all_rows:
        index.cp.max_points_per_centroid = len(rows)
    index.train(dense)
    trained = time.perf_counter() - began
    labels = quantizer.search(dense, 1)[1][:, 0].astype(np.int32)
    return quantizer.reconstruct_n(0, k), labels, trained


if __name__ == "__main__":
    name, rows_path, queries_path, target_size, threads = sys.argv[1:]
    figures = measure(name, Path(rows_path), Path(queries_path), int(target_size), int(threads))
    print(json.dumps(asdict(figures)))
