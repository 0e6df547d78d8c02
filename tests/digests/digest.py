"""Digests of results, array by array, and the file of committed digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Digests = dict[str, dict[str, str]]
"""Digests by fit and array."""

COMMITTED = Path(__file__).with_name("digests.json")
REWRITE = "python -m tests.digests --write"


def digest_of(value: Any) -> str:
    """Return a digest of the bits, dtype and shape of an array, or of a text."""
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"{type(value).__name__} is not an array of numbers")
    found = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def digests_of(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each result."""
    return {name: digest_of(value) for name, value in results.items()}


def committed() -> Digests:
    """Return the committed digests."""
    return json.loads(COMMITTED.read_text()) if COMMITTED.exists() else {}


def write(digests: Digests) -> None:
    """Write digests, one line for each fit, so that a diff shows which fits changed."""
    lines = [f"{json.dumps(name)}: {json.dumps(digests[name])}" for name in sorted(digests)]
    COMMITTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def differences(found: Digests, expected: Digests) -> dict[str, list[str]]:
    """Return the results that differ or are missing on one side, for each fit in `found`."""
    unlike = {}
    for name, digests in found.items():
        known = expected.get(name, {})
        names = [each for each in {**known, **digests} if known.get(each) != digests.get(each)]
        if names:
            unlike[name] = names
    return unlike


def message(unlike: Mapping[str, list[str]], n_fits: int, tile: str) -> str:
    """Return the message on fits that differ: which fits, which results, what to do."""
    lines = [f"  {name}: {', '.join(results)}" for name, results in unlike.items()]
    return "\n".join(
        [
            f"{len(unlike)} of {n_fits} fits on the {tile} tile have other bits than "
            f"tests/digests/{COMMITTED.name}:",
            *lines,
            "Results must have the same bits on every machine. If all tiles agree on the new bits and the "
            f"change is intended, note it in the changelog and run `{REWRITE}`; otherwise find what rounds "
            "differently.",
        ]
    )
