"""Compute how much memory workers need, from the output of a dry run.

    daskcluster fit SOURCE --n-clusters 50 --workers 8 --threads 4 --dry-run --json | python deploy/size.py

Prints three sizes: `least` has room for the work only, `resident` also keeps all rows in memory after the
first pass, and `bounds` also keeps the bounds that let exact algorithms skip rows. Pick one with
--size NAME to get it as values for the Helm chart, in YAML.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any

HEADROOM = 0.75
"""Share of its limit that a worker should use: Dask pauses it at 0.8 and kills it at 0.95."""
SHARED = 0.5
"""Share of its limit that state and resident rows may use (`daskcluster.engine.memory`)."""
_STEP = 256 * 1024**2


def sizes(found: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of memory that one worker needs, for each size.

    Parameters
    ----------
    found : mapping
        The JSON object printed by a dry run with ``--workers``.

    Examples
    --------
    >>> plan = {"baseline": 4 << 28, "working": 2 << 28, "state": 0}
    >>> dry = {"planned": True, "processes": 2, "memory": plan, "bytes_decoded": 8 << 30}
    >>> {name: size >> 20 for name, size in sizes(dry).items()}
    {'least': 1024, 'resident': 9216, 'bounds': 9216}
    """
    if not found.get("planned"):
        raise ValueError(
            "this algorithm cannot say beforehand how much memory it needs; size it by a trial run."
        )
    if found["processes"] < 1:
        raise ValueError(
            "the dry run needs --workers and --threads, as the cluster will have them."
        )
    memory, processes = found["memory"], found["processes"]
    fixed = memory["baseline"] + memory["working"] + memory["state"]
    kept = memory["baseline"] + memory["state"] + found["bytes_decoded"]
    bounds = max(found.get("bounds", {}).get("needed", {}).values(), default=0)
    wanted = {
        "least": fixed / HEADROOM,
        "resident": max(fixed / HEADROOM, kept / SHARED),
        "bounds": max(fixed / HEADROOM, (kept + bounds) / SHARED),
    }
    return {name: _rounded(size / processes) for name, size in wanted.items()}


def _rounded(size: float) -> int:
    return max(1, math.ceil(size / _STEP)) * _STEP


def values(found: Mapping[str, Any], size: int) -> str:
    """Return values of the Helm chart for workers with `size` bytes of memory."""
    threads = max(1, found["threads"] // found["processes"])
    amounts = f'{{cpu: "{threads}", memory: {size // 1024**2}Mi}}'
    return (
        f"worker:\n  replicas: {found['processes']}\n  resources:\n"
        f"    requests: {amounts}\n    limits: {amounts}\n"
    )


def main(arguments: list[str]) -> int:
    found = json.loads(sys.stdin.read().strip().splitlines()[-1])
    try:
        fitting = sizes(found)
        name = arguments[arguments.index("--size") + 1] if "--size" in arguments else ""
        if name:
            sys.stdout.write(values(found, fitting[name]))
            return 0
    except (ValueError, KeyError, IndexError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    threads = found["threads"] // found["processes"]
    for name, size in fitting.items():
        print(
            f"{name:<9} {found['processes']} workers of {threads} threads and {size / 1024**3:g} GiB"
        )
    read = found["bytes_at_most"] / 1000**3
    print(f"at most {found['passes_at_most']} passes and {read:.3g} GB from storage")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
