"""The scaling model: rates of this machine, predicted against measured passes, and projections.

Parts are saved in --scratch, so that they can be measured one at a time (``--sets rates``, ``workers``,
``lines``). Tables and plots use all saved parts.
"""

from __future__ import annotations

import shutil

from tests.benchmarks.energy_runs import write_results
from tests.benchmarks.harness.parts import Figure, Note, Table
from tests.benchmarks.harness.settings import Settings
from tests.benchmarks.scaling import lines, plots, projections, tables, workers
from tests.benchmarks.scaling.parts import PARTS, Parts

ABOUT = (
    "the scaling model: rates measured on one machine, predicted against measured passes, and "
    "projections for large data"
)
TAKES = (
    "about 4 minutes on 2 cores (--quick: 2); parts stay in --scratch with --keep, "
    "--sets rates,workers,lines selects parts; lines needs root and iproute2"
)


def run(settings: Settings) -> list[Table | Figure | Note]:
    """Measure the selected parts; return the tables of all saved parts."""
    parts = Parts(settings.folder("daskcluster-scaling"))
    asked = settings.sets or PARTS
    if "rates" in asked:
        parts.measure_rates()
    if "workers" in asked:
        parts.put("workers", workers.compare(parts.rates(), quick=settings.quick))
    if "lines" in asked:
        parts.put("lines", lines.compare(parts.rates(), quick=settings.quick))
    rates = parts.rates()
    large = projections.project_all(rates)
    write_results(settings, "scaling", {**parts.kept, "projections": large})
    found: list[Table | Figure | Note] = [
        tables.rates_table(parts.kept),
        tables.workers_table(parts.kept.get("workers", [])),
        tables.lines_table(parts.kept.get("lines", [])),
        *tables.projection_tables(large),
        plots.draw(large, settings.images),
    ]
    if not settings.keep:
        shutil.rmtree(parts.folder, ignore_errors=True)
    return found
