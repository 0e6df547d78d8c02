"""Nested mini-batches on 400,000 deformed digits: the comparison of `daskcluster bench`."""

from __future__ import annotations

from functools import partial

from daskcluster.bench.comparisons.nested import cells_of, show
from daskcluster.bench.parts import Part
from daskcluster.bench.store import Results
from tests.benchmarks.harness import Options, say
from tests.benchmarks.minibatch_sets import SETS, finished, folder_of

TAKES = (
    "about five minutes a seed on 2 cores, 6 GB of memory and 0.4 GB of disk in --scratch DIR, removed "
    "afterwards unless --keep (--quick: a minute); seeds that are done stay there, and an interrupted run "
    "goes on with them"
)
SEEDS = 2
SET = "digits"
MOST_STEPS = 4000
"""Of mini-batches: 50 passes."""


def run(options: Options) -> list[Part]:
    """Return the times to the energy, the times to the end and the energies there."""
    results = Results(folder_of(options) / "runs")
    kept = results.read(SET)
    for cell in cells_of(SET, partial(SETS[SET], options), MOST_STEPS, options):
        if cell.name not in kept:
            say(f"  {cell.name}")
            results.put(SET, cell.name, cell.measure())
    kept = results.read(SET)
    names = [cell.name for cell in cells_of(SET, partial(SETS[SET], options), MOST_STEPS, options)]
    parts = show({name: kept[name] for name in names}, options)
    finished(options)
    return parts
