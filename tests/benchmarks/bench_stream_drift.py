"""A drifting mixture, followed by the streaming job that forgets old rows, and by one that does not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.plots import canvas_of, save, why_not
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings

ABOUT = (
    "streams on a mixture that drifts and jumps: one that forgets old rows, and one that does not"
)
TAKES = "about a minute on 2 cores (--quick: a quarter of it)"

CLOUDS, FEATURES, OBJECT_ROWS = 5, 2, 2_000
OBJECTS, QUICK_OBJECTS = 120, 40
HALF_LIFE = 2_000
JUMP_AT = 0.7
"""Share of the stream after which the last cluster vanishes and another one appears elsewhere."""

FOLLOWERS: Mapping[str, dict[str, Any]] = {
    "half-life": {"half_life": HALF_LIFE, "coreset_size": 200},
    "nothing forgotten": {"coreset_size": 200},
}
COLOURS = dict(zip(FOLLOWERS, ("#0072b2", "#999999"), strict=True))


def run(settings: Settings) -> list[Any]:
    """Return the table of errors, and the plot."""
    folder = settings.folder("daskcluster-stream-drift")
    n_objects = QUICK_OBJECTS if settings.quick else OBJECTS
    try:
        found = {}
        for name, parameters in FOLLOWERS.items():
            say(f"  {name}")
            found[name] = follow(folder / name, n_objects, parameters)
        return [_table(found, n_objects), _plot(found, n_objects, settings)]
    finally:
        if not settings.keep:
            shutil.rmtree(folder, ignore_errors=True)


# -- the stream ----------------------------------------------------------------------------------------


def middles(at: float) -> np.ndarray:
    """Return the cluster centres after the share `at` of the stream, (k, d)."""
    angles = 2 * np.pi * (np.arange(CLOUDS - 1) / (CLOUDS - 1) + 0.4 * at)
    ring = 20 * np.column_stack([np.cos(angles), np.sin(angles)])
    return np.vstack([ring, [[0.0, 0.0]] if at < JUMP_AT else [[40.0, 0.0]]])


def rows_at(number: int, n_objects: int) -> np.ndarray:
    """Return the rows of one object."""
    rng = np.random.default_rng(number)
    centres = middles(number / n_objects)
    rows = centres[rng.integers(0, CLOUDS, OBJECT_ROWS)] + rng.normal(size=(OBJECT_ROWS, FEATURES))
    return rows.astype(np.float32)


def follow(
    folder: Path, n_objects: int, parameters: Mapping[str, Any], stop: int | None = None
) -> dict[str, Any]:
    """Run a cycle after each object, or after the first `stop`; return centres, excess errors and drifts.

    The excess error of an object is the cost of its rows to the centres after its cycle, over the cost to
    the true centres, minus 1.
    """
    import zarr

    import daskcluster as dc
    from daskcluster import jobs

    loop = jobs.open_stream(
        str(folder / "feed"), state=str(folder / "state"), n_clusters=CLOUDS, **parameters
    )
    found: dict[str, Any] = {"centres": [], "excess": [], "drifts": []}
    for number in range(n_objects if stop is None else stop):
        rows = rows_at(number, n_objects)
        zarr.create_array(str(folder / "feed" / f"{number:04d}.zarr"), data=rows)
        cycle = loop.cycle()
        model = dc.load_model(str(cycle.model))
        centres = model.cluster_centers_
        true = dc.quantization_error(rows, middles(number / n_objects).astype(np.float32))
        found["excess"].append(dc.quantization_error(rows, centres) / true - 1.0)
        found["centres"].append(centres)
        found["drifts"] += [number] * bool(cycle.drifts)
    return found


# -- what is shown -----------------------------------------------------------------------------------


def _table(found: Mapping[str, dict[str, Any]], n_objects: int) -> Table:
    jump = round(JUMP_AT * n_objects)
    table = Table(
        f"Excess error: {n_objects} objects of {OBJECT_ROWS:,} x {FEATURES} rows from {CLOUDS} clusters, "
        f"half-life {HALF_LIFE:,} rows",
        ["stream", "before the jump", "over the last eighth", "drift reported at object"],
    )
    for name, each in found.items():
        excess = each["excess"]
        before, after = np.mean(excess[jump // 2 : jump]), np.mean(excess[-n_objects // 8 :])
        message = ", ".join(map(str, each["drifts"])) or "-"
        table.rows.append([name, f"{before:.0%}", f"{after:.0%}", message])
    table.notes += [
        f"Four clusters move 0.4 of the way around a circle; the fifth jumps at object {jump}. A "
        "cycle runs "
        "after each object.",
        "Excess error: mean squared distance of the rows of an object to the centres after its cycle, "
        "relative to that to the true centres, minus 1.",
    ]
    return table


def _plot(found: Mapping[str, dict[str, Any]], n_objects: int, settings: Settings) -> Any:
    if (missing := why_not(settings.images)) is not None:
        return missing
    assert settings.images is not None
    with canvas_of("stream-drift", (7.6, 3.4)) as canvas:
        plane, curve = canvas.subplots(1, 2)
        path = np.array([middles(number / n_objects) for number in range(n_objects)])
        for cloud in range(CLOUDS):
            plane.plot(path[:, cloud, 0], path[:, cloud, 1], ":", color="black", linewidth=1)
        for name, each in found.items():
            track = np.array(each["centres"])[::4].reshape(-1, FEATURES)
            plane.plot(*track.T, ".", color=COLOURS[name], markersize=3)
            curve.plot(
                np.maximum(each["excess"], 1e-3), color=COLOURS[name], linewidth=1, label=name
            )
        plane.set_aspect("equal")
        plane.set_title("centres and true paths", fontsize=8)
        curve.set(yscale="log", xlabel="object")
        curve.set_title("excess error of the object just seen", fontsize=8)
        curve.legend(fontsize=6, frameon=False)
        text = "Centres of a stream that follow five clusters, and their errors"
        return save(canvas, settings.images / "stream-drift.svg", text)
