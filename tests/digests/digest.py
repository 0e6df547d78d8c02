"""Digests of results, array by array, and the file of those that were committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Digests = dict[str, dict[str, str]]
"""By fit, then by array."""

COMMITTED = Path(__file__).with_name("digests.json")
REWRITE = "python -m tests.digests --write"


def digest_of(value: Any) -> str:
    """Return a digest of all bits of an array, of its dtype and its shape; of a text alike."""
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError(f"{type(value).__name__} is no array of numbers")
    found = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def digests_of(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of each result."""
    return {name: digest_of(value) for name, value in results.items()}


def committed() -> Digests:
    """Return what was committed."""
    return json.loads(COMMITTED.read_text()) if COMMITTED.exists() else {}


def write(digests: Digests) -> None:
    """Commit digests: a line for each fit, so that a difference shows which ones changed."""
    lines = [f"{json.dumps(name)}: {json.dumps(digests[name])}" for name in sorted(digests)]
    COMMITTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def differences(found: Digests, expected: Digests) -> dict[str, list[str]]:
    """Return the results that differ or are on one side only, by fit, for the fits that were found."""
    unlike = {}
    for name, digests in found.items():
        known = expected.get(name, {})
        names = [each for each in {**known, **digests} if known.get(each) != digests.get(each)]
        if names:
            unlike[name] = names
    return unlike


def message(unlike: Mapping[str, list[str]], n_fits: int, tile: str) -> str:
    """Return what is said of fits that differ: which, in what, and what to do."""
    lines = [f"  {name}: {', '.join(results)}" for name, results in unlike.items()]
    return "\n".join(
        [
            f"{len(unlike)} of {n_fits} fits on the {tile} tile have other bits than "
            f"tests/digests/{COMMITTED.name}:",
            *lines,
            "Results should have the same bits on every machine. If all tiles agree on the new ones, and "
            f"they are meant, say so in the changelog and run `{REWRITE}`; else find what rounds "
            "differently.",
        ]
    )
