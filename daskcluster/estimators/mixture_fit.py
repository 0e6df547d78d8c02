"""One call of ``VariationalGaussianMixture.fit``: coreset, seeding, EM."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.algorithms.variational_em import EMSettings, MixtureResult, variational_em
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.coreset import LightweightCoreset
from daskcluster.estimators.initial import initial_centres, method_for
from daskcluster.events import (
    Callback,
    Event,
    FitEnded,
    FitStarted,
    PassEnded,
    PassProgress,
    PassStarted,
    SeedingEnded,
    publish,
)
from daskcluster.randomness import Key, as_seed
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.estimators.mixture import VariationalGaussianMixture

_PASSES = (PassStarted, PassProgress, PassEnded)
_FLOOR = 1e-6
"""Least variance, in mean variances of the features."""


@dataclass
class MixtureRun:
    """What a fit learnt, and what it took; passes and bytes are those over the rows."""

    result: MixtureResult
    seeding: str
    passes: int
    bytes_read: int
    coreset: LightweightCoreset | None


class MixtureFit:
    """One call of fit."""

    def __init__(
        self,
        estimator: VariationalGaussianMixture,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
    ) -> None:
        self.estimator = estimator
        self.source = source
        self.dataset = dataset
        self.engine = engine
        self.callbacks = callbacks
        self.init = getattr(estimator.init, "means_", estimator.init)  # of another mixture
        self._began = time.perf_counter()

    def run(self) -> MixtureRun:
        estimator, dataset = self.estimator, self.dataset
        seed, coreset = as_seed(estimator.random_state), None
        name = "var-gmm" if estimator.coreset_size is None else "vc-gmm"
        shape = dataset.n_rows, dataset.n_features, estimator.n_components
        publish(self.callbacks, FitStarted(name, *shape, estimator.max_iter, self.engine.name))
        engine, callbacks = self.engine, self.callbacks
        if estimator.coreset_size is not None:
            coreset = LightweightCoreset(
                estimator.coreset_size,
                random_state=seed,
                engine=engine,
                callbacks=callbacks,
            ).draw(dataset)
            dataset, callbacks = coreset.coreset_, (_Quiet(callbacks),)
            # A cluster has nothing to do for rows of this process.
            engine = engine if engine.name == "local" else LocalEngine()
        footprint = mixture_footprint(
            dataset, estimator.n_components, estimator.truncation, estimator.covariance_type
        )
        with engine.place(dataset, footprint=footprint, callbacks=callbacks) as placement:
            method, result = self._learn(placement, seed)
            passes, bytes_read = placement.traffic.passes, placement.traffic.bytes_read
        if coreset is not None:
            passes, bytes_read = coreset.passes_, coreset.bytes_read_
        run = MixtureRun(result, method, passes, bytes_read, coreset)
        publish(self.callbacks, self._ended(run))
        return run

    def _learn(self, placement: Placement, seed: int) -> tuple[str, MixtureResult]:
        estimator, rows = self.estimator, ScaledPlacement(placement)
        began = time.perf_counter()
        method = method_for(self.init, in_memory=placement.dataset.in_memory)
        centres = initial_centres(
            self.init,
            rows,
            estimator.n_components,
            int(Key(seed, "mixture seeding").generator().integers(2**63 - 1)),
            source=self.source,
            random_state=np.random.RandomState(seed % 2**32),
            chain_length=estimator.chain_length,
        )
        seconds = time.perf_counter() - began
        publish(self.callbacks, SeedingEnded(method, placement.traffic.passes, seconds))
        return method, variational_em(
            rows, centres, self._settings(rows, seed), callbacks=self.callbacks
        )

    def _settings(self, rows: ScaledPlacement, seed: int) -> EMSettings:
        estimator = self.estimator
        floor = estimator.reg_covar
        if floor == "auto":
            variance = rows.known().mean_variance
            floor = _FLOOR * (variance if variance > 0.0 else 1.0)
        return EMSettings(
            covariance_type=estimator.covariance_type,
            truncation=min(estimator.truncation, estimator.n_components),
            n_neighbors=estimator.n_neighbors,
            n_random=estimator.n_random,
            warmup_steps=estimator.warmup_steps,
            rule=estimator.search,
            floor=float(floor),
            tol=estimator.tol,
            max_iter=estimator.max_iter,
            seed=seed,
            max_time=self._time_left(),
        )

    def _time_left(self) -> float | None:
        limit = self.estimator.max_time
        return None if limit is None else max(0.0, limit - (time.perf_counter() - self._began))

    def _ended(self, run: MixtureRun) -> FitEnded:
        history = run.result.history
        return FitEnded(
            run.result.stop_reason,
            history[-1]["inertia"] if history else 0.0,
            run.result.n_iter,
            run.passes,
            run.bytes_read,
            time.perf_counter() - self._began,
        )


class _Quiet:
    """Keeps passes over the coreset to itself: those that are counted are over the rows."""

    def __init__(self, callbacks: tuple[Callback, ...]) -> None:
        self._callbacks = callbacks

    def __call__(self, event: Event) -> None:
        if not isinstance(event, _PASSES):
            publish(self._callbacks, event)


def mixture_footprint(
    dataset: Dataset, n_components: int, truncation: int, covariance_type: str
) -> Footprint:
    """Return what a fit needs per thread and per row, for the memory projection."""
    d, k = dataset.n_features, n_components
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    seconds = 2 * d if covariance_type == "diag" else 2
    statistics = 8 * k * (d * grids + seconds + 2 + 25)
    return Footprint(thread_bytes=2 * statistics, row_bytes=max(8, 4 * min(truncation, k)))
