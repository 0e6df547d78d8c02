"""The compared programs: each returns its centres and the costs of coreset, seeding and EM.

Times end with the last update: labels and final figures are not in them, nor is evaluating.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tests.benchmarks.harness.peers import quietly
from tests.benchmarks.vc_gmm.outcomes import (
    FreeEnergyRule,
    Setting,
    chains_distances,
    greedy_candidates,
)

MOST_ITERATIONS = 1000


@dataclass(frozen=True)
class Fitted:
    """Centres; seconds, processor seconds and distances of (coreset, seeding, EM); how EM ended."""

    centres: np.ndarray
    seconds: Sequence[float]
    processor: Sequence[float]
    distances: Sequence[float]
    n_iter: int = 0
    free_energy: float | None = None


class Stages:
    """Records elapsed and CPU time at the end of coreset, seeding and the last update."""

    def __init__(self) -> None:
        self._marks = [_now()] * 4

    def __call__(self, event: Any) -> None:
        from daskcluster.events import IterationEnded, SeedingEnded

        if isinstance(event, SeedingEnded):
            self.ended(1)
        elif isinstance(event, IterationEnded):
            self.ended(2)

    def ended(self, stage: int) -> None:
        """Record the end of stage 0, 1 or 2; later stages have no cost yet."""
        self._marks[stage + 1 :] = [_now()] * (3 - stage)

    @property
    def seconds(self) -> list[float]:
        return [after[0] - before[0] for before, after in pairwise(self._marks)]

    @property
    def processor(self) -> list[float]:
        return [after[1] - before[1] for before, after in pairwise(self._marks)]


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def fit(rows: np.ndarray, setting: Setting, seed: int, threads: int) -> Fitted:
    """Run a program on the rows."""
    return _PROGRAMS[setting.program](rows, setting, seed, threads)


def kmeans_plusplus(rows: np.ndarray, setting: Setting, seed: int, threads: int) -> Fitted:
    """Run k-means from D^2 sampling, with one candidate per step as in the paper, or greedy.

    A distance of every row to every new centre is what it needs; that ours computes those of the last
    centre twice is not counted, so no other program looks better for it.
    """
    from daskcluster import LocalEngine
    from daskcluster import kmeans_plusplus as seeded

    n, k, engine = len(rows), setting.k, LocalEngine(threads)
    greedy = setting.program != "k-means++"
    trials = greedy_candidates(k) if greedy else 1
    stages = Stages()
    first, _ = seeded(rows, k, n_local_trials=trials, random_state=seed, engine=engine)
    seeding = float(n) * k * (1 + trials if greedy else 1)
    return _lloyd(rows, first, setting, seed, threads, stages, (0.0, seeding))


def chains(rows: np.ndarray, setting: Setting, seed: int, threads: int) -> Fitted:
    """Return the centres of AFK-MC2 without refinement."""
    from daskcluster import LocalEngine, afk_mc2

    stages = Stages()
    centres, _ = afk_mc2(
        rows, setting.k, chain_length=setting.chain, random_state=seed, engine=LocalEngine(threads)
    )
    stages.ended(1)
    distances = chains_distances(len(rows), setting.k, setting.chain)
    return Fitted(centres, stages.seconds, stages.processor, (0.0, distances, 0.0))


def coreset_kmeans(rows: np.ndarray, setting: Setting, seed: int, threads: int) -> Fitted:
    """Run k-means on a lightweight coreset from AFK-MC2 centres."""
    stages = Stages()
    coreset = _coreset(rows, setting, seed, threads)
    stages.ended(0)
    seeding = chains_distances(setting.coreset, setting.k, setting.chain)
    spent = float(len(rows)), seeding
    return _lloyd(coreset, "afk-mc2", setting, seed, threads, stages, spent)


def gaussian_mixture(rows: np.ndarray, setting: Setting, seed: int, threads: int) -> Fitted:
    """Run var-GMM-S, or vc-GMM if the setting has a coreset size.

    The coreset is drawn apart, to have its time; ``coreset_size=`` gives the same mixture.
    """
    from daskcluster import LocalEngine, VariationalGaussianMixture

    stages = Stages()
    source: Any = rows
    if setting.coreset:
        source = _coreset(rows, setting, seed, threads)
        stages.ended(0)
    rule = FreeEnergyRule(float(len(rows)), setting.k, rows.shape[1], setting.tol)
    model = VariationalGaussianMixture(
        setting.k, truncation=setting.truncation, n_neighbors=setting.truncation,
        n_random=setting.n_random, warmup_steps=setting.warmup_steps, tol=0.0,
        search=setting.search, max_iter=MOST_ITERATIONS,
        chain_length=setting.chain, random_state=seed, engine=LocalEngine(threads),
        callbacks=(stages, rule),
    )  # fmt: skip
    found = quietly(model, source)
    seeding = chains_distances(setting.coreset or len(rows), setting.k, setting.chain)
    return Fitted(
        found.means_,
        stages.seconds,
        stages.processor,
        (float(len(rows)) if setting.coreset else 0.0, seeding, _distances(found)),
        int(found.n_iter_),
        found.history_[-1]["free_energy"],
    )


_PROGRAMS: dict[str, Callable[[np.ndarray, Setting, int, int], Fitted]] = {
    "k-means++": kmeans_plusplus,
    "greedy k-means++": kmeans_plusplus,
    "AFK-MC2": chains,
    "LWCS": coreset_kmeans,
    "var-GMM-S": gaussian_mixture,
    "vc-GMM": gaussian_mixture,
}


def warm_up(rows: np.ndarray, threads: int, settings: Sequence[Setting]) -> None:
    """Run the programs on a few rows, so that they compile and load their kernels."""
    few, seen = np.ascontiguousarray(rows[:4000]), set()
    for setting in settings:
        kind = setting.program, bool(setting.coreset), setting.search
        if kind in seen:
            continue
        seen.add(kind)
        short = Setting(**{**vars(setting), "k": 20, "coreset": min(setting.coreset, 1000)})
        measure_run(few, fit(few, short, 0, threads).centres, threads)


def measure_run(rows: np.ndarray, centres: np.ndarray, threads: int) -> tuple[float, np.ndarray]:
    """Return the sum of squared distances to the nearest centres, and the labels."""
    from daskcluster import KMeans, LocalEngine

    first = np.ascontiguousarray(centres, np.float32)
    model = KMeans(len(first), init=first, n_init=1, max_iter=0, engine=LocalEngine(threads))
    quietly(model, rows)
    return float(model.inertia_), np.asarray(model.labels_)


def mutual_information(labels: np.ndarray, others: np.ndarray) -> float:
    from daskcluster.metrics import normalized_mutual_info

    return float(normalized_mutual_info(labels, others))


def _coreset(rows: np.ndarray, setting: Setting, seed: int, threads: int) -> Any:
    from daskcluster import LightweightCoreset, LocalEngine

    estimator = LightweightCoreset(
        setting.coreset, random_state=seed, engine=LocalEngine(threads)
    )  # fmt: skip
    return estimator.fit(rows).coreset_


def _lloyd(
    rows: Any, init: Any, setting: Setting, seed: int, threads: int, stages: Stages,
    spent: tuple[float, float],
) -> Fitted:  # fmt: skip
    """Run plain Lloyd until its free energy converges.

    `spent` are the distances of coreset and seeding.
    """
    from daskcluster import KMeans, LocalEngine

    array = isinstance(rows, np.ndarray)
    weight = float(len(rows)) if array else float(np.sum(rows.weights))
    d = rows.shape[1] if array else rows.n_features
    rule = FreeEnergyRule(weight, setting.k, d, setting.tol)
    model = KMeans(
        setting.k, init=init, n_init=1, algorithm="lloyd", max_iter=MOST_ITERATIONS, tol=0,
        chain_length=max(1, setting.chain), random_state=seed, engine=LocalEngine(threads),
        callbacks=(stages, rule),
    )  # fmt: skip
    found = quietly(model, rows)
    return Fitted(
        found.cluster_centers_,
        stages.seconds,
        stages.processor,
        (*spent, _distances(found)),
        int(found.n_iter_),
        rule.free_energy,
    )


def _distances(found: Any) -> float:
    return float(sum(record["n_distances"] for record in found.history_))
