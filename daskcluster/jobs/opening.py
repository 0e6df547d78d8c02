"""Rows of a job: opened, and brought to what its flags say about missing values, grids and scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskcluster.data.columns import column_choice
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.open import open_dataset
from daskcluster.engine.engine import Engine
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.grids import open_grid
from daskcluster.estimators.opening import scaled, without_missing
from daskcluster.jobs.run import Run
from daskcluster.typing import Dataset


def open_rows(
    run: Run,
    engine: Any,
    source: Any,
    *,
    missing: str = "error",
    scale: str | None = None,
    grid: Mapping[str, Any] | None = None,
    expected: Sequence[str] | None = None,
    **opening: Any,
) -> tuple[Dataset, Engine]:
    """Return the rows of a job, and the engine that reads them.

    Parameters
    ----------
    run : Run
    engine : see `daskcluster.KMeans`
    source : anything `open_dataset` takes
    missing : {"error", "drop", "mean"}
    scale : {"standard", "minmax"}, optional
        See `daskcluster.open_dataset`; both take passes over the rows.
    grid : mapping, optional
        ``features``, ``nodata``, ``select`` and ``dequantize`` of `daskcluster.open_grid`, if the source is
        a grid.
    expected : sequence of str, optional
        Names of the features of a model, which are read from a table unless others were chosen.
    **opening
        Further arguments of `open_dataset`.
    """
    passes: dict[str, Any] = {"callbacks": run.callbacks}
    dataset = open_source(source, grid=grid, engine=engine, expected=expected, **passes, **opening)
    refuse_replacing(dataset, **run.outputs)
    chosen = run.engine(engine, dataset)
    if missing != "error":
        dataset = without_missing(dataset, missing, engine=chosen, **passes)
    if scale is not None:
        dataset = scaled(dataset, scale, engine=chosen, **passes)
    return dataset, chosen


def open_source(
    source: Any,
    *,
    grid: Mapping[str, Any] | None = None,
    missing: str = "error",
    expected: Sequence[str] | None = None,
    **opening: Any,
) -> Dataset:
    """Return the rows of a source or of a grid; see `open_rows`. Missing values stay.

    Raises
    ------
    InvalidParameterError
        An option that grids do not have.
    """
    passes = {name: opening.pop(name) for name in ("engine", "callbacks") if name in opening}
    if not grid:
        columns = replace(column_choice(opening.get("columns")), expected=tuple(expected or ()))
        return open_dataset(source, **{**opening, "columns": columns})
    for name in ("weights", "columns", "flatten"):
        if opening.pop(name, None):
            raise InvalidParameterError(
                f"{name} cannot be given together with features or nodata of a grid; leave it out."
            )
    return open_grid(source, **grid, **opening, **passes).dataset


def open_metadata(source: Any, opening: Mapping[str, Any]) -> Dataset:
    """Return the rows of a source without a pass over them: no cell or row is left out."""
    grid = {name: value for name, value in (opening.get("grid") or {}).items() if name != "nodata"}
    if opening.get("grid") and not grid:
        grid = {"features": None}
    return open_source(source, **{**opening, "grid": grid})
