"""The comparisons by name, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast

from tests.benchmarks.harness.cells import Comparison, Target


@dataclass(frozen=True)
class Entry:
    """What a comparison is about, and what it takes; known without importing it."""

    what: str
    takes: str


COMPARISONS = {
    "assign": Entry(
        "nearest centres: the kernel against Faiss and the processor's peak",
        "two to three minutes (--quick: 20 seconds)",
    ),
    "lloyd": Entry(
        "Lloyd iterations in memory against every peer",
        "about 4 minutes on 2 cores (--quick: 20 seconds)",
    ),
    "lloyd-dask": Entry(
        "Lloyd on a Dask cluster: dask-ml, what Dask adds, one worker and two",
        "about 5 minutes on 2 cores (--quick: 1 minute)",
    ),
    "bounds": Entry(
        "exact accelerations to the fixed point",
        "about an hour on 2 cores (--quick: a minute)",
    ),
    "nested": Entry(
        "nested mini-batches: time to an energy, and to the end",
        "about a minute a seed on 2 cores and 2 GB of memory (--quick: a minute)",
    ),
    "coreset": Entry(
        "lightweight coresets against only reading the rows",
        "about 4 minutes on 2 cores, and 3 GB of disk in --scratch DIR (--quick: half a minute and 0.2 GB)",
    ),
    "mixture": Entry(
        "truncated EM against Faiss, and as components grow",
        "four to six minutes and 0.5 GB of memory (--quick: half a minute)",
    ),
    "kernel-k-means": Entry(
        "truncated mini-batches against all rows",
        "about 15 minutes on 2 cores, of which the full batch takes 12 (--quick: 20 seconds)",
    ),
    "predict": Entry(
        "labels of rows in memory and of a store",
        "about 2 minutes on 2 cores, and 0.3 GB of disk in --scratch DIR (--quick: 20 seconds)",
    ),
    "reading": Entry(
        "passes over stores by codec and size of chunks",
        "about 3 minutes on 2 cores, and 0.3 GB of disk in --scratch DIR (--quick: 20 seconds)",
    ),
    "growth": Entry(
        "time by n, d, k, chunk size, threads and workers",
        "about 6 minutes on 2 cores (--quick: a minute)",
    ),
    "memory": Entry(
        "peak memory out of core against what is promised",
        "about 4 minutes on 2 cores, and 0.7 GB of disk in --scratch DIR (--quick: a minute and 0.1 GB)",
    ),
    "import": Entry(
        "what starting costs",
        "about a minute (--quick: half of it)",
    ),
    "pipeline": Entry(
        "80 million rows from a store to labels",
        "about 10 minutes on 2 cores, and 6 GB of disk in --scratch DIR (--quick: 2 minutes and 0.3 GB)",
    ),
}
"""Each has a module of its own name in `tests.benchmarks.comparisons`, with _ for -."""

_MODULES = {"import": "start_up"}


def comparison(name: str) -> Comparison:
    """Return the comparison of that name."""
    module = _MODULES.get(name, name.replace("-", "_"))
    return cast(Comparison, import_module(f"tests.benchmarks.comparisons.{module}"))


def targets() -> list[tuple[str, Target]]:
    """Return all targets, each with the name of its comparison."""
    return [(name, target) for name in COMPARISONS for target in comparison(name).TARGETS]
