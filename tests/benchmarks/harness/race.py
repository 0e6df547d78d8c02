"""Timing of programs that take turns.

Times on a shared machine drift by a third, but ratios within one run are stable. So a comparison runs all
programs in the same process tree, in rotated order, and compares medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REST = 0.25
"""Seconds before each run, in which threads of the previous run stop spinning (OpenMP: up to 0.2)."""


@dataclass(frozen=True)
class Outcome:
    """Seconds of every repeat of one program, and the value of its last run."""

    seconds: tuple[float, ...]
    value: Any

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def race(
    programs: Mapping[str, Callable[[], Any]],
    repeats: int,
    warm_up: Mapping[str, Callable[[], Any]] | None = None,
    *,
    pause: float | None = None,
) -> dict[str, Outcome]:
    """Run every program `repeats` times; each round starts with another program.

    A first round without measurement compiles kernels and starts pools. For long programs, `warm_up` has
    shorter programs of the same kind. `pause` is the rest before each run, default `REST`.

    Examples
    --------
    >>> found = race({"a": lambda: 1, "b": lambda: 2}, 3, pause=0.0)
    >>> found["b"].value, len(found["b"].seconds)
    (2, 3)
    """
    values = {name: program() for name, program in (warm_up or programs).items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for name in turns(list(programs), repeats):
        time.sleep(REST if pause is None else pause)
        begin = time.perf_counter()
        values[name] = programs[name]()
        seconds[name].append(time.perf_counter() - begin)
    return {name: Outcome(tuple(seconds[name]), values[name]) for name in programs}


def turns(names: Sequence[str], repeats: int) -> Iterator[str]:
    """Yield every name once per round; each round starts with another name.

    Examples
    --------
    >>> "".join(turns("abc", 2))
    'abcbca'
    """
    for turn in range(repeats):
        first = turn % len(names)
        yield from (*names[first:], *names[:first])


def rest() -> None:
    """Wait until the threads of the previous run have stopped spinning."""
    time.sleep(REST)


def say(text: str) -> None:
    """Write a line of progress to stderr; results go to stdout."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
