"""Passes in segments: an interrupted pass resumes after its last complete segment.

A segment is every L-th work item, so there is work for every worker. Totals are exact: segments
add up to what the whole pass gives, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

MAX_SEGMENTS = 32
ITEMS_PER_THREAD = 4
"""Of a segment, at least: threads wait for each other at its end."""
MIN_SECONDS = 4.0
"""Segments that are shorter are made together, as long as an interrupt waits for their end
(`daskcluster.interrupts.GRACE_SECONDS`)."""
_MOST_GROWTH = 8


@dataclass(frozen=True)
class Segment:
    """Where a pass is.

    Attributes
    ----------
    number : int
        Of the pass, counted from 1.
    n_segments, n_work_items : int
        Of the whole pass; work items are those of the placement.
    done : int
        Segments that are done.
    total : object
        The statistics of all work items of these, combined; None if there are none.

    Examples
    --------
    >>> Segment(number=1, n_segments=3, n_work_items=8, done=1).work_items(1)
    [1, 4, 7]
    """

    number: int
    n_segments: int
    n_work_items: int
    done: int = 0
    total: Any = None

    @property
    def is_last(self) -> bool:
        """Nothing is left to do."""
        return self.done >= self.n_segments

    def work_items(self, segments: int) -> Sequence[int]:
        """Return the work items of the next `segments` segments."""
        first, last = self.done, self.done + segments
        return [item for item in range(self.n_work_items) if first <= item % self.n_segments < last]

    def after(self, segments: int, total: Any) -> Segment:
        """Return where the pass is `segments` segments later."""
        return replace(self, done=min(self.n_segments, self.done + segments), total=total)


class Segments:
    """The passes of one piece of work.

    Parameters
    ----------
    keep : callable (Segment) -> None
        Hears of every segment that is done, but for the last ones of passes.
    resumed_from : Segment, optional
        Of earlier work on the same rows, which makes the same passes in the same order: that pass resumes
        there.
    """

    def __init__(
        self, keep: Callable[[Segment], None], resumed_from: Segment | None = None
    ) -> None:
        self._keep, self._resumed_from = keep, resumed_from
        self._number = 0

    def begin(self, n_work_items: int, n_threads: int) -> Segment:
        """Return where the next pass begins."""
        self._number += 1
        old = self._resumed_from
        if old is not None and (old.number, old.n_work_items) == (self._number, n_work_items):
            return old
        n_segments = min(MAX_SEGMENTS, n_work_items // (ITEMS_PER_THREAD * max(1, n_threads)))
        return Segment(self._number, max(1, n_segments), n_work_items)

    def ended(self, segment: Segment) -> None:
        """Take note of a segment that is done."""
        if not segment.is_last:
            self._keep(segment)


def next_segment_count(segments: int, seconds: float) -> int:
    """Return how many segments to make next, where the last `segments` took `seconds`.

    Examples
    --------
    >>> next_segment_count(1, 2.0), next_segment_count(4, 50.0), next_segment_count(1, 0.001)
    (2, 1, 8)
    """
    wanted = int(segments * MIN_SECONDS / max(seconds, 1e-9))
    return max(1, min(wanted, segments * _MOST_GROWTH))
