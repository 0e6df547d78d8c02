"""How even samples are over concepts whose sizes follow a power law: random rows, and balanced samples."""

from __future__ import annotations

import numpy as np

import daskcluster as dc
from daskcluster.models.balance import divide_evenly
from tests.benchmarks.harness.parts import Table
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings

ABOUT = "Samples of rows whose concepts have sizes of a power law: random, and balanced over levels"
TAKES = "about two minutes on 2 cores (--quick: seconds)"

N_ROWS, N_FEATURES, N_CONCEPTS, N_CLUSTERS, SIZE = 60_000, 16, 400, 2_000, 4_000
EXPONENT, SCALE, SEEDS = 1.3, 10, 3
ROUNDS = {"no resampling": 0, "auto": "auto", "10 rounds": 10}
"""Values of resample_rounds."""
LEVELS: dict[str, list[int]] = {
    "1 level": [],
    "2 levels": [200],
    "3 levels": [200, 20],
    "3 levels, finer": [800, 400],
}


def run(options: Settings) -> list[Table]:
    """Return the coefficient of variation of the concepts' sizes in each sample, the mean of some seeds."""
    scale = SCALE if options.quick else 1
    seeds = range(1 if options.quick else SEEDS)
    table = Table(
        f"Variation of the sizes of {N_CONCEPTS} concepts: {SIZE // scale:,} of {N_ROWS // scale:,} x "
        f"{N_FEATURES} rows, {N_CLUSTERS // scale:,} clusters, {len(seeds)} seeds",
        ["sample", *ROUNDS],
    )
    data = [concepts(N_ROWS // scale, seed) for seed in seeds]
    size = SIZE // scale
    random = [
        variation(labels, np.random.default_rng(seed).choice(len(labels), size, replace=False))
        for seed, (_, labels) in enumerate(data)
    ]
    table.rows.append(["random rows", float(np.mean(random)), "-", "-"])
    for name, above in LEVELS.items():
        sizes = [max(2, number // scale) for number in above]
        cells = []
        for rounds in ROUNDS.values():
            say(f"{name}, {rounds} rounds")
            # One level has no rounds unless they are asked for.
            asked = 2 if rounds == "auto" and not above else rounds
            cells.append(
                float(np.mean([balanced(*each, sizes, asked, size, scale) for each in data]))
            )
        table.rows.append([f"{name}: {', '.join(map(str, [N_CLUSTERS // scale, *sizes]))}", *cells])
    table.rows.append(
        ["as even as possible", float(np.mean([best(y, size) for _, y in data])), "-", "-"]
    )
    return [table]


def concepts(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and their concepts."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, N_CONCEPTS + 1) ** EXPONENT
    means = 4.0 * rng.normal(size=(N_CONCEPTS, N_FEATURES))
    labels = rng.choice(N_CONCEPTS, size=n_rows, p=shares / shares.sum())
    rows = means[labels] + rng.normal(size=(n_rows, N_FEATURES))
    return rows.astype(np.float32), labels


def balanced(
    rows: np.ndarray, labels: np.ndarray, sizes: list[int], rounds: int | str, size: int, scale: int
) -> float:
    given = {"level_sizes": sizes or None, "resample_rounds": rounds, "random_state": 0}
    model = dc.HierarchicalKMeans(N_CLUSTERS // scale, **given).fit(rows)
    return variation(labels, dc.balanced_sample(model, rows, size=size, random_state=0).rows)


def best(labels: np.ndarray, size: int) -> float:
    """Return the variation of a sample that divides its size evenly among the concepts."""
    sizes = np.bincount(labels, minlength=N_CONCEPTS)
    one, order = np.zeros(N_CONCEPTS, int), np.arange(N_CONCEPTS)
    shares = divide_evenly(np.array([size]), sizes, one, order)
    return float(shares.std() / shares.mean())


def variation(labels: np.ndarray, rows: np.ndarray) -> float:
    sizes = np.bincount(labels[rows], minlength=N_CONCEPTS)
    return float(sizes.std() / sizes.mean())
