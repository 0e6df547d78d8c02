"""Streams: time and memory per row, throughput, quality, and many small objects.

Finished parts are saved in --scratch, so an interrupted run resumes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.energy_runs import Kept, RunFiles
from tests.benchmarks.harness.parts import Note, Table
from tests.benchmarks.harness.plots import canvas_of, why_not
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.stream_growth import CLUSTERS, FEATURES, Growth, clouds, growth, middles

ABOUT = "`StreamingKMeans`: time and memory per row, throughput, quality, and many small objects"
TAKES = (
    "about 5 minutes on 2 cores, 1.5 GB of disk and 1 GB of memory (--quick: a minute); finished "
    "parts are saved in --scratch DIR, so an interrupted run resumes, and removed at the end unless --keep"
)

SEEDS = 6
THROUGHPUT_ROWS = 8 * 10**6, 10**6
OBJECTS, OBJECT_ROWS = (1000, 50), 10_000
"""Objects of a full run and of a quick one; rows of an object."""
QUALITY_ROWS, QUALITY_HALF_LIFE = 200_000, 50_000


@dataclass(frozen=True)
class Figures:
    """Seconds or ratios by name."""

    values: dict[str, float]


def run(settings: Settings) -> list[Any]:
    """Return the tables of growth, throughput, quality and small objects."""
    folder = settings.folder(f"daskcluster-stream{'-quick' if settings.quick else ''}")
    figures = _files(folder, settings, Figures)
    found = [
        *growth(settings, _files(folder, settings, Growth)),
        _throughput(settings, folder, figures),
        _quality(settings, figures),
        _small_objects(settings, folder, figures),
        *_walk(settings),
    ]
    if not settings.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _files(folder: Path, settings: Settings, kind: Callable[..., Kept]) -> RunFiles[Kept]:
    return RunFiles(
        folder / "runs", {"threads": settings.threads, "repeats": settings.repeats}, kind
    )


# -- throughput ------------------------------------------------------------------------------------


def _throughput(settings: Settings, folder: Path, files: RunFiles[Figures]) -> Table:
    n = THROUGHPUT_ROWS[settings.quick]
    found = files.get(f"throughput of {n} rows", partial(_raced, settings, folder, n)).values
    table = Table(
        f"Throughput: {n:,} x {FEATURES} from Zarr on disk, {settings.threads} threads, seconds, medians "
        f"of {settings.repeats}",
        ["read once, with both sums of a coreset", "stream, with centres", "throughput", "target"],
    )
    share = found["sums"] / found["stream"]
    table.rows.append([found["sums"], found["stream"], f"{share:.0%}", ">= 50 %"])
    return table


def _raced(settings: Settings, folder: Path, n_rows: int) -> Figures:
    from daskcluster import LocalEngine, StreamingKMeans
    from daskcluster.data.generate import generate

    path = folder / f"{n_rows}.zarr"
    path.parent.mkdir(parents=True, exist_ok=True)
    generate(
        str(path),
        n_rows=n_rows,
        n_features=FEATURES,
        n_clusters=CLUSTERS,
        spread=2.0,
        overwrite=True,
    )
    engine = LocalEngine(settings.threads)
    programs: dict[str, Callable[[], Any]] = {
        "sums": lambda: read_with_sums(path, settings.threads),
        "stream": lambda: StreamingKMeans(CLUSTERS, random_state=0, engine=engine).fit(str(path)),
    }
    raced = race(programs, settings.repeats)
    return Figures({name: outcome.median for name, outcome in raced.items()})


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


# -- quality ---------------------------------------------------------------------------------------


def _quality(settings: Settings, files: RunFiles[Figures]) -> Table:
    seeds = 2 if settings.quick else settings.seeds
    table = Table(
        "Quality: cost of the remembered rows by their remaining weights, over the cost of a full fit of "
        f"them (best of 3 starts), {QUALITY_ROWS:,} x {FEATURES}",
        [
            "clusters",
            "half-life",
            f"stream, seeds 0 to {seeds - 1}",
            "target",
            "Lloyd from the true centres",
        ],
    )
    for k in (10,) if settings.quick else (10, 50, 200):
        for half_life in (None, QUALITY_HALF_LIFE):
            name = f"quality, {k} clusters, half-life {half_life}, {seeds} seeds"
            found = files.get(name, partial(_ratios, k, half_life, seeds)).values
            truth = f"{found.pop('truth'):.4f}"
            ratios = ", ".join(f"{ratio:.4f}" for ratio in found.values())
            table.rows.append([k, half_life or "none", ratios, "<= 1.05", truth])
    return table


def _ratios(k: int, half_life: int | None, seeds: int) -> Figures:
    from daskcluster import KMeans, StreamingKMeans
    from daskcluster.methods.streaming.tree import Forgetting

    rows, ages = clouds(1, QUALITY_ROWS, k), np.arange(QUALITY_ROWS, dtype=float)
    weights = Forgetting.of(half_life, None).left(ages, now=ages[-1])
    full = KMeans(k, n_init=3, init="k-means++", random_state=0)
    full.fit(rows, sample_weight=weights)
    truth = KMeans(k, init=middles(k)).fit(rows, sample_weight=weights)
    found = {"truth": truth.inertia_ / full.inertia_}
    for seed in range(seeds):
        model = StreamingKMeans(k, half_life=half_life, random_state=seed).fit(rows)
        found[str(seed)] = -model.score(rows, sample_weight=weights) / full.inertia_
    return Figures(found)


# -- many small objects ----------------------------------------------------------------------------


def _small_objects(settings: Settings, folder: Path, files: RunFiles[Figures]) -> Table:
    count = OBJECTS[settings.quick]
    found = files.get(f"{count} objects", partial(_looped, settings, folder, count)).values
    table = Table(
        f"Small objects: {count:,} of {OBJECT_ROWS:,} x {FEATURES} rows on disk, {settings.threads} "
        "threads",
        ["work", "seconds", "rows per second"],
    )
    for name, seconds in found.items():
        rate = f"{count * OBJECT_ROWS / seconds:,.0f}" if name.startswith("update") else ""
        table.rows.append([name, seconds, rate])
    return table


def _looped(settings: Settings, folder: Path, count: int) -> Figures:
    import zarr

    from daskcluster import LocalEngine, jobs

    feed, engine, found = folder / "feed", LocalEngine(settings.threads), dict[str, float]()
    for number in range(count):
        zarr.create_array(
            str(feed / f"{number:05d}.zarr"),
            data=clouds(number, OBJECT_ROWS),
            chunks=(OBJECT_ROWS, FEATURES),
            overwrite=True,
        )

    def timed(name: str, state: str, **more: Any) -> None:
        began = time.perf_counter()
        cycle = jobs.stream(
            str(feed), state=str(folder / state), n_clusters=CLUSTERS, engine=engine, **more
        )
        found[name] = time.perf_counter() - began
        assert cycle.rows_seen == count * OBJECT_ROWS

    for state in ("state", "labelled", "labels"):
        shutil.rmtree(folder / state, ignore_errors=True)
    timed("update the model", "state")
    timed("update the model and label the rows", "labelled", labels=str(folder / "labels"))
    timed("a cycle without new objects", "state")
    return Figures(found)


# -- a walk ---------------------------------------------------------------------------------------


def walking(step: int, rows: int = 1_000) -> np.ndarray:
    """Return rows of three clusters that move on a circle."""
    rng = np.random.default_rng(step)
    return corners(step)[rng.integers(0, 3, rows)] + rng.normal(size=(rows, 2))


def corners(step: int) -> np.ndarray:
    """Return the centres of the three clusters."""
    angles = 2 * np.pi * (np.arange(3) / 3 + step / 80)
    return 20 * np.column_stack([np.cos(angles), np.sin(angles)])


def _walk(settings: Settings) -> list[Any]:
    """Draw centres that follow a drifting mixture."""
    from daskcluster import StreamingKMeans

    if (missing := why_not(settings.images)) is not None:
        return [missing]
    assert settings.images is not None
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
        canvas.savefig(settings.images / "stream.svg", format="svg")
    return [Note("The paths of three centres are drawn in images/stream.svg.")]
