"""Nearest of many centres by the spectrum of the rows: what bounds leave, and when they pay."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.comparisons.wide import gain, race_searches
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.rows import pixels
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
N, D = 12_000, 768
SPECTRA = {
    "exponential": lambda i: np.exp(-i / 90) + 0.03,
    "power law": lambda i: (i + 1) ** -0.5,
    "flat": np.ones_like,
}
"""Standard deviations along the axes."""
CENTRES = (1_000, 4_096, 16_384)
MOST = 65_536
"""So many centres for the first spectrum alone."""
PIXELS = {
    "MNIST": ("mnist.npz", (70_000, 784)),
    "CIFAR-10": ("cifar10_test10k.npz", (10_000, 3_072)),
}
PIXEL_CENTRES = (1_000, 4_000)
FEW, PAYS = 0.1, 3.0
"""Where a search costs at most a tenth of all distances, it should be so many times as fast as Faiss."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each spectrum, kind of centres, and number of them."""
    n, d, numbers = (2_000, 128, (512,)) if settings.quick else (N, D, CENTRES)
    for spectrum in SPECTRA:
        more = (MOST,) if spectrum == "exponential" and not settings.quick else ()
        for are_rows in (True, False):
            for k in numbers + more:
                name = f"{spectrum}, {'rows' if are_rows else 'means'}, k={k:,}"
                shape = (spectrum, n, d, k)
                yield Cell(name, partial(measure, shape, settings, are_rows=are_rows))
    for images in () if settings.quick else PIXELS:
        for k in PIXEL_CENTRES:
            yield Cell(f"{images}, rows, k={k:,}", partial(measure_pixels, images, k, settings))


def problem(
    spectrum: str, n: int, d: int, k: int, *, are_rows: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with a spectrum along random axes, and centres: other such rows, or their means."""
    rng = np.random.default_rng(0)
    scale = SPECTRA[spectrum](np.arange(d, dtype=np.float64)).astype(np.float32)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    centres = rng.standard_normal((k, d), dtype=np.float32) * scale
    rows = rng.standard_normal((n, d), dtype=np.float32) * scale
    if not are_rows:
        rows = centres[rng.integers(0, k, n)] + np.float32(0.6) * rows
    return rows @ turn, centres @ turn


def measure(shape: tuple[str, int, int, int], settings: Settings, *, are_rows: bool) -> Figures:
    """Time the searches for one spectrum."""
    return race_searches(*problem(*shape, are_rows=are_rows), settings)


def measure_pixels(images: str, k: int, settings: Settings) -> Figures:
    """Time the searches for rows of pixels, with other rows as centres."""
    rows, source = pixels(settings.data, *PIXELS[images])
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    return race_searches(rows[k : k + N], rows[:k], settings) | {"source": source}


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    table = Table(
        f"Seconds to find the nearest centre of float32 rows, {settings.threads} threads, by spectrum",
        ["spectrum, centres", "n", "d", "as in a pass", "and finding the search", "tile", "Faiss flat",
         "tile / ours", "Faiss / ours", "Faiss / tile", "expected cost"],
    )  # fmt: skip
    for name, one in records.items():
        flat: Any = one.get("faiss")
        table.rows.append([
            name, one["n"], one["d"], one["bounds"], one["finding"], one["tile"], flat,
            gain(one), gain(one, "faiss"), None if flat is None else flat / one["tile"],
            f"{one['share']:.0%}",
        ])  # fmt: skip
    sources = (one.get("source", "") for one in records.values())
    table.notes += sorted({f"Pixels are {each}." for each in sources if "generated" in each})
    table.notes.append(
        "The expected cost is that of the search that a sample of the rows chose, as a share of comparing "
        "all centres; it follows from the spectrum and from how far the nearest centre is. A model keeps "
        "its search, and a fit finds one for passes 1, 2, 4, ...; where too few rows follow to repay the "
        "sample, all centres are compared."
    )
    return [table]


def _read_least(records: Records) -> Reading | None:
    found = [value for one in records.values() if (value := gain(one, "faiss")) is not None]
    return Reading(f"{min(found):.2f}", min(found) >= 1.0) if found else None


def _read_few(records: Records) -> Reading | None:
    few = [gain(one, "faiss") for one in records.values() if one["share"] <= FEW]
    found = [value for value in few if value is not None]
    return Reading(f"{min(found):.2f}", min(found) >= PAYS) if found else None


TARGETS: tuple[Target, ...] = (
    Target(
        "spectra", "Nearest centres of any spectrum: least speed-up over Faiss", ">= 1", _read_least
    ),
    Target(
        "spectra-few",
        "The same where at most a tenth of the cost is left",
        f">= {PAYS:g}",
        _read_few,
    ),
)
