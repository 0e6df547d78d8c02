"""What ``verbose=1`` says: one line an iteration, on standard output, as scikit-learn does."""

from __future__ import annotations

import sys
from typing import Any

from daskcluster.events import (
    Callback,
    EMStepEnded,
    Event,
    FitEnded,
    IterationEnded,
    Notice,
    SeedingEnded,
    StartEnded,
)


def line_for(event: Event) -> str | None:
    """Return the line that tells of `event`, or None where it is not worth one."""
    if isinstance(event, SeedingEnded):
        return (
            f"Initialization complete: {event.method}, {event.passes} passes, {event.seconds:.2f} s"
        )
    if isinstance(event, EMStepEnded):
        return f"Iteration {event.iteration}, free energy {event.free_energy:.8g}, {event.seconds:.3f} s"
    if isinstance(event, IterationEnded):
        return f"Iteration {event.iteration}, inertia {event.inertia:.8g}, {event.seconds:.3f} s"
    if isinstance(event, StartEnded):
        return f"Start {event.number + 1} of {event.n_init}, inertia {event.inertia:.8g}"
    if isinstance(event, Notice):
        return event.text
    if isinstance(event, FitEnded):
        return (
            f"Stopped after {event.n_iter} iterations ({event.stop_reason}), "
            f"inertia {event.inertia:.8g}, {event.passes} passes, {event.seconds:.2f} s"
        )
    return None


def all_callbacks(estimator: Any) -> tuple[Callback, ...]:
    """Return who hears the events of a fit: the estimator's callbacks, and `say` if it is verbose."""
    return (*estimator.callbacks, say) if estimator.verbose else tuple(estimator.callbacks)


def say(event: Event) -> None:
    """A callback that writes `line_for` an event."""
    line = line_for(event)
    if line is not None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
