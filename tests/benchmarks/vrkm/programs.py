"""The programs of Tables 3 and 4: algorithms from the same random rows, with losses over time.

The loss is the inertia of all rows. Batch k-means and the variance reduced ones measure it in their passes;
for the others it is measured on the way, outside of their times, on large sets from a sample of the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.benchmarks.harness.peers import quietly
from tests.benchmarks.vrkm.problems import Problem, agreement

TUNED = 10
"""Tuned learning rate, in multiples of K / n."""
AT_TUNED = f"vrkm++, {TUNED}x"
PROGRAMS = ("batch", "mini-batch", "sgd", "growbatch-rho", "vrkm", "vrkm++", AT_TUNED)
AGAIN = ("batch", "vrkm++", AT_TUNED)
"""Programs that run from more than one seed on large sets."""
_ENDLESS = 100_000


@dataclass(frozen=True)
class Outcome:
    """One fit.

    Attributes
    ----------
    seconds, losses : list of float
        Of each moment at which the loss is known.
    loss : float
        Of the last centres.
    fit_seconds : float
        Until the last centre update.
    iterations : int
    agreement : list of float
        Accuracy, NMI and purity; empty without classes.
    facts : dict
        What else a table wants to know.
    distances : list of float
        Distances computed until each moment, in units of n k, those of a pass over all rows.
    """

    seconds: list[float]
    losses: list[float]
    loss: float
    fit_seconds: float
    iterations: int
    agreement: list[float]
    facts: dict[str, Any]
    distances: list[float] = field(default_factory=list)

    def time_to(self, loss: float) -> float | None:
        """Return the seconds until the loss was at most `loss`; None if it never was."""
        return self._first(self.seconds, loss)

    def distances_to(self, loss: float) -> float | None:
        """Return the distances until the loss was at most `loss`; None if it never was."""
        return self._first(self.distances, loss)

    def _first(self, spent: list[float], loss: float) -> float | None:
        pairs = zip(spent, self.losses, strict=True)
        return next((value for value, found in pairs if found <= loss), None)


def batch(problem: Problem, seed: int, threads: int, budget: float | None = None) -> Outcome:
    """Run plain Lloyd to the fixed point, with all distances in each iteration."""
    from daskcluster import KMeans

    return _fitted(
        problem, threads,
        lambda engine, tell: KMeans(
            problem.k, init=problem.first_centres(seed), n_init=1, algorithm="lloyd", tol=0,
            max_iter=problem.most_iterations, engine=engine, callbacks=(tell,),
        ),
    )  # fmt: skip


def variance_reduced(
    problem: Problem, seed: int, threads: int, budget: float | None, **changes: Any
) -> Outcome:
    """Run VRKM or VRKM++ for `budget` seconds, or `max_iter` epochs."""
    from daskcluster import VarianceReducedKMeans

    given = {"n_partitions": 1, "max_iter": _ENDLESS, "tol": 0, **changes}
    return _fitted(
        problem, threads,
        lambda engine, tell: VarianceReducedKMeans(
            problem.k, init=problem.first_centres(seed), random_state=seed, max_time=budget,
            engine=engine, callbacks=(tell,), **given,
        ),
    )  # fmt: skip


def mini_batches(
    problem: Problem, seed: int, threads: int, budget: float | None, *, batch_size: int = 1000
) -> Outcome:
    """Run mini-batches with rate 1 / v for `budget` seconds; batches of one row are SGD."""
    from daskcluster import MiniBatchKMeans

    return _fitted(
        problem, threads,
        lambda engine, tell: MiniBatchKMeans(
            problem.k, init=problem.first_centres(seed), batch_size=batch_size, max_iter=_ENDLESS,
            max_no_improvement=None, reassignment_ratio=0, random_state=seed, max_time=budget,
            validation=problem.validation, engine=engine, callbacks=(tell,),
        ),
    )  # fmt: skip


def growbatch(problem: Problem, seed: int, threads: int, budget: float | None) -> Outcome:
    """Run nested mini-batches without bounds to their own end, with rho = 10, the best in the paper.

    On large sets, they also stop after `budget` seconds.
    """
    from daskcluster import NestedMiniBatchKMeans

    return _fitted(
        problem, threads,
        lambda engine, tell: NestedMiniBatchKMeans(
            problem.k, init=problem.first_centres(seed), batch_size=min(5000, len(problem.rows)), rho=10,
            bounds=False, max_iter=2 * problem.most_iterations, tol=0, random_state=seed,
            max_time=budget if problem.is_large else None, validation=problem.validation,
            engine=engine, callbacks=(tell,),
        ),
    )  # fmt: skip


def program(name: str) -> Callable[..., Outcome]:
    """Return the function of a program: callable (problem, seed, threads, budget)."""
    if name == AT_TUNED:
        return lambda problem, *given: variance_reduced(
            problem, *given, learning_rate=min(1.0, TUNED * problem.k / len(problem.rows))
        )
    if name in ("vrkm", "vrkm++"):
        return lambda *given: variance_reduced(*given, variant=name)
    if name == "sgd":
        return lambda *given: mini_batches(*given, batch_size=1)
    return {"batch": batch, "mini-batch": mini_batches, "growbatch-rho": growbatch}[name]


def _fitted(problem: Problem, threads: int, make: Callable[[Any, Any], Any]) -> Outcome:
    from daskcluster import LocalEngine

    stamps: list[float] = []
    began = time.perf_counter()

    def tell(event: Any) -> None:
        if hasattr(event, "iteration"):
            stamps.append(time.perf_counter() - began)

    model = quietly(make(LocalEngine(threads), tell), problem.rows)
    records, loss = model.history_, float(model.inertia_)
    measured = bool(records) and records[0].get("validation") is not None
    pass_of_all = len(problem.rows) * problem.k
    counted = np.cumsum([record["n_distances"] / pass_of_all for record in records]).tolist()
    if measured:  # after each record; what measuring took is in no record
        spent = np.cumsum([record["seconds"] for record in records])
        losses = [record["validation"] * len(problem.rows) for record in records]
        losses[-1] = loss
        points = [(float(s), float(one)) for s, one in zip(spent, losses, strict=True)]
    else:  # the loss of a record is that of the centres before it
        points = [
            (stamp, float(record["inertia"]))
            for stamp, record in zip([0.0, *stamps[:-1]], records, strict=True)
        ]
        points.append((stamps[-1], loss))
        counted = [0.0, *counted]
    agreed = (
        [] if problem.classes is None else agreement(problem.classes, np.asarray(model.labels_))
    )
    return Outcome(
        [s for s, _ in points],
        [one for _, one in points],
        loss,
        points[-1][0],
        len(records),
        list(agreed),
        {"went_back": sum(bool(record.get("went_back")) for record in records)},
        counted,
    )
