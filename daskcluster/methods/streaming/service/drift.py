"""What is done when new rows no longer fit: an event is told, and a command may be run."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from daskcluster.events import DriftFound, Event

_SECONDS = 60.0


@dataclass
class DriftCommand:
    """A callback that runs a command when the error of new rows jumps.

    The command is run without a shell; it gets one JSON object on its standard input: ``rows_seen``,
    ``error``, ``baseline``, ``ratio``, ``counts``. The stream waits for it, for a minute at most, and goes
    on whatever becomes of it.

    Parameters
    ----------
    command : tuple of str
        Program and arguments.

    Attributes
    ----------
    failures : list of str
        What went wrong with it.

    Examples
    --------
    >>> command = DriftCommand(("false",))
    >>> command(DriftFound(100, 3.0, 1.0, (60.0, 40.0)))
    >>> command.failures
    ['the command for drift ended with code 1']
    """

    command: tuple[str, ...]

    def __post_init__(self) -> None:
        self.failures: list[str] = []

    def __call__(self, event: Event) -> None:
        if not isinstance(event, DriftFound):
            return
        try:
            done = subprocess.run(
                self.command,
                input=json.dumps(drift_facts(event)),
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.failures.append(f"the command for drift could not be run ({error})")
            return
        if done.returncode:
            self.failures.append(f"the command for drift ended with code {done.returncode}")


def drift_facts(event: DriftFound) -> dict[str, object]:
    """Return a drift as plain values."""
    return {
        "rows_seen": event.n_rows,
        "error": event.error,
        "baseline": event.baseline,
        "ratio": event.error / event.baseline if event.baseline else None,
        "counts": list(event.counts),
    }
