"""Nearest of many centres of wide rows: the search by bounds against our tile and Faiss's flat search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.comparisons.assign import REST, SAME_LABELS, faiss_search, in_parts, ours
from tests.benchmarks.harness import peers
from tests.benchmarks.harness.cells import Cell, Figures, Reading, Records, Target
from tests.benchmarks.harness.machine import version_of
from tests.benchmarks.harness.memory import added_bytes
from tests.benchmarks.harness.parts import Part, Table
from tests.benchmarks.harness.peers import Contestant
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

FITS = {"whole fit, embeddings, k=4,096": (200_000, 768, 4_096, 20)}
QUICK_FITS = {"whole fit, embeddings, k=1,024": (4_000, 384, 1_024, 3)}
"""n, d, k and iterations."""

MNIST_TARGET, FAISS_TARGET, MANY_TARGET, MOST_TARGET, NOISE_TARGET = 6.0, 8.0, 4.0, 6.0, 0.97
FIT_TARGET, PRUNING_TARGET = 4.0, 1.5
SAME_START, OTHER_START = 1.0 - 1e-4, 0.99
"""How much lower the inertia of a peer may be, as a share of ours, for its time to count."""
SAID = {"ours": peers.OURS, "faiss": "Faiss's Kmeans"}
PRUNING = {"Faiss's SuperKMeans": "faiss-cpu", "superkmeans": "superkmeans"}
"""Peers that rule centres out, and choose the first ones themselves: their local minima differ."""


def cells(settings: Settings) -> Iterator[Cell]:
    """Yield a cell for each shape, and for each fit."""
    for name, shape in (QUICK if settings.quick else SHAPES).items():
        yield Cell(name, partial(measure, shape, settings))
    for name, fit in (QUICK_FITS if settings.quick else FITS).items():
        yield Cell(name, partial(measure_fit, fit, settings))


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
    rows: np.ndarray,
    centres: np.ndarray,
    pool: ThreadPoolExecutor,
    threads: int,
    search: Any = None,
) -> Callable[[], np.ndarray]:
    """Return the search that a pass makes: prepare the centres, then label equal parts of the rows.

    Without a `FixedSearch`, the rows show what suits them.
    """
    from daskcluster.chunkwise.centres import PreparedCentres

    return in_parts(rows, lambda: PreparedCentres(centres, search=search).nearest, pool, threads)


def measure(shape: tuple[str, int, int, int], settings: Settings) -> Figures:
    """Time the programs on one shape, and compare their labels."""
    return race_searches(*problem(*shape, settings), settings)


def race_searches(rows: np.ndarray, centres: np.ndarray, settings: Settings) -> Figures:
    """Time the searches for the nearest centres of rows, and compare their labels."""
    from daskcluster.chunkwise.pruned import fixed_search

    rows, centres = np.ascontiguousarray(rows), np.ascontiguousarray(centres, np.float32)
    search = fixed_search(centres, rows)
    with ThreadPoolExecutor(settings.threads) as pool:
        programs = {
            "bounds": by_bounds(rows, centres, pool, settings.threads, search),
            "finding": by_bounds(rows, centres, pool, settings.threads),
            "tile": ours(rows, centres, pool, settings.threads),
        }
        if version_of("faiss-cpu") is not None:
            programs["faiss"] = faiss_search(rows, centres, settings.threads)
        found = race(programs, settings.repeats, pause=REST)
        grown = {f"{name} bytes": added_bytes(run) for name, run in programs.items()}
    for name in ("bounds", "finding"):
        assert np.array_equal(found[name].value, found["tile"].value)
    figures: Figures = {"n": len(rows), "d": rows.shape[1], "k": len(centres)}
    figures |= {name: one.median for name, one in found.items()}
    figures |= grown
    figures["share"] = 1.0 if search is None else search.share
    if "faiss" in found:
        figures["agree"] = float((found["faiss"].value == found["bounds"].value).mean())
    return figures


def measure_fit(shape: tuple[int, int, int, int], settings: Settings) -> Figures:
    """Time one fit of each program from the same rows as centres, on all rows."""
    from daskcluster import quantization_error

    n, d, k, iterations = shape
    rows, _ = problem("embeddings", n, d, k, settings)
    start = rows[np.random.default_rng(1).choice(n, k, replace=False)]
    programs: dict[str, Contestant] = {"ours": peers.ours}
    if version_of("faiss-cpu") is not None:
        programs["faiss"] = peers.faiss
    pruning = dict(zip(PRUNING, (peers.faiss_super, peers.superkmeans), strict=True))
    programs |= {
        name: fit for name, fit in pruning.items() if version_of(PRUNING[name]) is not None
    }
    figures: Figures = {"n": n, "d": d, "k": k, "iterations": iterations}
    for name, fit in programs.items():
        fit(rows[: 2 * k], start, 1, settings.threads)
        found: list[np.ndarray] = []
        run = partial(_fit_into, found, fit, rows, start, iterations, settings.threads)
        begin = time.perf_counter()
        figures[f"{name} bytes"] = added_bytes(run)
        figures[name] = time.perf_counter() - begin
        figures[f"{name} inertia"] = quantization_error(rows, found[0]) / n
    return figures


def _fit_into(found: list[np.ndarray], fit: Contestant, *arguments: Any) -> None:
    found.append(fit(*arguments)[0])


def gain(one: Figures, peer: str = "tile") -> float | None:
    """Return the seconds of a peer over ours; None if it is missing or found other centres."""
    if peer not in one or (peer == "faiss" and one["agree"] < SAME_LABELS):
        return None
    return float(one[peer] / one["bounds"])


def show(records: Records, settings: Settings) -> list[Part]:
    """Return the table."""
    table = Table(
        f"Seconds to find the nearest centre of float32 rows, {settings.threads} threads",
        ["rows", "n", "d", "k", "as in a pass", "and finding the search", "tile", "Faiss flat",
         "tile / ours", "Faiss / ours",
         "expected cost", "same label as Faiss", "MB, as in a pass", "MB, tile", "MB, Faiss"],
    )  # fmt: skip
    fits = Table(
        f"Seconds of a whole fit of all rows, {settings.threads} threads",
        ["rows", "n", "d", "k", "iterations", "program", "seconds", "of ours", "inertia / n", "MB"],
    )
    for name, one in records.items():
        if "iterations" in one:
            shape = [name, *(one[key] for key in ("n", "d", "k", "iterations"))]
            fits.rows += [
                [*shape, SAID.get(program, program), one[program], one[program] / one["ours"],
                 one[f"{program} inertia"], *_megabytes(one, program)]
                for program in ("ours", "faiss", *PRUNING) if program in one
            ]  # fmt: skip
            continue
        agree = one.get("agree")
        table.rows.append([
            name, one["n"], one["d"], one["k"], one["bounds"], one.get("finding"), one["tile"],
            one.get("faiss"), gain(one), gain(one, "faiss"), f"{one['share']:.0%}",
            None if agree is None else f"{agree:.4%}", *_megabytes(one, "bounds", "tile", "faiss"),
        ])  # fmt: skip
    table.notes.append(
        "All labels equal those of the tile. A pass packs the centres for a search that a sample of the "
        "rows has shown to pay, with axes and levels: a fit finds it for passes 1, 2, 4, ..., and a model "
        "keeps it. Where the time with finding it is missing, the time as in a pass includes that. The "
        "expected cost is by the counts of that sample, as a share of the tile's; 100% means that all "
        "centres are searched. MB is by how much memory grows, besides rows and centres."
    )
    fits.notes.append(
        "Ours and Faiss's Kmeans start from the same rows; the others choose their own, and use all rows "
        "as well. Ours includes the inertia and the labels of all rows. MB is by how much memory grows, "
        "besides the rows."
    )
    return [table, fits]


def _megabytes(one: Figures, *names: str) -> list[int | None]:
    found = [one.get(f"{name} bytes") for name in names]
    return [None if size is None else round(size / 1e6) for size in found]


def fit_gain(one: Figures, peer: str = "faiss") -> float | None:
    """Return the seconds of a peer's fit over ours; None if it is missing or its inertia is lower."""
    allowed = OTHER_START if peer in PRUNING else SAME_START
    if peer not in one or one[f"{peer} inertia"] < allowed * one["ours inertia"]:
        return None
    return float(one[peer] / one["ours"])


def _read_fit(peers: Iterable[str], target: float, records: Records) -> Reading | None:
    found = [fit_gain(records[name], peer) for name in FITS if name in records for peer in peers]
    gains = [one for one in found if one is not None]
    return Reading(f"{min(gains):.2f}", min(gains) >= target) if gains else None


def _read(name: str, target: float, records: Records, peer: str = "tile") -> Reading | None:
    found = gain(records[name], peer) if name in records else None
    return None if found is None else Reading(f"{found:.2f}", found >= target)


_SEARCHES = (
    ("mnist", "MNIST, k=4,000", "our tile", MNIST_TARGET, "tile"),
    ("mnist-faiss", "MNIST, k=4,000", "Faiss's flat search", FAISS_TARGET, "faiss"),
    ("many", "embeddings, k=16,384", "our tile", MANY_TARGET, "tile"),
    ("most", "embeddings, k=65,536", "our tile", MOST_TARGET, "tile"),
    ("noise", "noise, k=4,096", "our tile", NOISE_TARGET, "tile"),
)
_FIT = "Whole fit of embeddings, 200,000 x 768, k=4,096, 20 iterations: speed-up over"
TARGETS: tuple[Target, ...] = (
    *(
        Target(
            f"wide-{key}", f"Nearest of many centres, {name}: speed-up over {said}", f">= {target:g}",
            partial(_read, name, target, peer=peer),
        )
        for key, name, said, target, peer in _SEARCHES
    ),
    Target(
        "wide-fit", f"{_FIT} Faiss's Kmeans on all rows", f">= {FIT_TARGET:g}",
        partial(_read_fit, ["faiss"], FIT_TARGET),
    ),
    Target(
        "wide-fit-pruning", f"{_FIT} {' and '.join(PRUNING)}", f">= {PRUNING_TARGET:g}",
        partial(_read_fit, PRUNING, PRUNING_TARGET),
    ),
)  # fmt: skip
