"""Figures 1 to 13 of Jourdan and Schwartzman: kernel k-means, full, by mini-batches, truncated or not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness import Options, Table, say
from tests.benchmarks.peers import quietly

TAKES = (
    "about two hours on 2 cores and 4 GB of memory (--quick: two minutes); --sets pendigits,mnist10k,rings,"
    "moons,mnist,cost for some of it"
)
SEEDS = 10
SETS = ("pendigits", "mnist10k", "rings", "moons", "mnist", "cost")
BATCHES, TAUS, RATES = (256, 512, 1024, 2048), (50, 100, 200, 300), ("sqrt", "count")
STEPS = 200


@dataclass(frozen=True)
class Labelled:
    """Rows with true labels, and the gamma that suits them (None: the rule of one pass)."""

    name: str
    X: np.ndarray
    y: np.ndarray
    gamma: float | None = None

    @property
    def k(self) -> int:
        return len(np.unique(self.y))


@dataclass
class Fitted:
    """One fit: agreement with the true labels, seconds, and those of Gram values alone."""

    ari: float
    nmi: float
    steps: int
    loop: float
    gram: float
    whole: float


def run(options: Options) -> list[Table]:
    """Return a table for each set, and one of the cost of a step by the number of rows."""
    wanted = options.sets or (("pendigits", "rings", "cost") if options.quick else SETS)
    settings = {"steps": _steps(options), "threads": options.threads, "quick": options.quick}
    files = RunFiles(options.folder("kernel-runs"), settings, Fitted)
    found = [_agreement(data, options, files) for data in _sets(wanted, options)]
    return [*found, *([_cost(options)] if "cost" in wanted else [])]


def _steps(options: Options) -> int:
    return 20 if options.quick else STEPS


def _sets(wanted: tuple[str, ...], options: Options) -> Iterator[Labelled]:
    for name in wanted:
        if name in ("rings", "moons"):
            yield _shape(name)
        elif name != "cost":
            yield _stored(name, options)


def _shape(name: str, n: int = 4000) -> Labelled:
    rng = np.random.default_rng(0)
    y, angle = rng.integers(0, 2, n), rng.uniform(0, np.pi, n)
    if name == "rings":
        X = np.stack([np.cos(2 * angle), np.sin(2 * angle)], 1) * (1 + 4 * y[:, None])
        return Labelled(name, X + 0.1 * rng.normal(size=X.shape), y, 0.2)
    X = np.stack([np.cos(angle), np.sin(angle)], 1) * np.where(y == 0, 1, -1)[:, None]
    X += y[:, None] * np.array([1.0, 0.5])
    return Labelled(name, X + 0.05 * rng.normal(size=X.shape), y, 5.0)


def _stored(name: str, options: Options) -> Labelled:
    """Return a set of `--data`, or Gaussians of its shape where the file is missing."""
    file = {"mnist10k": "mnist"}.get(name, name)
    path = None if options.data is None else options.data / f"{file}.npz"
    n, d = {"pendigits": (10_992, 16), "mnist10k": (10_000, 784), "mnist": (70_000, 784)}[name]
    if path is None or not path.exists():
        rng = np.random.default_rng(0)
        y = rng.integers(0, 10, n)
        X = rng.normal(size=(10, d))[y] + rng.normal(size=(n, d))
        return Labelled(f"{name} (generated)", X.astype(np.float32), y)
    with np.load(path) as stored:
        X, y = stored["X"].astype(np.float32), stored["y"]
    if name == "mnist10k":
        chosen = np.random.default_rng(0).permutation(len(X))[:n]
        X, y = X[chosen], y[chosen]
    small = 2000 if options.quick else n
    return Labelled(name, X[:small], y[:small])


def _programs(data: Labelled, options: Options) -> Iterator[tuple[str, Any]]:
    """Yield the name of every program and what makes its estimator from a seed."""
    import daskcluster as dc

    engine = dc.LocalEngine(options.threads)
    kernel = {"gamma": "auto" if data.gamma is None else data.gamma, "engine": engine}
    large = len(data.X) > 20_000
    most = 10 if large or options.quick else 300
    yield "full batch", partial(dc.KernelKMeans, data.k, **kernel, max_iter=most)
    batches = (1024,) if large or options.quick else BATCHES
    taus = (200,) if large or options.quick else TAUS
    for b in batches:
        for rate in RATES:
            both = {"batch_size": b, "learning_rate": rate, "engine": engine}
            steps = {**both, **kernel, "max_iter": _steps(options)}
            for tau in (*taus, *(() if large else (None,))):
                name = f"{'untruncated' if tau is None else f'tau={tau}'}, b={b}, {rate}"
                yield name, partial(dc.MiniBatchKernelKMeans, data.k, **steps, truncation=tau)
            passes = max(1, _steps(options) * b // len(data.X))
            plain = {
                **both,
                "max_iter": passes,
                "max_no_improvement": None,
                "reassignment_ratio": 0,
            }
            yield f"plain k-means, b={b}, {rate}", partial(dc.MiniBatchKMeans, data.k, **plain)


def _agreement(data: Labelled, options: Options, files: RunFiles[Fitted]) -> Table:
    say(f"  {data.name}: {data.X.shape}")
    table = Table(
        f"{data.name}: {data.X.shape[0]:,} x {data.X.shape[1]}, k={data.k}",
        ["program", "seeds", "ARI", "+-", "NMI", "+-", "steps", "ms a step", "of it Gram values", "fit, s"],
        notes=["Means over seeds, with standard deviations; times of steps are medians. gamma = max sqrt "
               "K(x, x) of the paper is 1 for the rbf kernel used here."],
    )  # fmt: skip
    warmed: set[type] = set()
    for name, make in _programs(data, options):
        if make.func not in warmed:  # compiled before the clock runs
            quietly(make(random_state=0).set_params(max_iter=3), data.X[:1100])
            warmed.add(make.func)
        seeds = min(options.seeds, 2) if options.quick or len(data.X) > 20_000 else options.seeds
        runs = [
            files.get(f"{data.name}, {name}, seed {seed}", partial(_fitted, make, data, seed))
            for seed in range(seeds)
        ]
        table.rows.append(_line(name, runs))
    return table


def _fitted(make: Any, data: Labelled, seed: int) -> Fitted:
    from daskcluster.metrics import adjusted_rand_index, normalized_mutual_info

    model, began = make(random_state=seed), time.perf_counter()
    quietly(model, data.X)
    whole = time.perf_counter() - began
    records = model.history_
    labels = np.asarray(model.labels_)
    return Fitted(
        float(adjusted_rand_index(data.y, labels)),
        float(normalized_mutual_info(data.y, labels)),
        int(getattr(model, "n_steps_", model.n_iter_)),
        float(sum(record["seconds"] for record in records)),
        float(sum(record.get("gram_seconds", 0.0) for record in records)),
        whole,
    )


def _line(name: str, runs: list[Fitted]) -> list[Any]:
    ari, nmi = ([getattr(fit, kind) for fit in runs] for kind in ("ari", "nmi"))
    steps = [max(1, fit.steps) for fit in runs]
    loop, gram = (
        float(np.median([1e3 * getattr(fit, kind) / n for fit, n in zip(runs, steps, strict=True)]))
        for kind in ("loop", "gram")
    )
    figures = [f"{value:.3f}" for part in (ari, nmi) for value in (np.mean(part), np.std(part))]
    return [name, len(runs), *figures, int(np.median(steps)), loop, gram or None,
            float(np.median([fit.whole for fit in runs]))]  # fmt: skip


def _cost(options: Options) -> Table:
    """Return seconds and Gram values of a step on more and more rows."""
    import daskcluster as dc

    table = Table(
        "A step of truncated mini-batches (b=1024, tau=200, k=10, d=16) by the number of rows",
        ["rows", "Gram values a step", "ms a step", "final labels, s"],
        notes=["Means of the last ten of 20 steps, when windows are full."],
    )
    for n in (10_000, 100_000) if options.quick else (10_000, 100_000, 1_000_000, 10_000_000):
        say(f"  cost: {n:,} rows")
        rng = np.random.default_rng(0)
        X = rng.standard_normal((10, 16), dtype=np.float32)[rng.integers(0, 10, n)]
        X += 0.5 * rng.standard_normal((n, 16), dtype=np.float32)
        began = time.perf_counter()
        model = dc.MiniBatchKernelKMeans(
            10, gamma=0.02, max_iter=20, random_state=0, engine=dc.LocalEngine(options.threads)
        ).fit(X)
        whole, late = time.perf_counter() - began, model.history_[-10:]
        steps = sum(record["seconds"] for record in model.history_)
        values, seconds = (
            np.mean([record[name] for record in late]) for name in ("n_distances", "seconds")
        )
        table.rows.append([f"{n:,}", f"{values:,.0f}", float(1e3 * seconds), whole - steps])
    return table
