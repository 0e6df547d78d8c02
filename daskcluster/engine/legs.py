"""Passes that are made in legs, so that one that was interrupted need not be made again from its beginning.

A leg is every L-th unit of the dataset, which leaves something to do for every worker. Totals are exact:
what legs add up to is what the whole pass would have given, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

MOST_LEGS = 32
UNITS_PER_THREAD = 4
"""Of a leg, at least: threads wait for each other at its end."""
LEAST_SECONDS = 4.0
"""Legs that are shorter are made together, as long as an interrupt waits for their end
(`daskcluster.interrupts.GRACE_SECONDS`)."""
_MOST_GROWTH = 8


@dataclass(frozen=True)
class Leg:
    """Where a pass is.

    Attributes
    ----------
    number : int
        Of the pass, counted from 1.
    n_legs, n_units : int
        Of the whole pass; units are those of the placement.
    done : int
        Legs that are done.
    total : object
        The statistics of all units of these, combined; None if there are none.

    Examples
    --------
    >>> Leg(number=1, n_legs=3, n_units=8, done=1).units(1)
    [1, 4, 7]
    """

    number: int
    n_legs: int
    n_units: int
    done: int = 0
    total: Any = None

    @property
    def is_last(self) -> bool:
        """Nothing is left to do."""
        return self.done >= self.n_legs

    def units(self, legs: int) -> Sequence[int]:
        """Return the units of the next `legs` legs."""
        first, last = self.done, self.done + legs
        return [unit for unit in range(self.n_units) if first <= unit % self.n_legs < last]

    def after(self, legs: int, total: Any) -> Leg:
        """Return where the pass is `legs` legs later."""
        return replace(self, done=min(self.n_legs, self.done + legs), total=total)


class Legs:
    """The passes of one piece of work.

    Parameters
    ----------
    keep : callable (Leg) -> None
        Hears of every leg that is done, but for the last ones of passes.
    begun : Leg, optional
        Of earlier work on the same rows, which makes the same passes in the same order: that pass goes on
        from there.
    """

    def __init__(self, keep: Callable[[Leg], None], begun: Leg | None = None) -> None:
        self._keep, self._begun = keep, begun
        self._number = 0

    def begin(self, n_units: int, n_threads: int) -> Leg:
        """Return where the next pass begins."""
        self._number += 1
        begun = self._begun
        if begun is not None and (begun.number, begun.n_units) == (self._number, n_units):
            return begun
        n_legs = min(MOST_LEGS, n_units // (UNITS_PER_THREAD * max(1, n_threads)))
        return Leg(self._number, max(1, n_legs), n_units)

    def ended(self, leg: Leg) -> None:
        """Take note of a leg that is done."""
        if not leg.is_last:
            self._keep(leg)


def legs_together(legs: int, seconds: float) -> int:
    """Return how many legs to make next, where the last `legs` took `seconds`.

    Examples
    --------
    >>> legs_together(1, 2.0), legs_together(4, 50.0), legs_together(1, 0.001)
    (2, 1, 8)
    """
    wanted = int(legs * LEAST_SECONDS / max(seconds, 1e-9))
    return max(1, min(wanted, legs * _MOST_GROWTH))
