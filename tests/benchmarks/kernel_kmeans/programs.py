"""The compared programs: full batch, mini-batches (truncated or not), plain k-means; two learning rates."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.benchmarks.harness.peers import quietly
from tests.benchmarks.kernel_kmeans.problems import Problem

BATCHES, TAUS, RATES = (256, 512, 1024, 2048), (50, 100, 200, 300), ("sqrt", "count")
BATCH, TAU = 1024, 200
"""Batch size and truncation of Figure 1, the only ones for large sets."""
STEPS, QUICK_STEPS = 200, 20
FULL, UNTRUNCATED, TRUNCATED, PLAIN = "full batch", "untruncated", "truncated", "plain k-means"
LARGE_ITERATIONS = 10
"""Full-batch iterations on large sets, where only the time is compared."""


@dataclass(frozen=True)
class Program:
    """One way to cluster.

    Attributes
    ----------
    kind : str
        `FULL`, `UNTRUNCATED`, `TRUNCATED` or `PLAIN`.
    batch, tau : int
        0 if there is none.
    rate : str
        ``"sqrt"`` is the paper's, beta, ``"count"`` scikit-learn's; empty for the full batch.
    steps : int
    """

    kind: str
    batch: int = 0
    tau: int = 0
    rate: str = ""
    steps: int = STEPS

    @property
    def name(self) -> str:
        parts = [f"tau={self.tau}" if self.tau else self.kind]
        parts += [f"b={self.batch}", self.rate] if self.batch else []
        return ", ".join(parts)

    @property
    def is_of_figure1(self) -> bool:
        """Whether Figure 1 shows the program."""
        return self.kind == FULL or (self.batch == BATCH and self.tau in (0, TAU))


@dataclass
class Fitted:
    """One fit: agreement with the true labels, steps, and seconds (`gram`: of kernel values alone)."""

    ari: float
    nmi: float
    steps: int
    loop: float
    gram: float
    whole: float


@dataclass
class Norm:
    """The largest sqrt K(x, x) of a kernel, and the seconds to compute its matrix (0 if there is none)."""

    largest: float
    seconds: float


def norm(one: Problem) -> Norm:
    """Compute the kernel matrix of a set, if it has one, and measure it."""
    if one.kernel == "rbf":
        return Norm(1.0, 0.0)
    return Norm(math.sqrt(float(one.matrix.diagonal().max())), one.matrix_seconds)


def cells(one: Problem, *, quick: bool = False) -> list[Program]:
    """Return the programs to compare on a set."""
    few = one.is_large or one.is_shape or quick
    steps = QUICK_STEPS if quick else STEPS
    found = [Program(FULL, steps=LARGE_ITERATIONS if one.is_large or quick else 300)]
    for batch in (BATCH,) if few else BATCHES:
        for rate in RATES:
            taus = (TAU,) if few else TAUS
            found += [Program(TRUNCATED, batch, tau, rate, steps) for tau in taus]
            slow = one.is_large and rate != RATES[0]  # a step takes seconds
            found += [] if slow else [Program(UNTRUNCATED, batch, 0, rate, steps)]
            found.append(Program(PLAIN, batch, 0, rate, steps))
    return found


def estimator(one: Problem, program: Program, seed: int, threads: int) -> Any:
    """Return the estimator of a program, not fitted; of `PLAIN`, one that only chooses first centres."""
    import daskcluster as dc

    engine = {"engine": dc.LocalEngine(threads), "random_state": seed}
    if program.kind == FULL:
        return dc.KernelKMeans(one.k, **one.parameters, **engine, max_iter=program.steps)
    both = {"batch_size": program.batch, "learning_rate": program.rate, **engine}
    if program.kind == PLAIN:
        return dc.MiniBatchKMeans(one.k, **both, init="k-means++", max_iter=0)
    tau = program.tau or None
    return dc.MiniBatchKernelKMeans(
        one.k, **one.parameters, **both, max_iter=program.steps, truncation=tau
    )


def warm_up(one: Problem, listed: Sequence[Program], threads: int) -> None:
    """Compile the kernels of the programs before time is measured."""
    few = min(1100, len(one.X))
    for kind in dict.fromkeys(program.kind for program in listed):
        program = next(each for each in listed if each.kind == kind)
        if kind == PLAIN:
            fewer = replace(one, X=one.X[:few], y=one.y[:few])
            plain_fit(fewer, replace(program, steps=2), 0, threads)
            continue
        model = estimator(one, program, 0, threads).set_params(max_iter=2)
        if one.kernel != "rbf":
            quietly(model, np.ascontiguousarray(one.rows[:few, :few]))
        else:
            quietly(model, one.X[:few])


def fitted(one: Problem, program: Program, seed: int, threads: int) -> Fitted:
    """Fit, and compare the labels with the true labels."""
    if program.kind == PLAIN:
        return plain_fit(one, program, seed, threads)
    model = estimator(one, program, seed, threads)
    began = time.perf_counter()
    quietly(model, one.rows)
    whole = time.perf_counter() - began
    loop, gram = (
        float(sum(record.get(name, 0.0) for record in model.history_))
        for name in ("seconds", "gram_seconds")
    )
    steps = int(getattr(model, "n_steps_", model.n_iter_))
    return Fitted(*_agreement(one, model.labels_), steps, loop, gram, whole)


def plain_fit(one: Problem, program: Program, seed: int, threads: int) -> Fitted:
    """Make the steps of plain mini-batches one by one, because `fit` makes those of whole passes only.

    First centres, batches and steps are those of ``MiniBatchKMeans.fit`` without early stopping and
    reassignment.
    """
    import daskcluster as dc
    from daskcluster.methods.minibatch.batches import Batches
    from daskcluster.methods.minibatch.chunkwise import MiniBatchStepper, MovingCentres

    began = time.perf_counter()
    first = quietly(estimator(one, program, seed, threads), one.X).cluster_centers_
    stepper = MiniBatchStepper(MovingCentres.start(first), program.rate, threads)
    with Batches(dc.open_dataset(one.X), program.batch, seed) as batches, stepper.threads():
        started = time.perf_counter()
        for _ in range(program.steps):
            stepper.step(batches.next())
        loop = time.perf_counter() - started
    last = dc.KMeans(one.k, init=stepper.state.centres, max_iter=0, engine=dc.LocalEngine(threads))
    labels = quietly(last, one.X).labels_
    whole = time.perf_counter() - began
    return Fitted(*_agreement(one, labels), program.steps, loop, 0.0, whole)


def _agreement(one: Problem, labels: Any) -> tuple[float, float]:
    """Return ARI and NMI with the true labels."""
    from daskcluster.metrics import adjusted_rand_index, normalized_mutual_info

    found = np.asarray(labels)
    return (
        float(adjusted_rand_index(one.y, found)),
        float(normalized_mutual_info(one.y, found)),
    )
