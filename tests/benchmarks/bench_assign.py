"""Nearest centres: the fused tile against Faiss's flat search, and against the FMA peak."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from daskcluster.kernels.tile import nearest, pack
from tests.benchmarks.harness import Options, Table, peak_flops, say, version_of

TAKES = "two to three minutes"

FEATURES = (4, 16, 64, 128, 784)
CENTRES = (10, 50, 256, 1000, 4096)
WORK = 4e9
"""FLOP of one call: a few dozen milliseconds, so that starting threads does not count."""

LEAST_ROWS = 8_000
"""Fewer rows would measure how centres are packed or added to an index."""

REST = 0.03
"""Seconds between runs, in which the threads of the run before stop spinning."""

PEAK_FROM = (64, 256)
"""From this many features and centres on, the share of the peak has a target."""


def n_rows(d: int, k: int, quick: bool) -> int:
    rows = min(max(WORK / (2 * d * k), LEAST_ROWS), 48e6 / d, 2e6)
    return int(rows / 16 if quick else rows)


def ours(rows: np.ndarray, centres: np.ndarray, pool: ThreadPoolExecutor, threads: int) -> Any:
    labels = np.empty(len(rows), np.int32)
    bounds = [len(rows) * i // threads for i in range(threads + 1)]
    spans = [slice(*pair) for pair in itertools.pairwise(bounds)]

    def run() -> np.ndarray:
        panels = pack(centres)
        list(pool.map(lambda span: nearest(rows[span], panels, labels[span]), spans))
        return labels

    return run


def faiss_search(rows: np.ndarray, centres: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    import faiss

    faiss.omp_set_num_threads(threads)

    def run() -> np.ndarray:
        index = faiss.IndexFlatL2(rows.shape[1])
        index.add(centres)
        return index.search(rows, 1)[1][:, 0]

    return run


def take_turns(
    programs: dict[str, Callable[[], np.ndarray]], repeats: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return the median seconds of each program and its value; a first round warms up."""
    values = {name: program() for name, program in programs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            time.sleep(REST)
            begin = time.perf_counter()
            program()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(took) for name, took in seconds.items()}, values


def measure(d: int, k: int, options: Options, pool: ThreadPoolExecutor) -> dict[str, Any]:
    """Time both on one shape; a row is counted as agreeing if both give it the same centre."""
    rng = np.random.default_rng(d * k)
    rows = rng.standard_normal((n_rows(d, k, options.quick), d), dtype=np.float32)
    centres = rng.standard_normal((k, d), dtype=np.float32)
    programs = {"ours": ours(rows, centres, pool, options.threads)}
    if version_of("faiss-cpu") is not None:
        programs["faiss"] = faiss_search(rows, centres, options.threads)
    seconds, labels = take_turns(programs, options.repeats)
    found: dict[str, Any] = {"n": len(rows), "ours": seconds["ours"]}
    found["flops"] = 2.0 * len(rows) * d * k / found["ours"]
    if "faiss" in seconds:
        found["ratio"] = seconds["faiss"] / found["ours"]
        found["agree"] = float((labels["faiss"] == labels["ours"]).mean())
    return found


def run(options: Options) -> list[Table]:
    """Return one row per shape, with the summary below."""
    peak = peak_flops(np.float32, options.threads)
    table = Table(
        f"Nearest centre of float32 rows, {options.threads} threads",
        ["d", "k", "n", "ms", "GFLOP/s", "of FMA peak", "Faiss flat / ours", "same label"],
    )
    ratios, shares = [], []
    with ThreadPoolExecutor(options.threads) as pool:
        for d in FEATURES:
            for k in CENTRES:
                say(f"  d={d} k={k}")
                found = measure(d, k, options, pool)
                share = found["flops"] / peak
                ratio, agree = found.get("ratio"), found.get("agree")
                table.rows.append(
                    [
                        d, k, found["n"], found["ours"] * 1e3, found["flops"] / 1e9,
                        f"{share:.0%}", ratio, None if agree is None else f"{agree:.4%}",
                    ]
                )  # fmt: skip
                if ratio is not None:
                    ratios.append(ratio)
                if d >= PEAK_FROM[0] and k >= PEAK_FROM[1]:
                    shares.append(share)
    table.notes.append(f"FMA peak measured in this run: {peak / 1e9:.0f} GFLOP/s")
    table.notes.append(
        f"Share of it for d >= {PEAK_FROM[0]} and k >= {PEAK_FROM[1]}: "
        f"{min(shares):.0%} to {max(shares):.0%} (target 75%)"
    )
    if ratios:
        table.notes.append(
            f"Faiss / ours: median {statistics.median(ratios):.2f}, least {min(ratios):.2f} "
            "(targets 1.5 and 1)"
        )
    return [table]
