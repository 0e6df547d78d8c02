"""Segments of a pass: an interrupted pass resumes after its last complete segment.

Of L segments, each takes every L-th work item, so every worker has work. Totals are exact: the sum over
segments is bit-identical to the total of the whole pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

MAX_SEGMENTS = 32
ITEMS_PER_THREAD = 4
"""Work items per thread in a segment, at least: threads wait for each other at its end."""
MIN_SECONDS = 4.0
"""Shorter segments run together, for no longer than an interrupt waits for the end of a segment
(`daskcluster.interrupts.GRACE_SECONDS`)."""
_MOST_GROWTH = 8


@dataclass(frozen=True)
class Segment:
    """The position of a pass.

    Attributes
    ----------
    number : int
        Number of the pass, from 1.
    n_segments, n_work_items : int
        Totals of the whole pass; work items are those of the placement.
    done : int
        Number of complete segments.
    total : object
        Combined statistics of the complete segments; None if there are none.

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
        """True if all segments are complete."""
        return self.done >= self.n_segments

    def work_items(self, segments: int) -> Sequence[int]:
        """Return the work items of the next `segments` segments."""
        first, last = self.done, self.done + segments
        return [item for item in range(self.n_work_items) if first <= item % self.n_segments < last]

    def after(self, segments: int, total: Any) -> Segment:
        """Return the position after `segments` more segments, with the new total."""
        return replace(self, done=min(self.n_segments, self.done + segments), total=total)


class Segments:
    """The passes of one fit, with a callback for their segments.

    Parameters
    ----------
    keep : callable (Segment) -> None
        Called with every complete segment except the last one of each pass.
    resumed_from : Segment, optional
        Position of an earlier fit of the same rows that runs the same passes in the same order. The pass of
        the same number resumes there.
    """

    def __init__(
        self, keep: Callable[[Segment], None], resumed_from: Segment | None = None
    ) -> None:
        self._keep, self._resumed_from = keep, resumed_from
        self._number = 0

    def begin(self, n_work_items: int, n_threads: int) -> Segment:
        """Return the initial position of the next pass."""
        self._number += 1
        old = self._resumed_from
        if old is not None and (old.number, old.n_work_items) == (self._number, n_work_items):
            return old
        n_segments = min(MAX_SEGMENTS, n_work_items // (ITEMS_PER_THREAD * max(1, n_threads)))
        return Segment(self._number, max(1, n_segments), n_work_items)

    def ended(self, segment: Segment) -> None:
        """Report a complete segment to the callback."""
        if not segment.is_last:
            self._keep(segment)


def next_segment_count(segments: int, seconds: float) -> int:
    """Return how many segments to run next if the last `segments` took `seconds`.

    Examples
    --------
    >>> next_segment_count(1, 2.0), next_segment_count(4, 50.0), next_segment_count(1, 0.001)
    (2, 1, 8)
    """
    wanted = int(segments * MIN_SECONDS / max(seconds, 1e-9))
    return max(1, min(wanted, segments * _MOST_GROWTH))
