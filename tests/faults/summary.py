"""Summary of trials: counts, times, and the tables of ``docs/explanation/reliability.md``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from tests.benchmarks.harness.parts import Table
from tests.faults.trials import KINDS, NOTICE_SECONDS, Outcome


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the figures of all trials, by kind, and by algorithm."""
    hits = [outcome for outcome in outcomes if outcome.landed]
    algorithms = sorted({outcome.plan.algorithm for outcome in hits})
    return {
        "all": _figures(hits),
        "missed": len(outcomes) - len(hits),
        "kinds": {k: _figures([o for o in hits if o.plan.kind == k]) for k in KINDS},
        "algorithms": {a: _figures([o for o in hits if o.plan.algorithm == a]) for a in algorithms},
        "troubles": [o.as_dict() for o in hits if o.trouble],
    }


def _figures(hits: Sequence[Outcome]) -> dict[str, Any]:
    well = [outcome for outcome in hits if outcome.recovered]
    times = sorted(outcome.recovery for outcome in well)
    noticed = sorted(o.noticed for o in hits if o.noticed)
    return {
        "trials": len(hits),
        "recovered": len(well),
        "wrong": sum(not outcome.right for outcome in well),
        "resumed": sum(outcome.resumed for outcome in well),
        "undisturbed": median([o.undisturbed for o in hits]) if hits else 0.0,
        "recovery_median": median(times) if times else 0.0,
        "recovery_worst": times[-1] if times else 0.0,
        "noticed_median": median(noticed) if noticed else 0.0,
        "noticed_worst": noticed[-1] if noticed else 0.0,
    }


def tables(found: dict[str, Any], timeout: float = NOTICE_SECONDS) -> list[Table]:
    """Return the tables of the section: by kind of kill, and by algorithm."""
    names = {
        "worker": "workers (one, or all but one)",
        "client": "the client; the command is run again",
        "scheduler": "the scheduler; the command is run again on a new cluster",
    }
    columns = ["trials", "recovered", "wrong results", "resumed", "whole fit, s", "kill to result, s",
               "worst, s"]  # fmt: skip
    kinds = [_row(names[kind], figures) for kind, figures in found["kinds"].items()]
    algorithms = [_row(f"`{name}`", figures) for name, figures in found["algorithms"].items()]
    lost, notes = found["kinds"]["scheduler"], []
    if lost["trials"]:
        notes = [
            f"After losing its scheduler, the command ended with the expected error after "
            f"{lost['noticed_median']:.1f} s (median; worst {lost['noticed_worst']:.1f} s), with "
            f"`--timeout {timeout:g}`. In the row of the scheduler, the last two columns count from "
            "that error."
        ]
    rows = [*kinds, _row("**all**", found["all"])]
    return [
        Table("By what was killed", ["killed", *columns], rows, notes, shown=True),
        Table("By algorithm or command", ["algorithm or command", *columns], algorithms),
    ]


def _row(name: str, f: dict[str, Any]) -> list[Any]:
    counts = (f["trials"], f["recovered"], f["wrong"], f["resumed"])
    times = (f["undisturbed"], f["recovery_median"], f["recovery_worst"])
    return [name, *counts, *(f"{seconds:.1f}" for seconds in times)]
