"""Which programs have comparable results: times are compared only between those."""

from __future__ import annotations

from collections.abc import Mapping

TOLERANCE = 1e-3
"""Largest relative difference between comparable sums of squared distances.

Programs that round differently diverge slowly: ten iterations from the same centres end some 1e-5 apart.
A program that stopped early or sampled the rows is off by a per cent or more.
"""


def fair(
    ours: float, theirs: Mapping[str, float], tolerance: float = TOLERANCE
) -> tuple[list[str], list[str]]:
    """Return the programs whose times may be compared with ours, and remarks on the others.

    A program is left out if its cost differs from ours by more than `tolerance`, above or below: if ours
    is higher, our program did less.

    Examples
    --------
    >>> names, remarks = fair(100.0, {"good": 100.05, "sloppy": 104.0, "better": 99.0})
    >>> names
    ['good']
    >>> remarks[0]
    'sloppy ended with another cost (relative difference: +4.0e-02), so its time is not compared.'
    """
    gaps = {name: cost / ours - 1 for name, cost in theirs.items()}
    remarks = [
        f"{name} ended with another cost (relative difference: {gap:+.1e}), so its time is not compared."
        for name, gap in gaps.items()
        if abs(gap) > tolerance
    ]
    return [name for name, gap in gaps.items() if abs(gap) <= tolerance], remarks
