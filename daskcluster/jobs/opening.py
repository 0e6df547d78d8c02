"""Rows of a job: opened, and brought to what its arguments say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.spec import RowsSpec
from daskcluster.engine.engine import Engine
from daskcluster.estimators.opening import open_stored
from daskcluster.estimators.prepared import prepared
from daskcluster.jobs.run import Run
from daskcluster.typing import Dataset


def open_rows(
    run: Run, expected: Sequence[str] | None = None, **changed: Any
) -> tuple[Dataset, Engine]:
    """Return the rows of a job, and the engine that reads them.

    Parameters
    ----------
    run : Run
        Its arguments say which rows, and how they are read.
    expected : sequence of str, optional
        Names of the features of a model, which are read from a table unless others were chosen.
    **changed
        Arguments in place of those of the run.
    """
    given = {**run.given, **changed}
    spec = RowsSpec.among(given, expected)
    dataset, left = open_stored(
        given["source"],
        spec,
        weights=given.get("weights"),
        storage_options=given["storage_options"],
        engine=given["engine"],
        callbacks=run.callbacks,
    )
    refuse_replacing(dataset, **run.outputs)
    engine = run.engine(dataset)
    dataset = prepared(dataset, left, engine=engine, callbacks=run.callbacks)
    return dataset, engine


def open_metadata(source: Any, opening: Mapping[str, Any]) -> Dataset:
    """Return the rows of a source without a pass over them: no cell or row is left out."""
    spec = RowsSpec.among(opening)
    if spec.grid:
        grid = {name: value for name, value in spec.grid.items() if name != "nodata"}
        spec = replace(spec, grid=grid or {"features": None})
    options = opening.get("storage_options")
    return open_stored(source, spec, weights=opening.get("weights"), storage_options=options)[0]
