"""VRKM++ with a constant rate, for Figure 7; the estimator would halve the rate."""

from __future__ import annotations

from functools import partial

from tests.benchmarks.vrkm.problems import Problem


def unguarded_losses(
    problem: Problem, seed: int, threads: int, epochs: int, *, rate: float
) -> list[float]:
    """Return the loss before each epoch and after the last; T = n, one partition."""
    import daskcluster as dc
    from daskcluster.engine.scaled import ScaledPlacement
    from daskcluster.methods.minibatch.batches import whole
    from daskcluster.methods.variance_reduced.algorithm import (
        EpochsState,
        StepRule,
        variance_reduced,
    )
    from daskcluster.methods.variance_reduced.estimator import steps_here, vrkm_footprint
    from daskcluster.randomness import Key

    dataset = dc.open_dataset(problem.rows)
    footprint = vrkm_footprint(dataset, problem.k, "random", 1)
    with dc.LocalEngine(threads).place(dataset, footprint=footprint) as placement:
        result = variance_reduced(
            ScaledPlacement(placement),
            EpochsState(problem.first_centres(seed), rate),
            partial(steps_here, whole(dataset)),
            rule=StepRule(),
            key=Key(seed, "steps"),
            guard=False,
            max_iter=epochs,
            tol=0.0,
        )
    losses = [float(record["inertia"]) for record in result.history]
    return [*losses, dc.quantization_error(problem.rows, result.centres)]
