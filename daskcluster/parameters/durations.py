"""Times as people write them."""

from __future__ import annotations

import re

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(s|min|m|h|d|w)\s*", re.IGNORECASE)


def seconds_of(text: str) -> float | None:
    """Return a time such as ``"90s"``, ``"10m"``, ``"6h"``, ``"7d"`` in seconds; None if it is none.

    Examples
    --------
    >>> seconds_of("1.5h"), seconds_of("200")
    (5400.0, None)
    """
    match = _DURATION.fullmatch(text)
    return float(match.group(1)) * _UNITS[match.group(2).lower()] if match else None
