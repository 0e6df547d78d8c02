"""Inertia of every k-means estimator with default parameters, over the best known, on many data sets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from daskcluster.errors import DaskClusterError
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.peers import quietly
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
OURS = (
    "KMeans", "MiniBatchKMeans", "NestedMiniBatchKMeans", "VarianceReducedKMeans",
    "BackwardEulerKMeans", "CoresetKMeans", "HierarchicalKMeans", "StreamingKMeans",
)  # fmt: skip
PEERS = {
    "scikit-learn KMeans (peer)": "KMeans",
    "scikit-learn MiniBatchKMeans (peer)": "MiniBatchKMeans",
}
BUNDLED = {"iris": {}, "wine": {}, "breast_cancer": {}, "digits": {}, "diabetes": {"scaled": False}}
"""Data sets of scikit-learn, and arguments to load them with."""
FILES = (
    "a1", "a2", "a3", "s1", "s2", "s3", "s4", "birch1", "birch2", "d31", "unbalance", "worms_2",
    "pendigits", "mnist", "cod_rna", "skin", "kddcup99_10pct", "cifar10_test10k", "text_classic",
    "text_la1", "text_fbis",
)  # fmt: skip
QUICK = ("iris", "wine", "heavy-tails")
CLUSTERS = (2, 20, 30)
"""Numbers of clusters in addition to the number of classes."""
SEEDS, STARTS = 3, 10
LARGEST, LARGEST_VALUES = 50_000, 10_000 * 784
"""Largest numbers of rows and of values; only values other than zero count in sparse rows."""
FLOOR = 1e-6
"""Share of the total sum of squares that both sides of a ratio get in addition."""
MEDIAN_TARGET, WORST_TARGET, LEAST_SETS = 1.05, 1.3, 25

# -- data sets ------------------------------------------------------------------------------------


def heavy_tails(n: int = 20_000) -> tuple[np.ndarray, int]:
    """Return rows of seven clusters of very unequal sizes with noise of Student's t, and the number."""
    generator = np.random.default_rng(0)
    shares = [0.78, 0.15, 0.06, 0.006, 0.003, 0.0008, 0.0002]
    cluster = generator.choice(len(shares), n, p=shares)
    centres = 30 * generator.normal(size=(len(shares), 9))
    return centres[cluster] + 3 * generator.standard_t(1.5, size=(n, 9)), len(shares)


def sensors(n: int = 20_000) -> tuple[np.ndarray, int]:
    """Return lognormal readings of twelve sensors in six states, few of them far too large, and six."""
    generator = np.random.default_rng(0)
    levels = generator.lognormal(0, 2, (6, 12))
    rows = levels[generator.integers(0, 6, n)] * generator.lognormal(0, 0.3, (n, 12))
    return np.where(generator.random(rows.shape) < 1e-4, 1000 * rows, rows), 6


GENERATED: dict[str, Callable[[], tuple[np.ndarray, int]]] = {
    "heavy-tails": heavy_tails,
    "sensors": sensors,
}
SETS = (*BUNDLED, *GENERATED, *FILES)


def load(name: str, path: Path | None) -> tuple[Any, int]:
    """Return float32 rows, dense or CSR, and the number of classes, 2 if the set has none.

    Large sets are cut to random rows, in their order.
    """
    if name in BUNDLED:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")(**BUNDLED[name])
        rows, classes = found.data, len(getattr(found, "target_names", ())) or 2
    elif name in GENERATED:
        rows, classes = GENERATED[name]()
    else:
        with np.load(path) as file:
            classes = len(np.unique(file["y"]))
            rows = file["X"] if "X" in file.files else _csr(path)
    largest = min(LARGEST, LARGEST_VALUES * rows.shape[0] // rows.size)
    if rows.shape[0] > largest:
        chosen = np.random.default_rng(0).choice(rows.shape[0], largest, replace=False)
        rows = rows[np.sort(chosen)]
    return rows.astype(np.float32), classes


def _csr(path: Path | None) -> Any:
    from scipy.sparse import csr_array, load_npz

    return csr_array(load_npz(path))


def distinct(rows: Any) -> int:
    """Return the number of different rows."""
    if isinstance(rows, np.ndarray):
        return len({row.tobytes() for row in rows})
    spans = pairwise(rows.indptr)
    return len({(rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in spans})


# -- fits -----------------------------------------------------------------------------------------


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each data set that exists."""
    for name in QUICK if settings.quick else SETS:
        path = None if settings.data is None else settings.data / f"{name}.npz"
        if name not in FILES or (path is not None and path.exists()):
            yield Cell(name, partial(measure, name, path, settings))


def measure(name: str, path: Path | None, settings: Settings) -> Figures:
    """Return the shape of a data set, and the figures of `compare` for each number of clusters."""
    rows, classes = load(name, path)
    n_distinct = distinct(rows)
    wanted = sorted({*CLUSTERS, classes})
    found = {str(k): compare(rows, k, settings) for k in wanted if k < n_distinct}
    return {"rows": rows.shape[0], "features": rows.shape[1], "clusters": found}


def compare(rows: Any, k: int, settings: Settings) -> Figures:
    """Return the best known inertia, and of every estimator the ratio of each seed and the seconds."""
    from daskcluster import KMeans, LocalEngine

    engine = LocalEngine(settings.threads)
    seeds, starts = (1, 2) if settings.quick else (SEEDS, STARTS)
    fits = {name: run(name, rows, k, seeds, engine) for name in (*OURS, *PEERS)}
    known = [one for found in fits.values() for one in found.get("inertia", ())]
    for seed in range(starts):
        start = KMeans(
            k, init="k-means++", n_init=1, tol=0, max_iter=1000, random_state=100 + seed,
            engine=engine,
        )  # fmt: skip
        known.append(inertia(rows, quietly(start, rows).cluster_centers_, engine))
    best = min(known)
    total = inertia(rows, np.atleast_2d(rows.mean(axis=0)), engine)
    for found in fits.values():
        if "inertia" in found:
            over = best + FLOOR * total
            found["ratios"] = [(one + FLOOR * total) / over for one in found.pop("inertia")]
    return {"best": best, "total": total, "fits": fits}


def run(name: str, rows: Any, k: int, seeds: int, engine: Any) -> Figures:
    """Return the inertia for each seed and the median of the seconds, or why the rows are refused."""
    found, seconds = [], []
    for seed in range(seeds):
        began = time.perf_counter()
        try:
            centres = fit(name, rows, k, seed, engine)
        except (DaskClusterError, TypeError, ValueError) as error:
            return {"refused": str(error)}
        seconds.append(time.perf_counter() - began)
        found.append(inertia(rows, centres, engine))
    return {"inertia": found, "seconds": statistics.median(seconds)}


def fit(name: str, rows: Any, k: int, seed: int, engine: Any) -> np.ndarray:
    """Return the centres of an estimator with default parameters."""
    from sklearn import cluster
    from threadpoolctl import threadpool_limits

    import daskcluster

    if name in OURS:
        ours = getattr(daskcluster, name)(k, random_state=seed, engine=engine)
        return np.asarray(quietly(ours, rows).cluster_centers_)
    with threadpool_limits(engine.n_threads):
        theirs = getattr(cluster, PEERS[name])(k, random_state=seed)
        return np.asarray(quietly(theirs, rows).cluster_centers_)


def inertia(rows: Any, centres: np.ndarray, engine: Any) -> float:
    """Return the exact sum of squared distances of the rows to the nearest of the centres."""
    from daskcluster import KMeans

    exact = KMeans(len(centres), init=centres, n_init=1, max_iter=0, engine=engine)
    return float(quietly(exact, rows).inertia_)


# -- the section ----------------------------------------------------------------------------------


def ratios(records: Records, name: str) -> dict[tuple[str, int], float]:
    """Return the median ratio of an estimator by data set and number of clusters.

    Examples
    --------
    >>> fits = {"KMeans": {"ratios": [1.5, 1.0, 1.25]}, "CoresetKMeans": {"refused": "sparse"}}
    >>> ratios({"iris": {"clusters": {"2": {"fits": fits}}}}, "KMeans")
    {('iris', 2): 1.25}
    """
    return {
        where: statistics.median(one["ratios"])
        for where, one in _fits(records, name)
        if "ratios" in one
    }


def _fits(records: Records, name: str) -> Iterator[tuple[tuple[str, int], Figures]]:
    for data_set, one in records.items():
        for k, found in one["clusters"].items():
            yield (data_set, int(k)), found["fits"][name]


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table with a line for each estimator."""
    n_cells = sum(len(one["clusters"]) for one in records.values())
    table = Table(
        f"Inertia over the best known: {len(records)} data sets, {n_cells} cells, "
        f"{settings.threads} threads, default parameters",
        ["estimator", "median", "95th percentile", "worst", "worst cell",
         f"cells above {WORST_TARGET:g}", "refused", "seconds"],
        shown=True,
    )  # fmt: skip
    for name in (*OURS, *PEERS):
        found, line = ratios(records, name), [None] * 5
        if found:
            values, (worst, where) = list(found.values()), _worst(found)
            figures = statistics.median(values), float(np.percentile(values, 95)), worst
            above = sum(one > WORST_TARGET for one in values)
            line = [*map("{:.3f}".format, figures), where, above]
        seconds = sum(one.get("seconds", 0.0) for _, one in _fits(records, name))
        table.rows.append([_title(name), *line, n_cells - len(found) or None, seconds])
    table.notes += [*ABOUT, *_exceptions(records)]
    if not settings.quick and (missing := [name for name in FILES if name not in records]):
        table.notes.append(f"Not measured, since the files are missing: {', '.join(missing)}.")
    return [table]


ABOUT = (
    "A cell is a data set with a number of clusters: 2, 20, 30 and the number of classes. Its value is the "
    f"median over {SEEDS} seeds of the exact inertia of the final centres, over the best known. The best "
    f"known inertia is the least of all runs and of {STARTS} k-means++ starts to convergence. A millionth "
    "of the total sum of squares is added to both.",
    f"Rows have their raw scales. A larger set is represented by rows drawn at random, {LARGEST:,} or as "
    f"many as have {LARGEST_VALUES:,} values. Seconds are sums over all cells of the median fit. "
    "Estimators do not take turns, so this does not compare speed. Peers do not count for the targets.",
)
"""Remarks on what the figures mean."""


def _title(name: str) -> str:
    return f"`{name}`" if name in OURS else name


def _worst(found: Mapping[tuple[str, int], float]) -> tuple[float, str]:
    """Return the largest ratio and its cell."""
    value, name, k = max((value, *where) for where, value in found.items())
    return value, f"{name}, k = {k}"


def _exceptions(records: Records) -> Iterator[str]:
    """Yield remarks on cells in which one start is not enough, and on rows that are refused."""
    above = [
        f"{name}, k = {k} ({value:.2f})"
        for (name, k), value in ratios(records, "KMeans").items()
        if value > WORST_TARGET
    ]
    if above:
        yield f"`KMeans` itself, with one start, is above {WORST_TARGET:g} in: {'; '.join(above)}."
    for name in (*OURS, *PEERS):
        refused: dict[str, list[str]] = {}
        for (data_set, k), one in _fits(records, name):
            if "refused" in one:
                refused.setdefault(one["refused"], []).append(f"{data_set}, k = {k}")
        for reason, where in refused.items():
            yield f"{_title(name)} refuses {'; '.join(where)}: {reason}"


def _read_medians(records: Records) -> Reading | None:
    medians = {name: list(ratios(records, name).values()) for name in OURS}
    if len(records) < LEAST_SETS or not all(medians.values()):
        return None
    worst, name = max((statistics.median(values), name) for name, values in medians.items())
    return Reading(f"at most {worst:.3f} ({name})", worst <= MEDIAN_TARGET)


def _read_worst(records: Records) -> Reading | None:
    if len(records) < LEAST_SETS:
        return None
    found = {name: ratios(records, name) for name in OURS}
    ends = [(*_worst(one), name) for name, one in found.items() if one]
    above = sum(value > WORST_TARGET for one in found.values() for value in one.values())
    value, where, name = max(ends)
    text = f"{value:.2f} ({name}, {where}); {above} of {sum(map(len, found.values()))} are above"
    return Reading(text, value <= WORST_TARGET)


_WHAT = "Inertia over the best known, k-means estimators with default parameters"
TARGETS: tuple[Target, ...] = (
    Target(
        "quality-median",
        f"{_WHAT}: median over data sets and numbers of clusters of each estimator",
        f"<= {MEDIAN_TARGET:g}",
        _read_medians,
    ),
    Target(
        "quality-worst",
        f"{_WHAT}: every data set and number of clusters",
        f"<= {WORST_TARGET:g}",
        _read_worst,
    ),
)
