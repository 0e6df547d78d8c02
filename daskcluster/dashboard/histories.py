"""Histories of fits, rebuilt from the messages of `daskcluster.engine.fit_log`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from daskcluster.events import FitStarted, IterationEnded
from daskcluster.reports.progress import Remaining

_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(
        (
            "fit",
            "name",
            "state",
            "estimator",
            "algorithm",
            "phase",
            "seeding",
            "objective",
            "stop_reason",
            "reason",
        ),
        str,
    ),
    **dict.fromkeys(
        ("n_rows", "n_features", "n_clusters", "max_iter", "passes", "bytes_read"), int
    ),
    **dict.fromkeys(("share", "inertia", "seconds"), (int, float)),
}
"""The known history of a fit. Any client of the scheduler can send messages."""
_OF_START = ("algorithm", "n_rows", "n_features", "n_clusters", "max_iter")
_NEEDED = ("fit", "state", *_OF_START)
_STEP: tuple[Any, ...] = (int, (int, float, NoneType), (int, float), int, (int, float, NoneType))
_KEY = re.compile("[0-9a-f]{32}")
MOST_FITS = 100
MOST_ITERATIONS = 1_000
"""Of a fit; of more, every second one is left out."""


@dataclass(frozen=True)
class Step:
    """One iteration.

    Attributes
    ----------
    number : int
    value : float or None
        The objective; None if it is not finite.
    elapsed, seconds : float
        Seconds of all iterations until here, and of this one.
    rows_per_second : float or None
    skipped : float or None
        Share of the rows that bounds skipped.
    """

    number: int
    value: float | None
    elapsed: float
    seconds: float
    rows_per_second: float | None
    skipped: float | None


class FitHistory:
    """One fit.

    Attributes
    ----------
    facts : dict
        What is known of it, see `FitLog`.
    began, updated : float
        Seconds since the epoch, by the scheduler's clock.
    steps : list of Step
    """

    def __init__(self, stamp: float) -> None:
        self.facts: dict[str, Any] = {}
        self.began = self.updated = stamp
        self.steps: list[Step] = []
        self._remaining = Remaining()
        self._elapsed = 0.0

    def add(self, stamp: float, message: Mapping[str, Any]) -> None:
        """Take a message that was posted at `stamp`."""
        if not self.facts:
            self._remaining(
                FitStarted(**{name: message[name] for name in _OF_START}, engine="dask")
            )
        for number, value, seconds, rows, looked_at in message["iterations"]:
            self._elapsed += seconds
            self._remaining(IterationEnded(number, inertia=0.0, shift=0.0, seconds=seconds))
            rate = rows / seconds if rows and seconds > 0 else None
            skipped = None if looked_at is None else 1.0 - looked_at
            self.steps.append(Step(number, value, self._elapsed, seconds, rate, skipped))
        if len(self.steps) > MOST_ITERATIONS:
            del self.steps[1:-1:2]
        self.facts |= {key: message[key] for key in _KINDS if key in message}
        self.updated = stamp

    @property
    def title(self) -> str:
        """The name of the job, or else of the estimator."""
        found = (self.facts.get(name) for name in ("name", "estimator", "algorithm"))
        return next(filter(None, found), "")

    @property
    def is_running(self) -> bool:
        return self.facts.get("state") == "running"

    @property
    def has_failed(self) -> bool:
        return self.facts.get("state") == "failed"

    @property
    def at_most(self) -> float | None:
        """Seconds that a running fit may still take at most; None before its first iteration."""
        return self._remaining.at_most if self.is_running else None


class FitHistories:
    """The last fits that a scheduler heard of."""

    def __init__(self) -> None:
        self._fits: dict[str, FitHistory] = {}

    def add(self, stamp: float, message: object) -> None:
        """Take a message; what is none of ours is left alone."""
        if not isinstance(message, dict) or not _is_news(message):
            return
        key = message["fit"]
        if key not in self._fits:
            self._fits[key] = FitHistory(stamp)
        self._fits[key].add(stamp, message)
        while len(self._fits) > MOST_FITS:
            del self._fits[next(iter(self._fits))]

    def newest_first(self) -> list[FitHistory]:
        """Return all histories, the fit that began last first."""
        return sorted(self._fits.values(), key=lambda fit: fit.began, reverse=True)

    def find(self, key: str) -> FitHistory | None:
        """Return the history of that fit, if it is known."""
        return self._fits.get(key)


def _is_news(message: Mapping[Any, Any]) -> bool:
    steps = message.get("iterations")
    return (
        all(message.get(name) is not None for name in _NEEDED)
        and _KEY.fullmatch(str(message["fit"])) is not None
        and all(
            message.get(name) is None or isinstance(message[name], kinds)
            for name, kinds in _KINDS.items()
        )
        and isinstance(steps, list | tuple)
        and all(_is_step(step) for step in steps)
    )


def _is_step(step: object) -> bool:
    return (
        isinstance(step, list | tuple)
        and len(step) == len(_STEP)
        and all(isinstance(value, kinds) for value, kinds in zip(step, _STEP, strict=True))
    )
