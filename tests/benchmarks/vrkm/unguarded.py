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
    from daskcluster.estimators.loop import Limits
    from daskcluster.methods.minibatch.batches import whole
    from daskcluster.methods.variance_reduced.algorithm import (
        EpochsState,
        StepRule,
        VarianceReduced,
    )
    from daskcluster.methods.variance_reduced.estimator import steps_here, vrkm_footprint
    from daskcluster.randomness import Key

    dataset = dc.open_dataset(problem.rows)
    footprint = vrkm_footprint(dataset, problem.k, "random", 1)
    with dc.LocalEngine(threads).place(dataset, footprint=footprint) as placement:
        rows, take_steps = ScaledPlacement(placement), partial(steps_here, whole(dataset))
        rule, key = StepRule(), Key(seed, "steps")
        algorithm = VarianceReduced(rows, take_steps, rule, key, guard=False, tol=0.0)
        begin = EpochsState(problem.first_centres(seed), rate)
        result = algorithm.run(begin, Limits(epochs))
    losses = [float(record["inertia"]) for record in result.history]
    return [*losses, dc.quantization_error(problem.rows, result.centres)]
