"""The benchmark of the model: what it projects, its tables, and a small run of all of it."""

from __future__ import annotations

from tests.benchmarks.harness.parts import Table
from tests.benchmarks.scaling import projections, tables
from tests.benchmarks.scaling.model.rates import REFERENCE

RECORD = {
    "problem": "kernel", "shape": "10, 2, 3", "workers": 2, "bandwidth": 1e8, "measured": 2.0,
    "predicted": 1.0, "bottleneck": "kernel", "terms": {},
}  # fmt: skip


def test_large_fits_are_projected_and_every_row_is_reported() -> None:
    found = projections.project_all(REFERENCE)
    per_shape = len(projections.FITS) * len(projections.WORKERS)
    assert len(found) == len(projections.SHAPES) * per_shape
    for table in tables.projection_tables(found):
        assert len(table.rows) == per_shape
        assert all(len(row) == len(table.header) for row in table.rows)
    plain, bounded = (
        next(r for r in found if (r["fit"], r["workers"]) == (name, 10))
        for name in ("lloyd", "bounds")
    )
    assert bounded["seconds_at_most"] < plain["seconds_at_most"]
    few, many = (
        next(r for r in found if (r["fit"], r["workers"]) == ("lloyd", count))
        for count in (10, 1000)
    )
    assert few["bottleneck"] == "kernel"
    assert many["labels_pass"]["bottleneck"] == "store"


def test_errors_of_predictions_are_stated() -> None:
    better = {**RECORD, "predicted": 2.2}
    for make in (tables.workers_table, tables.lines_table):
        found = make([RECORD, better])
        assert isinstance(found, Table)
        assert [row[5] for row in found.rows] == ["0.50", "1.10"]
        assert "median 30 %, largest 50 %" in found.notes[-1]
        assert "not measured" in make([]).markdown()
