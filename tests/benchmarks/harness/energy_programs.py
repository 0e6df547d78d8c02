"""The programs whose energy is measured over time: ours, and scikit-learn's under the same conditions.

All start from the same centres, run to their end or to a limit, and are evaluated on the same rows. Times
exclude evaluation: our fits run twice, once timed and once with validation, and must give the same result;
scikit-learn runs step by step, and only the steps are timed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tests.benchmarks.harness.energy import Rows, Run, moments
from tests.benchmarks.harness.peers import quietly

MOST_ITERATIONS = 1000
SAME_ENERGY = 1e-4
"""Largest relative difference of the energies of two equal fits."""
STEP_GROWTH = 1.03
"""Growth of the number of steps between evaluations of scikit-learn; bounds the error of its times."""


class Clock:
    """Records when each iteration ends, from the start of the fit."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self._began = time.perf_counter()

    def __call__(self, event: Any) -> None:
        if hasattr(event, "iteration"):
            self.stamps.append(time.perf_counter() - self._began)

    def read(self) -> float:
        return time.perf_counter() - self._began


def exact(
    rows: Rows, seed: int, threads: int, *, algorithm: str = "lloyd", like: Run | None = None,
    max_iter: int = MOST_ITERATIONS,
) -> Run:  # fmt: skip
    """Run k-means to the fixed point.

    Parameters
    ----------
    like : Run, optional
        A run of another exact algorithm from the same centres, which has the same energies. Without it, a
        second fit measures the energies, in parts that each start from the centres of the previous part.
    """
    from daskcluster import KMeans, LocalEngine

    def fitted(centres: np.ndarray, iterations: int, callbacks: Sequence[Any], name: str) -> Any:
        model = KMeans(
            rows.k, init=centres, n_init=1, algorithm=name, max_iter=iterations, tol=0,
            engine=LocalEngine(threads), callbacks=callbacks,
        )  # fmt: skip
        return quietly(model, rows.rows)

    first = rows.first_centres(seed)
    clock = Clock()
    model = fitted(first, max_iter, (clock,), algorithm)
    seconds, last = clock.read(), int(model.n_iter_)
    if like is None:
        looked, energies = moments(last), [energy(rows, first)]
        centres, done = first, 0
        for iteration in looked:
            centres = fitted(centres, iteration - done, (), "auto").cluster_centers_
            energies.append(energy(rows, centres))
            done = iteration
        # The first pass of every part sums on a coarser grid, so the last bits differ.
        last_energy = energy(rows, model.cluster_centers_)
        _check(rows, algorithm, abs(energies[-1] / last_energy - 1) < SAME_ENERGY)
    else:
        looked, energies = like.iterations[1:], like.energies
        _check(rows, algorithm, like.digest == digest(model.cluster_centers_))
    return _run(model, clock.stamps, looked, energies, seconds)


def nested(
    rows: Rows, seed: int, threads: int, *, rho: float = 100.0, bounds: Any = "auto",
    max_time: float | None = None,
) -> Run:  # fmt: skip
    """Run nested mini-batches to their end, or for `max_time` seconds."""
    from daskcluster import LocalEngine, NestedMiniBatchKMeans

    first = rows.first_centres(seed)

    def fitted(validation: Any, callbacks: Sequence[Any], iterations: int, limit: Any) -> Any:
        model = NestedMiniBatchKMeans(
            rows.k, init=first, batch_size=rows.batch, rho=rho, bounds=bounds,
            validation=validation, max_iter=iterations, tol=0, random_state=seed, max_time=limit,
            engine=LocalEngine(threads), callbacks=callbacks,
        )  # fmt: skip
        return quietly(model, rows.rows)

    clock = Clock()
    model = fitted(None, (clock,), 10 * MOST_ITERATIONS, max_time)
    seconds = clock.read()
    evaluated = fitted(rows.validation, (), int(model.n_iter_), None)
    return _evaluated(rows, first, model, evaluated, clock.stamps, seconds)


def mini_batches(rows: Rows, seed: int, threads: int, *, passes: int) -> Run:
    """Run `passes` passes of our mini-batches, without early stopping or reassignment."""
    from daskcluster import LocalEngine, MiniBatchKMeans

    first = rows.first_centres(seed)

    def fitted(validation: Any, callbacks: Sequence[Any]) -> Any:
        model = MiniBatchKMeans(
            rows.k, init=first, batch_size=rows.batch, max_iter=passes, tol=0,
            max_no_improvement=None, reassignment_ratio=0, validation=validation, random_state=seed,
            engine=LocalEngine(threads), callbacks=callbacks,
        )  # fmt: skip
        return quietly(model, rows.rows)

    clock = Clock()
    model = fitted(None, (clock,))
    seconds = clock.read()
    evaluated = fitted(rows.validation, ())
    return _evaluated(rows, first, model, evaluated, clock.stamps, seconds)


def sklearn_mini_batches(
    rows: Rows, seed: int, threads: int, *, steps: int, target: float = 0.0
) -> Run:
    """Run scikit-learn's mini-batches until the energy is at most `target`, or for `steps` steps.

    A step draws its batch as `MiniBatchKMeans.fit` does, and calls `partial_fit` without labels and
    reassignment. This is the work of a step of its `fit`, and no more.
    """
    from sklearn.cluster import MiniBatchKMeans

    first, generator = rows.first_centres(seed), np.random.RandomState(seed)
    model = MiniBatchKMeans(
        rows.k, init=first, n_init=1, batch_size=rows.batch, compute_labels=False,
        reassignment_ratio=0, max_no_improvement=None, tol=0, random_state=seed,
    )  # fmt: skip
    looked, energies, stamps, spent = [0], [energy(rows, first)], [0.0], 0.0
    with as_scikit_learn_likes(threads):
        for step in range(1, steps + 1):
            began = time.perf_counter()
            model.partial_fit(rows.rows[generator.randint(0, rows.n, rows.batch)])
            spent += time.perf_counter() - began
            if step < looked[-1] * STEP_GROWTH and step < steps:
                continue
            looked.append(step)
            stamps.append(spent)
            energies.append(energy(rows, model.cluster_centers_))
            if energies[-1] <= target:
                break
    distances = [float(step) * rows.batch * rows.k for step in looked]
    return Run(stamps, distances, energies, looked, spent, ended=False)


def sklearn_lloyd(rows: Rows, seed: int, threads: int, *, max_iter: int = MOST_ITERATIONS) -> Run:
    """Run scikit-learn's Lloyd to convergence; only the start and the end are recorded."""
    from sklearn.cluster import KMeans

    first = rows.first_centres(seed)
    model = KMeans(rows.k, init=first, n_init=1, max_iter=max_iter, tol=0, algorithm="lloyd")
    with as_scikit_learn_likes(threads):
        began = time.perf_counter()
        quietly(model, rows.rows)
        seconds = time.perf_counter() - began
    n_iter = int(model.n_iter_)
    return Run(
        [0.0, seconds],
        [0.0, float(n_iter) * rows.n * rows.k],
        [energy(rows, first), energy(rows, model.cluster_centers_)],
        [0, n_iter],
        seconds,
        ended=n_iter < max_iter,
    )


def warm_up(rows: Rows, threads: int, programs: Iterable[Callable[..., Run]]) -> None:
    """Run programs on a few rows, so that they compile and load their kernels."""
    few = replace(
        rows,
        rows=rows.rows[: 40 * rows.k],
        validation=rows.validation[: 4 * rows.k],
        batch=min(rows.batch, 10 * rows.k),
    )
    for program in programs:
        program(few, 0, threads)


@contextmanager
def as_scikit_learn_likes(threads: int) -> Any:
    """Limit scikit-learn to `threads` threads, and disable its check for NaN, which takes time."""
    from sklearn import config_context
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads), config_context(assume_finite=True):
        yield


def energy(rows: Rows, centres: np.ndarray) -> float:
    """Return the mean squared distance of the validation rows to their nearest centres."""
    from daskcluster import quantization_error

    found = quantization_error(rows.validation, np.ascontiguousarray(centres, np.float32))
    return float(found) / rows.validation.shape[0]


def digest(centres: np.ndarray) -> str:
    """Return a digest of the bits of the centres."""
    return hashlib.sha256(np.ascontiguousarray(centres).tobytes()).hexdigest()


def _evaluated(
    rows: Rows, first: np.ndarray, model: Any, evaluated: Any, stamps: list[float], seconds: float
) -> Run:
    """Return the run with the times of `model` and the energies of `evaluated`."""
    same = digest(model.cluster_centers_) == digest(evaluated.cluster_centers_)
    _check(rows, type(model).__name__, same)
    energies = [energy(rows, first), *(record["validation"] for record in evaluated.history_)]
    return _run(model, stamps, range(1, len(energies)), energies, seconds)


def _run(
    model: Any, stamps: list[float], looked: Sequence[int], energies: list[float], seconds: float
) -> Run:
    """Return the run, evaluated after the records `looked`, counted from 1."""
    records = model.history_
    spent = np.cumsum([record["n_distances"] for record in records], dtype=float)
    return Run(
        [0.0, *(stamps[i - 1] for i in looked)],
        [0.0, *(float(spent[i - 1]) for i in looked)],
        energies,
        [0, *(int(records[i - 1]["iteration"]) for i in looked)],
        seconds,
        ended=model.stop_reason_ == "converged",
        digest=digest(model.cluster_centers_),
    )


def _check(rows: Rows, name: str, same: bool) -> None:
    if not same:
        raise RuntimeError(
            f"{rows.name}: two fits of {name} ended at different centres; expected the same centres, "
            "because the energies of one are combined with the times of the other."
        )
