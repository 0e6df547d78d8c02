"""One call of ``VariationalGaussianMixture.fit``: coreset, seeding, EM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daskcluster.algorithms.variational_em import EMSettings, MixtureResult, variational_em
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.coreset import LightweightCoreset
from daskcluster.estimators.fit import Fit
from daskcluster.estimators.footprint import seeding_bytes
from daskcluster.estimators.initial import method_for
from daskcluster.events import (
    Callback,
    Event,
    PassEnded,
    PassProgress,
    PassStarted,
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


class MixtureFit(Fit):
    """One call of fit."""

    estimator: VariationalGaussianMixture

    def __init__(
        self,
        estimator: VariationalGaussianMixture,
        source: Any,
        dataset: Dataset,
        engine: Engine,
        callbacks: tuple[Callback, ...],
    ) -> None:
        k = estimator.n_components
        super().__init__(estimator, source, dataset, engine, callbacks, n_clusters=k)
        self.init = getattr(estimator.init, "means_", estimator.init)  # of another mixture

    def run(self) -> MixtureRun:
        estimator, dataset = self.estimator, self.dataset
        seed, coreset = as_seed(estimator.random_state), None
        self.started("var-gmm" if estimator.coreset_size is None else "vc-gmm")
        engine, callbacks = self.engine, self.callbacks
        if estimator.coreset_size is not None:
            coreset = LightweightCoreset(
                estimator.coreset_size,
                random_state=seed,
                engine=engine,
                callbacks=callbacks,
            ).draw(dataset)
            dataset, callbacks = coreset.coreset_, (_Quiet(callbacks),)
            engine = home_engine(engine)
        footprint = mixture_footprint(
            dataset,
            estimator.n_components,
            estimator.truncation,
            estimator.covariance_type,
            method_for(self.init, in_memory=dataset.in_memory),
            estimator.chain_length,
        )
        with engine.place(dataset, footprint=footprint, callbacks=callbacks) as placement:
            result = self._learn(placement, seed)
            traffic = placement.traffic
        spent = traffic.passes, traffic.bytes_read
        if coreset is not None:
            spent = coreset.passes_, coreset.bytes_read_
        self.passes, self.bytes_read = spent
        inertia = result.history[-1]["inertia"] if result.history else 0.0
        self.ended(result.stop_reason, inertia, result.n_iter)
        return MixtureRun(result, self.method, *spent, coreset)

    def _learn(self, placement: Placement, seed: int) -> MixtureResult:
        rows = ScaledPlacement(placement)
        centres = self.seeded(rows, Key(seed, "mixture seeding"))
        return variational_em(rows, centres, self._settings(rows, seed), callbacks=self.callbacks)

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
            max_time=self.time_left(),
        )


class _Quiet:
    """Keeps passes over the coreset to itself: those that are counted are over the rows."""

    def __init__(self, callbacks: tuple[Callback, ...]) -> None:
        self._callbacks = callbacks

    def __call__(self, event: Event) -> None:
        if not isinstance(event, _PASSES):
            publish(self._callbacks, event)


def mixture_footprint(
    dataset: Dataset,
    n_components: int,
    truncation: int,
    covariance_type: str,
    method: str,
    chain_length: int,
) -> Footprint:
    """Return what a fit needs per thread, per row and per process, seeded by `method`."""
    d, k = dataset.n_features, n_components
    grids = 2 if dataset.weights is not None or dataset.dtype.itemsize == 8 else 1
    seconds = 2 * d if covariance_type == "diag" else 2
    statistics = 8 * k * (d * grids + seconds + 2 + 25)
    row_bytes = max(8, 4 * min(truncation, k))
    return Footprint(2 * statistics, row_bytes, seeding_bytes(dataset, k, method, chain_length))
