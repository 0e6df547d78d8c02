"""Time and memory per row of a stream, by the number of rows before it, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.plots import canvas_of, legend, save, why_not
from tests.benchmarks.harness.settings import Settings

FEATURES, CLUSTERS = 16, 50
PORTION = 100_000
STOPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Numbers of portions after which figures are taken: 10^5 to 5 x 10^7 rows."""
QUICK_STOPS = STOPS[:3]
HALF_LIFE = 1_000_000
COLOURS = {"remembers all": "#0072b2", "half-life of 1,000,000 rows": "#e69f00"}


@dataclass(frozen=True)
class Growth:
    """Figures of one stream at several times.

    Attributes
    ----------
    rows : list of int
        Rows so far.
    micro : list of float
        Microseconds per row since the previous time.
    megabytes : list of float
        Peak memory so far, above the peak of the first portion.
    summary : list of int
        Rows of the summary.
    """

    rows: list[int]
    micro: list[float]
    megabytes: list[float]
    summary: list[int]


def growth(settings: Settings, files: RunFiles[Growth]) -> list[Any]:
    """Return a table and a plot."""
    found = dict(
        zip(
            COLOURS,
            (_grown(settings, files, half_life) for half_life in (None, HALF_LIFE)),
            strict=True,
        )
    )
    table = Table(
        f"Time and memory: {FEATURES} features, {CLUSTERS} clusters, portions of {PORTION:,} rows, "
        f"{settings.threads} threads; time per row since the line above, peak memory above the first "
        "portion",
        [
            "rows",
            *(
                f"{what}, {name}"
                for name in COLOURS
                for what in ("us per row", "MB more", "rows of the summary")
            ),
        ],
    )
    for number, n_rows in enumerate(found["remembers all"].rows):
        cells = [
            (f"{one.micro[number]:.3f}", f"{one.megabytes[number]:.0f}", f"{one.summary[number]:,}")
            for one in found.values()
        ]
        table.rows.append([f"{n_rows:,}", *(cell for three in cells for cell in three)])
    return [table, _plot(found, settings)]


def _grown(settings: Settings, files: RunFiles[Growth], half_life: int | None) -> Growth:
    stops = QUICK_STOPS if settings.quick else STOPS

    def run() -> Growth:
        call = f"grow({stops}, {half_life}, {settings.threads})"
        code = f"from tests.benchmarks.stream_growth import grow; {call}"
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
        )
        return Growth(**json.loads(done.stdout))

    return files.get(f"{stops[-1] * PORTION} rows, half-life {half_life}", run)


def clouds(seed: int, n_rows: int, k: int = CLUSTERS, d: int = FEATURES) -> np.ndarray:
    """Return rows of k clouds that are the same for every seed."""
    rng = np.random.default_rng(seed)
    return middles(k, d)[rng.integers(0, k, n_rows)] + rng.standard_normal((n_rows, d), np.float32)


def middles(k: int = CLUSTERS, d: int = FEATURES) -> np.ndarray:
    """Return where those clouds are."""
    return 3.0 * np.random.default_rng(12345).standard_normal((k, d)).astype(np.float32)


def grow(stops: Sequence[int], half_life: int | None, threads: int) -> None:
    """Fold portions in, and print what it took at each of `stops`; a process of its own."""
    import psutil

    from daskcluster import LocalEngine, StreamingKMeans

    def fresh() -> StreamingKMeans:
        engine = LocalEngine(threads)
        return StreamingKMeans(CLUSTERS, half_life=half_life, random_state=0, engine=engine)

    portions, process = [clouds(seed, PORTION) for seed in range(4)], psutil.Process()
    warm, model = fresh(), fresh()
    for portion in portions:
        warm.partial_fit(portion)
    assert warm.cluster_centers_ is not None
    found, base, most, done, took = Growth([], [], [], []), 0, 0, 0, 0.0
    for number in range(stops[-1]):
        began = time.perf_counter()
        model.partial_fit(portions[number % 4])
        took += time.perf_counter() - began
        most = max(most, process.memory_info().rss)
        base = base or most
        if number + 1 in stops:
            rows = (number + 1) * PORTION
            found.rows.append(rows)
            found.micro.append(1e6 * took / (rows - done))
            found.megabytes.append((most - base) / 1e6)
            found.summary.append(model.coreset_.n_rows)
            done, took = rows, 0.0
    print(json.dumps(vars(found)))


def _plot(found: dict[str, Growth], settings: Settings) -> Figure | Note:
    if (missing := why_not(settings.images)) is not None:
        return missing
    assert settings.images is not None
    with canvas_of("stream_cost", (4.6, 2.3)) as canvas:
        grid = canvas.subplots(1, 2, squeeze=False)
        for axes, (what, values) in zip(
            grid[0],
            {"microseconds a row": "micro", "MB above the first portion": "megabytes"}.items(),
            strict=True,
        ):
            for name, one in found.items():
                axes.plot(one.rows, getattr(one, values), "o-", label=name, color=COLOURS[name],
                          markersize=2.5, linewidth=1)  # fmt: skip
            axes.set_xscale("log")
            axes.set_ylim(bottom=0)
            axes.set_xlabel("rows so far")
            axes.set_title(what, fontsize=8)
            axes.grid(linewidth=0.3, color="#dddddd")
        legend(canvas, grid)
        text = "Time and memory of a row of a stream, by the number of rows before it"
        return save(canvas, settings.images / "stream_cost.svg", text)
