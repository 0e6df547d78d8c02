"""Nested mini-batches on 400,000 deformed digits, measured as in ``compare --only nested``."""

from __future__ import annotations

from functools import partial

from tests.benchmarks.comparisons.nested import cells_of, show
from tests.benchmarks.harness.parts import Part
from tests.benchmarks.harness.race import say
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.harness.store import Results
from tests.benchmarks.minibatch_sets import SETS, finished, folder_of

ABOUT = "nested mini-batches on 400,000 deformed digits against scikit-learn"
TAKES = (
    "about five minutes a seed on 2 cores, 6 GB of memory and 0.4 GB of disk in --scratch DIR, removed "
    "afterwards unless --keep (--quick: a minute); finished seeds are saved, and an interrupted run "
    "resumes"
)
SEEDS = 2
SET = "digits"
MOST_STEPS = 4000
"""Mini-batch steps: 50 passes."""


def run(settings: Settings) -> list[Part]:
    """Return the table of times to the energy, and the table of whole fits."""
    results = Results(folder_of(settings) / "runs")
    kept = results.read(SET)
    for cell in cells_of(SET, partial(SETS[SET], settings), MOST_STEPS, settings):
        if cell.name not in kept:
            say(f"  {cell.name}")
            results.put(SET, cell.name, cell.measure())
    kept = results.read(SET)
    names = [
        cell.name for cell in cells_of(SET, partial(SETS[SET], settings), MOST_STEPS, settings)
    ]
    parts = show({name: kept[name] for name in names}, settings)
    finished(settings)
    return parts
