"""Figures 3, 6 and 7: position correction, epoch size and learning rate; and number of partitions."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.energy_runs import RunFiles
from tests.benchmarks.harness.parts import Figure, Note, Table, file_name
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.vrkm.plots import Sweep, draw_sweeps
from tests.benchmarks.vrkm.problems import Problem
from tests.benchmarks.vrkm.programs import Outcome, variance_reduced
from tests.benchmarks.vrkm.uncorrected import losses
from tests.benchmarks.vrkm.unguarded import unguarded_losses

SIZES = (0.25, 0.5, 1.0, 2.0, "doubling")
MULTIPLES = (1, 2, 5, 10, 20, 50, 100, 200)
PARTS = (1, 4, 16, 64)
EPOCHS, QUICK_EPOCHS, LARGE_EPOCHS = 20, 6, 8
"""Epochs of each fit; `LARGE_EPOCHS` for large sets."""


def _epochs(problem: Problem, settings: Settings) -> int:
    if settings.quick:
        return QUICK_EPOCHS
    return LARGE_EPOCHS if problem.is_large else EPOCHS


def _get(
    problem: Problem, files: RunFiles[Outcome], settings: Settings, name: str, **changes: Any
) -> Outcome:
    epochs = _epochs(problem, settings)
    return files.get(
        f"{name}-{epochs}",
        lambda: variance_reduced(problem, 0, settings.threads, None, max_iter=epochs, **changes),
    )


def _base(problem: Problem) -> float:
    return problem.k / len(problem.rows)


def figures(
    problem: Problem, files: RunFiles[Outcome], settings: Settings
) -> list[Table | Figure | Note]:
    """Return the tables of Figures 3 (CIFAR-10 only), 6 and 7, and their plot."""
    by_size = _by_size(problem, files, settings)
    by_rate, guarded = (
        _by_rate(problem, files, settings),
        _by_guarded_rate(problem, files, settings),
    )
    tables = [_figure6(problem, by_size, settings), _figure7(problem, by_rate, guarded, settings)]
    panels = [
        Sweep("Figure 6: epoch size T", by_size),
        Sweep("Figure 6: epoch size T", by_size, against="seconds"),
        Sweep("Figure 7: eta / (K / n), no guard", by_rate),
        Sweep("Figure 7, with the guard", guarded),
    ]
    if problem.name == "cifar10_test10k":
        corrections = _by_correction(problem, files, settings, by_size["1.0 n"])
        tables.insert(0, _figure3(problem, corrections, settings))
        panels.insert(0, Sweep("Figure 3: position correction", corrections))
    return [*tables, draw_sweeps(problem, panels, settings.images)]


def _by_correction(
    problem: Problem, files: RunFiles[Outcome], settings: Settings, corrected: Outcome
) -> dict[str, Outcome]:
    epochs = min(_epochs(problem, settings), 8)
    plain = files.get(
        f"uncorrected-{epochs}",
        lambda: _outcome(losses(problem, 0, epochs, rate=_base(problem))),
    )
    first = _outcome(corrected.losses[: epochs + 1])
    return {"SVRG without correction": plain, "VRKM++": first}


def _by_size(problem: Problem, files: RunFiles[Outcome], settings: Settings) -> dict[str, Outcome]:
    return {
        "2^s" if size == "doubling" else f"{size} n": _get(
            problem, files, settings, f"size-{size}", epoch_size=size
        )
        for size in SIZES
    }


def _rates(problem: Problem) -> dict[int, float]:
    rates = {multiple: multiple * _base(problem) for multiple in MULTIPLES}
    return {multiple: rate for multiple, rate in rates.items() if rate <= 1}


def _by_guarded_rate(
    problem: Problem, files: RunFiles[Outcome], settings: Settings
) -> dict[str, Outcome]:
    return {
        str(multiple): _get(problem, files, settings, f"rate-{multiple}", learning_rate=rate)
        for multiple, rate in _rates(problem).items()
    }


def _by_rate(problem: Problem, files: RunFiles[Outcome], settings: Settings) -> dict[str, Outcome]:
    """Return fits with a constant learning rate, without the guard against divergence."""
    epochs = _epochs(problem, settings)

    def run(rate: float) -> Outcome:
        return _outcome(unguarded_losses(problem, 0, settings.threads, epochs, rate=rate))

    return {
        str(multiple): files.get(f"unguarded-{multiple}-{epochs}", lambda rate=rate: run(rate))
        for multiple, rate in _rates(problem).items()
    }


def _figure3(problem: Problem, found: dict[str, Outcome], settings: Settings) -> Table:
    """Return the loss with and without position correction."""
    epochs = min(_epochs(problem, settings), 8)
    start = next(iter(found.values())).losses[0]
    table = Table(
        f"Figure 3: loss relative to the start, {problem.name}, eta = K / n, T = n",
        ["epochs", *range(epochs + 1)],
        notes=[
            "SVRG without position correction was written for this table; the estimator does not "
            "offer it. It "
            "ends with nearly all rows in a few clusters."
        ],
    )  # fmt: skip
    for name, outcome in found.items():
        cells = [f"{loss / start:.3g}" for loss in outcome.losses]
        table.rows.append([name, *cells, *[None] * (epochs + 1 - len(cells))])
    return table


def _outcome(found: list[float]) -> Outcome:
    steps = [float(i) for i in range(len(found))]
    return Outcome(steps, found, found[-1], 0.0, len(found) - 1, [], {})


def _figure6(problem: Problem, found: dict[str, Outcome], settings: Settings) -> Table:
    """Return the loss by epoch size."""
    table = _table(problem, settings, "Figure 6: epoch size T")
    table.rows = [[name, *_cells(outcome)] for name, outcome in found.items()]
    return table


def _figure7(
    problem: Problem, free: dict[str, Outcome], guarded: dict[str, Outcome], settings: Settings
) -> Table:
    """Return the loss by learning rate, from the paper's up to rates that diverge."""
    table = _table(problem, settings, "Figure 7: learning rate, in multiples of K / n")
    table.header = [*table.header, "last loss without the guard", "best loss without it"]
    for name, outcome in guarded.items():
        bare = free[name]
        table.rows.append([name, *_cells(outcome), f"{bare.loss:.6g}", f"{min(bare.losses):.6g}"])
    return table


def partitions(problem: Problem, files: RunFiles[Outcome], settings: Settings) -> Table:
    """Return the loss by number of parallel partitions, at a low and a high rate."""
    table = _table(problem, settings, "Number of partitions, and eta in multiples of K / n")
    for multiple in (1, 10):
        for parts in PARTS:
            rate = min(1.0, multiple * _base(problem))
            name = f"parts-{parts}-{multiple}"
            outcome = _get(problem, files, settings, name, n_partitions=parts, learning_rate=rate)
            table.rows.append([f"{parts}, {multiple}", *_cells(outcome)])
    return table


def _table(problem: Problem, settings: Settings, what: str) -> Table:
    epochs = _epochs(problem, settings)
    return Table(
        f"{what}: {problem.name}, {epochs} epochs",
        ["value", "loss after 3 epochs", "after half", "last", "seconds", "undone epochs"],
        name=f"{file_name(what)}-{file_name(problem.name)}",
    )


def _cells(outcome: Outcome) -> list[Any]:
    half = len(outcome.losses) // 2
    return [
        f"{outcome.losses[min(3, len(outcome.losses) - 1)]:.6g}",
        f"{outcome.losses[half]:.6g}",
        f"{outcome.loss:.6g}",
        outcome.fit_seconds,
        outcome.facts["went_back"],
    ]
