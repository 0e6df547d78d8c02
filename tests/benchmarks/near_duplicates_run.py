"""One search for near-duplicates in a separate process, so that its peak memory can be measured.

``python -m tests.benchmarks.near_duplicates_run RUN ROWS.npy THREADS EXACT_ROWS`` prints one JSON object.
The search reads ROWS.zarr, since pages of a mapped file would count as memory.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import daskcluster as dc
from daskcluster.host import give_back_memory
from daskcluster.methods.duplicates.search import DuplicatesPlan
from tests.benchmarks.harness.memory import forget_peak, peak_bytes

THRESHOLD = 0.95
_TILE = 2048


@dataclass(frozen=True)
class SearchFigures:
    """Figures of one search.

    Attributes
    ----------
    seconds, cpu_seconds : float
    n_rows, n_pairs : int
        Of the search; pairs that it needed, for components.
    recall : float
        Share of the planted pairs that are in one group.
    n_false, n_missed : int
        Pairs of the rows that brute force compares.
    peak_bytes, stated_bytes : int
    """

    seconds: float
    cpu_seconds: float
    n_rows: int
    n_pairs: int
    recall: float
    n_false: int
    n_missed: int
    peak_bytes: int
    stated_bytes: int


def exact_pairs(X: np.ndarray) -> set[tuple[int, int]]:
    """Return all pairs beyond the threshold: float32 finds them with room, float64 decides."""
    unit = X.astype(np.float32)
    unit /= np.sqrt(np.square(unit).sum(axis=1, keepdims=True))
    found: set[tuple[int, int]] = set()
    for first in range(0, len(X), _TILE):
        rows = unit[first : first + _TILE]
        near = np.argwhere(unit[: first + len(rows)] @ rows.T >= THRESHOLD - 1e-4)
        near = near[near[:, 0] < near[:, 1] + first]
        one, other = X[near[:, 0]].astype(np.float64), X[near[:, 1] + first].astype(np.float64)
        lengths = np.sqrt((one * one).sum(axis=1) * (other * other).sum(axis=1))
        close = (one * other).sum(axis=1) / lengths >= THRESHOLD
        found |= {(int(a), int(b) + first) for a, b in near[close]}
    return found


def listed_pairs(X: np.ndarray, engine: dc.LocalEngine) -> set[tuple[int, int]]:
    """Return all pairs that the search finds."""
    from daskcluster.estimators.work import Work
    from daskcluster.methods.duplicates.chunkwise import Rule
    from daskcluster.methods.duplicates.search import DuplicateSearch

    dataset = dc.open_dataset(X)
    plan = DuplicatesPlan.of(dataset)
    work = Work(dataset, dataset.normalized(), plan, engine, (), 0)
    search = DuplicateSearch(work, Rule(True, THRESHOLD), False)
    with search.on_scratch("/tmp"):
        return {(min(a, b), max(a, b)) for a, b in search.pairs().tolist()}


def within_clusters(path: Path, threads: int) -> tuple[np.ndarray, int]:
    """Return the clusters of SemDeDup's way: k-means, then all pairs within each cluster, by BLAS."""
    rows = np.load(path, mmap_mode="r")
    k = max(1, math.isqrt(len(rows)) // 2)
    model = dc.KMeans(
        k, metric="cosine", init="random", n_init=1, max_iter=20, random_state=0,
        engine=dc.LocalEngine(threads),
    )  # fmt: skip
    labels = np.asarray(model.fit(str(path)).labels_)
    order = np.argsort(labels, kind="stable")
    edges = np.cumsum(np.bincount(labels, minlength=k))
    pairs = []
    for which in np.split(order, edges[:-1]):
        X = rows[np.sort(which)].astype(np.float32)
        X /= np.sqrt(np.square(X).sum(axis=1, keepdims=True))
        for first in range(0, len(X), _TILE):
            part = X[first : first + _TILE]
            near = np.argwhere(part @ X[: first + len(part)].T >= THRESHOLD)
            near = near[near[:, 1] < near[:, 0] + first]
            pairs.append(np.sort(which)[near + np.array([first, 0])])
    return np.concatenate(pairs), len(rows)


def recall_of(pairs: np.ndarray, planted: np.ndarray) -> float:
    """Return the share of planted pairs that are listed."""
    both = (np.sort(each, axis=1) @ [1 << 32, 1] for each in (pairs, planted))
    listed, wanted = both
    return float(np.isin(wanted, listed).mean())


def measure(run: str, path: Path, threads: int, exact_rows: int) -> SearchFigures:
    """Search; return the figures."""
    planted = np.load(path.with_suffix(".pairs.npy"))
    engine = dc.LocalEngine(threads)
    few = np.load(path, mmap_mode="r")[:exact_rows]
    warm = np.array(few[:4000])
    dc.near_duplicates(warm, THRESHOLD, engine=engine)
    stated, missed, false, recall = 0, 0, 0, 1.0
    exact: set[tuple[int, int]] = set()
    if run == "search":
        exact, listed = exact_pairs(np.array(few)), listed_pairs(np.array(few), engine)
        missed, false = len(exact - listed), len(listed - exact)
    give_back_memory()
    forget_peak()
    began, busy = time.perf_counter(), time.process_time()
    if run == "search":
        store = str(path.with_suffix(".zarr"))
        found = dc.near_duplicates(store, THRESHOLD, engine=engine)
        n_pairs, n_rows = found.n_pairs, len(found.group)
        recall = float((found.group[planted[:, 0]] == found.group[planted[:, 1]]).mean())
        stated = DuplicatesPlan.of(dc.open_dataset(store)).memory(threads)
    elif run == "semdedup":
        pairs, n_rows = within_clusters(path, threads)
        n_pairs, recall = len(pairs), recall_of(pairs, planted)
    else:
        n_pairs, n_rows = len(exact_pairs(np.array(few))), len(few)
    return SearchFigures(
        time.perf_counter() - began, time.process_time() - busy, n_rows, n_pairs, recall, false,
        missed, peak_bytes(), stated,
    )  # fmt: skip


if __name__ == "__main__":
    name, rows, threads, few = sys.argv[1:]
    print(json.dumps(asdict(measure(name, Path(rows), int(threads), int(few)))))
