"""Fits of ten Lloyd iterations on arrays in memory, ours and those of every peer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.benchmarks.harness.bars import Bars, draw_bars
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target, at_least
from tests.benchmarks.harness.fma_peak import fma_peak
from tests.benchmarks.harness.parts import Part, Table, ratio
from tests.benchmarks.harness.peers import OURS, PEERS, ours, present
from tests.benchmarks.harness.quality import fair
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.rows import MNIST, mixture, mnist
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
ITERATIONS = 10
SHAPES = ((100_000, 128, 1000), (400_000, 32, 100), (1_000_000, 16, 50), (60_000, 784, 50))
QUICK = tuple((n // 10, d, max(10, k // 10)) for n, d, k in SHAPES)
TARGET = 2.0


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each shape."""
    for shape in QUICK if settings.quick else SHAPES:
        yield Cell(name_of(shape), partial(measure, shape, settings))


def name_of(shape: tuple[int, int, int]) -> str:
    """Return the name of a shape, as in tables.

    Examples
    --------
    >>> name_of((100_000, 128, 1000))
    '100,000, 128, 1,000'
    """
    return ", ".join(f"{size:,}" for size in shape)


def measure(shape: tuple[int, int, int], settings: Settings) -> Figures:
    """Return the seconds per iteration of every program, and the programs with comparable results."""
    from daskcluster import quantization_error

    n, d, k = shape
    rows, source = _rows(shape, settings)
    peers, notes = present(settings.peers)
    centres = rows[:k].copy()
    outcomes = race(
        {
            name: partial(fit, rows, centres.copy(), ITERATIONS, settings.threads)
            for name, fit in {OURS: ours, **peers}.items()
        },
        settings.repeats,
    )
    costs = {
        name: quantization_error(rows, np.ascontiguousarray(outcome.value[0], np.float32))
        for name, outcome in outcomes.items()
    }
    mine = costs.pop(OURS)
    comparable, remarks = fair(mine, costs)
    return {
        "source": source,
        "flop": 2.0 * n * d * k,
        "peak": fma_peak(np.float32, settings.threads),
        "seconds": {name: found.median / found.value[1] for name, found in outcomes.items()},
        "comparable": comparable,
        "largest_gap": max((abs(cost / mine - 1) for cost in costs.values()), default=0.0),
        "notes": [*notes, *remarks],
    }


def _rows(shape: tuple[int, int, int], settings: Settings) -> tuple[np.ndarray, str]:
    n, d, k = shape
    if d == 784:
        rows, source = mnist(settings.data)
        return np.ascontiguousarray(rows[:n]), source
    return mixture(n, d, k), "mixture"


def best_ratio(figures: Figures) -> float | None:
    """Return the seconds of the fastest peer with a comparable result, over ours."""
    seconds = figures["seconds"]
    peers = [seconds[name] for name in figures["comparable"]]
    return min(peers) / seconds[OURS] if peers else None


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table and the plot."""
    known = {name: None for one in records.values() for name in one["seconds"] if name != OURS}
    peers = [name for name in PEERS if name in known] + [
        name for name in known if name not in PEERS
    ]
    table = Table(
        f"Seconds per Lloyd iteration, {settings.threads} threads, float32 (median of "
        f"{settings.repeats} fits of {ITERATIONS} iterations from the same centres, tol=0)",
        ["n, d, k", "data", OURS, *peers, "best peer / ours", "target", "GFLOP/s", "of peak"],
        shown=True,
    )
    for name, one in records.items():
        seconds, mine = one["seconds"], one["seconds"][OURS]
        found = best_ratio(one)
        table.rows.append([
            name, one["source"], mine, *(seconds.get(peer) for peer in peers),
            ratio(found, 1.0), f">= {TARGET:g}", one["flop"] / mine / 1e9,
            f"{one['flop'] / mine / one['peak']:.0%}",
        ])  # fmt: skip
    table.notes += dict.fromkeys(note for one in records.values() for note in one["notes"])
    peaks = [one["peak"] / 1e9 for one in records.values()]
    table.notes += [
        f"FMA peak measured in this run: {min(peaks):.0f} to {max(peaks):.0f} GFLOP/s.",
        "After the same number of updates, the inertia of a peer differs from ours by a relative "
        f"{max(one['largest_gap'] for one in records.values()):.1e} at most.",
    ]
    bars = Bars("time of a peer / ours", {name: _bars(one) for name, one in records.items()})
    text = "Time of a Lloyd iteration of each peer, relative to ours; the line is the target"
    return [table, draw_bars("bench-lloyd.svg", text, bars, settings.images, line=TARGET)]


def _bars(one: Figures) -> dict[str, float]:
    mine = one["seconds"][OURS]
    return {name: one["seconds"][name] / mine for name in one["comparable"]}


def _read(shape: tuple[int, int, int], records: Records) -> Reading | None:
    one = records.get(name_of(shape))
    if one is None or (shape[1] == 784 and one["source"] != MNIST):
        return None
    found = best_ratio(one)
    return None if found is None else at_least(found, TARGET)


TARGETS: tuple[Target, ...] = tuple(
    Target(
        f"lloyd-{n}-{d}-{k}",
        f"Lloyd iteration, n, d, k = {name_of((n, d, k))}: speed-up over the fastest peer",
        f">= {TARGET:g}",
        partial(_read, (n, d, k)),
    )
    for n, d, k in SHAPES
)
