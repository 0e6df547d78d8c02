"""Times count only where the results are as good: a program that stops early is always fast."""

from __future__ import annotations

from collections.abc import Mapping

TOLERANCE = 1e-3
"""By how much a sum of squared distances may be above the other one's, as a share of it.

Programs that round differently leave each other's path after a while: ten iterations from the same centres
end some 1e-5 apart. One that stopped or sampled is off by a per cent and more.
"""


def fair(
    ours: float, theirs: Mapping[str, float], tolerance: float = TOLERANCE
) -> tuple[list[str], list[str]]:
    """Return the programs whose times may be compared with ours, and remarks on the others.

    A program is left out where its cost is above ours by more than `tolerance`, and where ours is above
    its: then ours did less.

    Examples
    --------
    >>> names, remarks = fair(100.0, {"good": 100.05, "sloppy": 104.0, "better": 99.0})
    >>> names
    ['good']
    >>> remarks[0]
    'sloppy ended with a cost of +4.0e-02 of ours, so its time is not compared.'
    """
    gaps = {name: cost / ours - 1 for name, cost in theirs.items()}
    remarks = [
        f"{name} ended with a cost of {gap:+.1e} of ours, so its time is not compared."
        for name, gap in gaps.items()
        if abs(gap) > tolerance
    ]
    return [name for name, gap in gaps.items() if abs(gap) <= tolerance], remarks
