"""Nearest centres: our kernel against Faiss's flat search and the FMA peak."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from tests.benchmarks.harness.bars import Lines, draw_lines
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.fma_peak import fma_peak
from tests.benchmarks.harness.machine import version_of
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
FEATURES = (4, 16, 64, 128, 784)
CENTRES = (10, 50, 256, 1000, 4096)
WORK = 4e9
"""FLOP of one call: tens of milliseconds, so that the start of threads does not matter."""

LEAST_ROWS = 8_000
"""With fewer rows, packing or indexing the centres would dominate."""

REST = 0.03
"""Seconds between runs, in which the threads of the previous run stop spinning."""

PEAK_FROM = (64, 256)
"""From this many features and centres on, the share of the peak has a target."""

SHARE_TARGET, MEDIAN_TARGET, LEAST_TARGET = 0.75, 1.5, 1.0
SAME_LABELS = 0.999
"""Least share of equal labels for a comparison; the other rows are ties up to rounding."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each number of features and centres."""
    for d, k in itertools.product(FEATURES, CENTRES):
        yield Cell(f"d={d} k={k}", partial(measure, d, k, settings))


def n_rows(d: int, k: int, *, quick: bool) -> int:
    """Return the number of rows for a call of `WORK`, within limits of memory and overhead."""
    rows = min(max(WORK / (2 * d * k), LEAST_ROWS), 48e6 / d, 2e6)
    return int(rows / 16 if quick else rows)


def ours(
    rows: np.ndarray, centres: np.ndarray, pool: ThreadPoolExecutor, threads: int
) -> Callable[[], np.ndarray]:
    """Return our search: pack the centres, then run the kernel on equal parts of the rows."""
    from daskcluster.kernels.tile import nearest, pack

    def prepare() -> Callable[[np.ndarray, np.ndarray], None]:
        panels = pack(centres)
        return lambda part, labels: nearest(part, panels, labels)

    return in_parts(rows, prepare, pool, threads)


def in_parts(
    rows: np.ndarray,
    prepare: Callable[[], Callable[[np.ndarray, np.ndarray], None]],
    pool: ThreadPoolExecutor,
    threads: int,
) -> Callable[[], np.ndarray]:
    """Return a search: `prepare` it, then let it label equal parts of the rows."""
    labels = np.empty(len(rows), np.int32)
    bounds = [len(rows) * i // threads for i in range(threads + 1)]
    spans = [slice(*pair) for pair in itertools.pairwise(bounds)]

    def run() -> np.ndarray:
        search = prepare()
        list(pool.map(lambda span: search(rows[span], labels[span]), spans))
        return labels

    return run


def faiss_search(rows: np.ndarray, centres: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    """Return Faiss's flat search for one neighbour."""
    import faiss

    faiss.omp_set_num_threads(threads)

    def run() -> np.ndarray:
        index = faiss.IndexFlatL2(rows.shape[1])
        index.add(centres)
        return np.asarray(index.search(rows, 1)[1][:, 0])

    return run


def measure(d: int, k: int, settings: Settings) -> Figures:
    """Time both programs on one shape, and compare their labels."""
    rng = np.random.default_rng(d * k)
    rows = rng.standard_normal((n_rows(d, k, quick=settings.quick), d), dtype=np.float32)
    centres = rng.standard_normal((k, d), dtype=np.float32)
    with ThreadPoolExecutor(settings.threads) as pool:
        programs = {"ours": ours(rows, centres, pool, settings.threads)}
        if version_of("faiss-cpu") is not None:
            programs["faiss"] = faiss_search(rows, centres, settings.threads)
        # Measured before and after: other processes may take a core during one burst.
        peak = fma_peak(np.float32, settings.threads)
        found = race(programs, settings.repeats, pause=REST)
    figures: Figures = {"d": d, "k": k, "n": len(rows), "ours": found["ours"].median}
    figures["peak"] = max(peak, fma_peak(np.float32, settings.threads))
    figures["share"] = 2.0 * len(rows) * d * k / found["ours"].median / figures["peak"]
    if "faiss" in found:
        figures["faiss"] = found["faiss"].median
        figures["agree"] = float((found["faiss"].value == found["ours"].value).mean())
    return figures


def ratio_of(one: Figures) -> float | None:
    """Return the seconds of Faiss over ours, None if it is missing or found other centres."""
    if "faiss" not in one or one["agree"] < SAME_LABELS:
        return None
    return float(one["faiss"] / one["ours"])


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table with a summary, and the plot."""
    table = Table(
        f"Nearest centre of float32 rows, {settings.threads} threads",
        ["d", "k", "n", "ms", "GFLOP/s", "of FMA peak", "Faiss flat / ours", "same label"],
    )
    for one in records.values():
        flops = one["share"] * one["peak"]
        agree = one.get("agree")
        table.rows.append([
            one["d"], one["k"], one["n"], one["ours"] * 1e3, flops / 1e9, f"{one['share']:.0%}",
            ratio_of(one), None if agree is None else f"{agree:.4%}",
        ])  # fmt: skip
    peaks = [one["peak"] / 1e9 for one in records.values()]
    table.notes.append(
        f"FMA peak measured in the same run: {min(peaks):.0f} to {max(peaks):.0f} GFLOP/s."
    )
    if shares := _shares(records):
        table.notes.append(
            f"For d >= {PEAK_FROM[0]} and k >= {PEAK_FROM[1]}, our kernel reaches "
            f"{min(shares):.0%} to {max(shares):.0%} of the peak (target {SHARE_TARGET:.0%})."
        )
    if ratios := _ratios(records):
        table.notes.append(
            f"Time of Faiss / ours: median {statistics.median(ratios):.2f}, least {min(ratios):.2f} "
            f"(targets {MEDIAN_TARGET:g} and {LEAST_TARGET:g})."
        )
    return [table, _plot(records, settings)]


def _plot(records: Records, settings: Settings) -> Part:
    by_d: dict[str, tuple[list[float], list[float]]] = {}
    against: dict[str, tuple[list[float], list[float]]] = {}
    for one in records.values():
        _add(by_d, one, one["share"] * one["peak"] / 1e9)
        if (found := ratio_of(one)) is not None:
            _add(against, one, found)
    panels = [
        Lines("speed", "k", "GFLOP/s", by_d),
        Lines("against Faiss", "k", "time of Faiss / ours", against),
    ]
    text = "Speed of the search for nearest centres by number of centres and features"
    return draw_lines("bench-assign.svg", text, panels, settings.images)


def _add(curves: dict[str, tuple[list[float], list[float]]], one: Figures, value: float) -> None:
    sizes, values = curves.setdefault(f"d = {one['d']}", ([], []))
    sizes.append(one["k"])
    values.append(value)


def _shares(records: Records) -> list[float]:
    least_d, least_k = PEAK_FROM
    return [one["share"] for one in records.values() if one["d"] >= least_d and one["k"] >= least_k]


def _ratios(records: Records) -> list[float]:
    return [found for one in records.values() if (found := ratio_of(one)) is not None]


def _read_share(records: Records) -> Reading | None:
    shares = _shares(records)
    if len(records) < len(FEATURES) * len(CENTRES):
        return None
    return Reading(f"{min(shares):.0%} to {max(shares):.0%}", min(shares) >= SHARE_TARGET)


def _read_faiss(records: Records) -> Reading | None:
    ratios = _ratios(records)
    if len(ratios) < len(FEATURES) * len(CENTRES):
        return None
    median, least = statistics.median(ratios), min(ratios)
    met = median >= MEDIAN_TARGET and least >= LEAST_TARGET
    return Reading(f"median {median:.2f}, least {least:.2f}", met)


TARGETS: tuple[Target, ...] = (
    Target(
        "assign-peak",
        "Nearest centres, d >= 64 and k >= 256: share of the FMA peak measured in the same run",
        f">= {SHARE_TARGET:.0%}",
        _read_share,
    ),
    Target(
        "assign-faiss",
        "Nearest centres, all d and k: speed-up over Faiss's flat search",
        f">= {MEDIAN_TARGET:g} in the median, never below {LEAST_TARGET:g}",
        _read_faiss,
    ),
)
