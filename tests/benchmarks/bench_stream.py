"""Streams: time and memory of a row, throughput, quality, and many small objects."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness import REST, Note, Options, Table, say, turns
from tests.benchmarks.plots import canvas_of, why_not

TAKES = (
    "about 10 minutes on 2 cores, and 2 GB of disk in --scratch DIR, removed afterwards unless --keep "
    "(--quick: a minute)"
)

FEATURES, CLUSTERS = 16, 50
ROWS, QUICK_ROWS = (10**5, 10**6, 10**7, 5 * 10**7), (10**5, 5 * 10**5)
OBJECTS, OBJECT_ROWS = 1000, 10_000
HALF_LIFE = 1_000_000


def run(options: Options) -> list[Any]:
    """Return the tables of growth, throughput, quality and small objects."""
    folder = options.folder("daskcluster-stream")
    try:
        return [
            _growth(options),
            _throughput(options, folder),
            _quality(options),
            _small_objects(options, folder),
            *_walk(options),
        ]
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def clouds(seed: int, n_rows: int, k: int = CLUSTERS, d: int = FEATURES) -> np.ndarray:
    """Return rows of k clouds that are the same for every seed."""
    centres = 3.0 * np.random.default_rng(12345).standard_normal((k, d)).astype(np.float32)
    rng = np.random.default_rng(seed)
    return centres[rng.integers(0, k, n_rows)] + rng.standard_normal((n_rows, d), np.float32)


# -- growth ----------------------------------------------------------------------------------------


def _growth(options: Options) -> Table:
    table = Table(
        f"A stream of {FEATURES} features and {CLUSTERS} clusters in a process of its own: rows folded in "
        "portions of 100,000, microseconds a row over the last tenth of them, and peak memory above that "
        "of the first portion",
        ["rows", "half-life", "us a row", "MB more", "rows of the summary"],
    )
    for half_life in (None, HALF_LIFE):
        for n_rows in QUICK_ROWS if options.quick else ROWS:
            say(f"  {n_rows:,} rows, half-life {half_life}")
            code = (
                "from tests.benchmarks.bench_stream import grow\n"
                f"grow({n_rows}, {half_life}, {options.threads})"
            )
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            micro, more, kept = done.stdout.split()
            table.rows.append([f"{n_rows:,}", half_life or "none", micro, more, kept])
    return table


def grow(n_rows: int, half_life: int | None, threads: int) -> None:
    """Fold rows in, and print time a row, memory and the size of the summary; a process of its own."""
    import psutil

    from daskcluster import LocalEngine, StreamingKMeans

    model = StreamingKMeans(
        CLUSTERS, half_life=half_life, random_state=0, engine=LocalEngine(threads)
    )
    step, took, process = 100_000, [], psutil.Process()
    portions = [clouds(seed, step) for seed in range(4)]
    model.partial_fit(portions[0])
    assert model.cluster_centers_ is not None
    base = most = process.memory_info().rss
    for number in range(1, n_rows // step):
        began = time.perf_counter()
        model.partial_fit(portions[number % 4])
        took.append(time.perf_counter() - began)
        most = max(most, process.memory_info().rss)
    last = took[-max(1, len(took) // 10) :] or [0.0]
    micro = 1e6 * sum(last) / (len(last) * step)
    print(f"{micro:.2f} {(most - base) / 1e6:.0f} {model.coreset_.n_rows}")


# -- throughput ------------------------------------------------------------------------------------


def _throughput(options: Options, folder: Path) -> Table:
    from daskcluster import LocalEngine, StreamingKMeans
    from daskcluster.data.generate import generate

    n = 10**6 if options.quick else 8 * 10**6
    path = folder / "rows.zarr"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        generate(str(path), n_rows=n, n_features=FEATURES, n_clusters=CLUSTERS, spread=2.0)
    engine = LocalEngine(options.threads)
    programs: dict[str, Callable[[], Any]] = {
        "sums": lambda: read_with_sums(path, options.threads),
        "stream": lambda: StreamingKMeans(CLUSTERS, random_state=0, engine=engine).fit(str(path)),
    }
    found = _medians(programs, options)
    table = Table(
        f"{n:,} x {FEATURES} from Zarr on disk, {options.threads} threads: seconds, medians of "
        f"{options.repeats}",
        ["read once with both sums of a coreset", "stream, with centres", "throughput", "target"],
    )
    share = found["sums"] / found["stream"]
    table.rows.append([found["sums"], found["stream"], f"{share:.0%}", ">= 50 %"])
    return table


def read_with_sums(path: Path, threads: int) -> None:
    """Read every chunk once, and compute both sums of a lightweight coreset of it in memory."""
    import zarr

    array = zarr.open_array(str(path), mode="r")
    step = array.chunks[0]

    def both(start: int) -> float:
        rows = array[start : start + step]
        gaps = rows - rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
        return float(np.einsum("ij,ij->", gaps, gaps))

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(both, range(0, array.shape[0], step))) > 0


def _medians(programs: dict[str, Callable[[], Any]], options: Options) -> dict[str, float]:
    took: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        program()
    for name in turns(list(programs), options.repeats):
        time.sleep(REST)
        began = time.perf_counter()
        programs[name]()
        took[name].append(time.perf_counter() - began)
    return {name: statistics.median(runs) for name, runs in took.items()}


# -- quality ---------------------------------------------------------------------------------------


def _quality(options: Options) -> Table:
    from daskcluster import KMeans, StreamingKMeans
    from daskcluster.coresets.forgetting import Forgetting

    table = Table(
        "Mean squared distance of the rows still remembered, each with the weight it has left, over that "
        "of a full fit of them (the best of 3 starts)",
        ["clusters", "half-life", "seed", "stream / full fit", "target"],
    )
    n = 200_000
    for k in (10,) if options.quick else (10, 50, 200):
        for half_life in (None, 50_000):
            rows = clouds(1, n, k)
            forgetting = Forgetting.of(half_life, None)
            weights = forgetting.left(np.arange(n, dtype=float), now=float(n - 1))
            full = KMeans(k, n_init=3, init="k-means++", random_state=0)
            full.fit(rows, sample_weight=weights)
            for seed in range(2 if options.quick else 3):
                model = StreamingKMeans(k, half_life=half_life, random_state=seed).fit(rows)
                cost = -model.score(rows, sample_weight=weights)
                ratio = f"{cost / full.inertia_:.4f}"
                table.rows.append([k, half_life or "none", seed, ratio, "<= 1.05"])
    return table


# -- many small objects ----------------------------------------------------------------------------


def _small_objects(options: Options, folder: Path) -> Table:
    import zarr

    from daskcluster import LocalEngine, jobs

    count, feed = (50 if options.quick else OBJECTS), folder / "feed"
    for number in range(count):
        path = feed / f"{number:05d}.zarr"
        if not path.exists():
            zarr.create_array(
                str(path), data=clouds(number, OBJECT_ROWS), chunks=(OBJECT_ROWS, FEATURES)
            )
    table = Table(
        f"{count:,} objects of {OBJECT_ROWS:,} x {FEATURES} rows on disk, {options.threads} threads",
        ["", "seconds", "rows a second"],
    )
    engine = LocalEngine(options.threads)
    for name, more in (("folded", {}), ("folded and labelled", {"labels": str(folder / "labels")})):
        began = time.perf_counter()
        cycle = jobs.stream(
            str(feed), state=str(folder / name), n_clusters=CLUSTERS, engine=engine, **more
        )
        seconds = time.perf_counter() - began
        assert cycle.rows_seen == count * OBJECT_ROWS
        table.rows.append([name, seconds, f"{cycle.rows_seen / seconds:,.0f}"])
    began = time.perf_counter()
    jobs.stream(str(feed), state=str(folder / "folded"), n_clusters=CLUSTERS, engine=engine)
    table.rows.append(["a cycle that finds nothing new", time.perf_counter() - began, ""])
    return table


# -- the plot --------------------------------------------------------------------------------------


def walking(step: int, rows: int = 1_000) -> np.ndarray:
    """Return rows of three clouds on their way round a circle."""
    rng = np.random.default_rng(step)
    return middles(step)[rng.integers(0, 3, rows)] + rng.normal(size=(rows, 2))


def middles(step: int) -> np.ndarray:
    """Return where the three clouds are."""
    angles = 2 * np.pi * (np.arange(3) / 3 + step / 80)
    return 20 * np.column_stack([np.cos(angles), np.sin(angles)])


def _walk(options: Options) -> list[Any]:
    """Draw centres that follow a drifting mixture."""
    from daskcluster import StreamingKMeans

    if (missing := why_not(options.images)) is not None:
        return [missing]
    assert options.images is not None
    model = StreamingKMeans(3, half_life=2_000, coreset_size=100, random_state=0)
    track = [model.partial_fit(walking(step)).cluster_centers_ for step in range(40)]
    with canvas_of("stream", (4.2, 4.2)) as canvas:
        axes = canvas.subplots()
        for step in range(0, 40, 6):
            rows = walking(step, 60)
            axes.plot(rows[:, 0], rows[:, 1], ".", color="#cccccc", markersize=2)
        for number, colour in enumerate(("#0072b2", "#009e73", "#e69f00")):
            path = np.array([centres[number] for centres in track])
            axes.plot(path[:, 0], path[:, 1], "o-", color=colour, markersize=3, linewidth=1)
        axes.set_aspect("equal")
        canvas.savefig(options.images / "stream.svg", format="svg")
    return [Note("The walk of three centres is drawn in images/stream.svg.")]
