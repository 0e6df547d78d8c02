"""A job from outside, in one file: the smallest and the largest value of every feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.writer import RowsShape, write_rows
from daskcluster.estimators.plan import Plan
from daskcluster.extending import JobSpec, Output, register_job
from daskcluster.jobs.run import Run
from daskcluster.models.record import Record


@dataclass(frozen=True)
class ExtremesRecord(Record):
    """What `extremes` returns."""

    output: str
    smallest: float
    largest: float


def extremes(
    source: Any,
    *,
    output: str,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str = "error",
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Any] = (),
) -> ExtremesRecord:
    """Write the smallest and the largest value of every feature of `source` to a Zarr array (2, d)."""
    with Run("extremes", locals()) as run:
        before = run.begin(ExtremesRecord)
        if before is not None:
            return before
        dataset, _ = run.open_rows()
        chunks = [chunk.rows for chunk in dataset.chunks(dataset.partitions)]
        found = np.stack([
            np.min([rows.min(axis=0) for rows in chunks], axis=0),
            np.max([rows.max(axis=0) for rows in chunks], axis=0),
        ])  # fmt: skip
        run.begin_output()
        write_rows(output, [found], RowsShape.of(found), overwrite=run.overwrite)
        low, high = float(found[0].min()), float(found[1].max())
        common = run.counters.common(dataset)
        return run.done(ExtremesRecord(output=output, smallest=low, largest=high, **common))


def plan(dataset: Any, given: Mapping[str, Any]) -> Plan:
    """Return what the job will cost."""
    from daskcluster.methods.kmeans.fit import fit_footprint

    return Plan("", 0, 1, 1, fit_footprint(dataset, 1, "sample"), float(dataset.n_rows))


def lines(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the record as lines of text."""
    return [("values", f"{record['smallest']:g} to {record['largest']:g}")]


SPEC = JobSpec(
    name="extremes",
    function="tests.extending.extremes:extremes",
    about="Write the extreme values of all features.",
    help="Write the smallest and the largest value of every feature of SOURCE.",
    without=("weights", "scale"),
    outputs=(Output(name="output", help="Where to write them.", what="write them to"),),
    plan="tests.extending.extremes:plan",
    lines="tests.extending.extremes:lines",
)
register_job(SPEC)
