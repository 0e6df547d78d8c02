"""Nearest of many centres of wide rows: the search by bounds against our tile and Faiss's flat search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from tests.benchmarks.comparisons.assign import REST, SAME_LABELS, faiss_search, in_parts, ours
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.machine import version_of
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.race import race
from tests.benchmarks.harness.rows import mnist
from tests.benchmarks.harness.settings import Settings

SCRATCH: tuple[str, ...] = ()
SHAPES = {
    "MNIST, k=1,000": ("mnist", 60_000, 784, 1_000),
    "MNIST, k=4,000": ("mnist", 60_000, 784, 4_000),
    "embeddings, k=4,096": ("embeddings", 50_000, 768, 4_096),
    "embeddings, k=16,384": ("embeddings", 50_000, 768, 16_384),
    "embeddings, near-duplicates, k=16,384": ("duplicates", 50_000, 768, 16_384),
    "embeddings, k=65,536": ("embeddings", 40_000, 768, 65_536),
    "embeddings, rows as centres, k=16,384": ("rows", 50_000, 768, 16_384),
    "noise, k=4,096": ("noise", 50_000, 768, 4_096),
    "noise, k=1,000": ("noise", 100_000, 128, 1_000),
}
"""What the rows are, n, d and k."""
QUICK = {
    "embeddings, k=2,048": ("embeddings", 4_000, 384, 2_048),
    "noise, k=1,000": ("noise", 4_000, 128, 1_000),
}

MNIST_TARGET, FAISS_TARGET, MANY_TARGET, MOST_TARGET, NOISE_TARGET = 6.0, 8.0, 4.0, 6.0, 0.97


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each shape."""
    for name, shape in (QUICK if settings.quick else SHAPES).items():
        yield Cell(name, partial(measure, shape, settings))


def problem(kind: str, n: int, d: int, k: int, settings: Settings) -> tuple[np.ndarray, ...]:
    """Return rows and centres.

    Embeddings are unit rows around anisotropic clusters whose spectrum decays; the centres are the means of
    the clusters, or rows. Of duplicates, a tenth of the rows are almost others. Centres of MNIST come from
    two iterations of k-means.
    """
    rng = np.random.default_rng(0)
    if kind == "mnist":
        from daskcluster import KMeans

        rows, _ = mnist(settings.data, n)
        start = rows[rng.choice(len(rows), k, replace=False)]
        return rows, KMeans(k, init=start, max_iter=2).fit(rows).cluster_centers_
    if kind == "noise":
        return tuple(rng.standard_normal((size, d), dtype=np.float32) for size in (n, k))
    scale = (np.arange(1, d + 1) ** -0.5).astype(np.float32)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    means = rng.standard_normal((k, d), dtype=np.float32) * scale
    rows = means[rng.integers(0, k, n)]
    rows += 0.6 * rng.standard_normal((n, d), dtype=np.float32) * scale
    rows, means = (_unit(points @ turn) for points in (rows, means))
    if kind == "duplicates":
        copies = rng.choice(n, n // 10, replace=False)
        noise = rng.standard_normal((len(copies), d), dtype=np.float32)
        rows[copies] = _unit(rows[rng.integers(0, n, len(copies))] + 1e-3 * noise)
    return rows, rows[rng.choice(n, k, replace=False)] if kind == "rows" else means


def _unit(points: np.ndarray) -> np.ndarray:
    return points / np.sqrt((points * points).sum(axis=1, keepdims=True))


def by_bounds(
    rows: np.ndarray, centres: np.ndarray, pool: ThreadPoolExecutor, threads: int
) -> Callable[[], np.ndarray]:
    """Return the search that a pass makes: prepare the centres, then label equal parts of the rows."""
    from daskcluster.chunkwise.centres import PreparedCentres

    return in_parts(rows, lambda: PreparedCentres(centres).nearest, pool, threads)


def measure(shape: tuple[str, int, int, int], settings: Settings) -> Figures:
    """Time the programs on one shape, and compare their labels."""
    from daskcluster.chunkwise.pruned import cost_share

    rows, centres = problem(*shape, settings)
    rows, centres = np.ascontiguousarray(rows), np.ascontiguousarray(centres, np.float32)
    with ThreadPoolExecutor(settings.threads) as pool:
        programs = {
            "bounds": by_bounds(rows, centres, pool, settings.threads),
            "tile": ours(rows, centres, pool, settings.threads),
        }
        if version_of("faiss-cpu") is not None:
            programs["faiss"] = faiss_search(rows, centres, settings.threads)
        found = race(programs, settings.repeats, pause=REST)
    assert np.array_equal(found["bounds"].value, found["tile"].value)
    figures: Figures = {"n": len(rows), "d": rows.shape[1], "k": len(centres)}
    figures |= {name: one.median for name, one in found.items()}
    figures["share"] = cost_share(centres, rows)
    if "faiss" in found:
        figures["agree"] = float((found["faiss"].value == found["bounds"].value).mean())
    return figures


def gain(one: Figures, peer: str = "tile") -> float | None:
    """Return the seconds of a peer over ours; None if it is missing or found other centres."""
    if peer not in one or (peer == "faiss" and one["agree"] < SAME_LABELS):
        return None
    return float(one[peer] / one["bounds"])


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    table = Table(
        f"Seconds to find the nearest centre of float32 rows, {settings.threads} threads",
        ["rows", "n", "d", "k", "as in a pass", "tile", "Faiss flat", "tile / ours", "Faiss / ours",
         "expected cost", "same label as Faiss"],
    )  # fmt: skip
    for name, one in records.items():
        agree = one.get("agree")
        table.rows.append([
            name, one["n"], one["d"], one["k"], one["bounds"], one["tile"], one.get("faiss"),
            gain(one), gain(one, "faiss"), f"{one['share']:.0%}",
            None if agree is None else f"{agree:.4%}",
        ])  # fmt: skip
    table.notes.append(
        "All labels equal those of the tile. Ours includes finding the axes, the sample of rows that "
        "shows whether bounds pay, and packing. The expected cost is by the counts of that sample, as a "
        "share of the tile's; 100% means that all centres are searched."
    )
    return [table]


def _read(name: str, target: float, records: Records, peer: str = "tile") -> Reading | None:
    found = gain(records[name], peer) if name in records else None
    return None if found is None else Reading(f"{found:.2f}", found >= target)


TARGETS: tuple[Target, ...] = tuple(
    Target(
        f"wide-{key}", f"Nearest of many centres, {name}: speed-up over {said}", f">= {target:g}",
        partial(_read, name, target, peer=peer),
    )
    for key, name, said, target, peer in (
        ("mnist", "MNIST, k=4,000", "our tile", MNIST_TARGET, "tile"),
        ("mnist-faiss", "MNIST, k=4,000", "Faiss's flat search", FAISS_TARGET, "faiss"),
        ("many", "embeddings, k=16,384", "our tile", MANY_TARGET, "tile"),
        ("most", "embeddings, k=65,536", "our tile", MOST_TARGET, "tile"),
        ("noise", "noise, k=4,096", "our tile", NOISE_TARGET, "tile"),
    )
)  # fmt: skip
