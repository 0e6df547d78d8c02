"""Rows as a fit takes them: without missing values, and on a scale, both learnt in passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.feature_scaling import (
    FEATURES,
    PARTIAL,
    PRESENT,
    FeatureParams,
    FeatureScaling,
    FeatureStatistics,
)
from daskcluster.data.csr import csr_of
from daskcluster.data.dataset import RowDataset
from daskcluster.data.label_files import GridShape, SourceRows
from daskcluster.data.missing import ALL, presence, without_incomplete
from daskcluster.data.spec import RowsSpec
from daskcluster.data.writer import ArraySink
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement
from daskcluster.engine.memory import ONE_PASS
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError, InvalidParameterError, WrongTypeError
from daskcluster.events import Callback
from daskcluster.typing import Dataset


def prepared(
    dataset: Dataset, spec: RowsSpec, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return rows with what a spec says of missing values and of a scale, which takes passes."""
    more: dict[str, Any] = {"engine": engine, "callbacks": callbacks}
    if spec.missing is not None and isinstance(dataset, RowDataset):
        dataset = dataset.with_facts(missing=spec.missing)
    if spec.missing not in (None, "error"):
        dataset = without_missing(dataset, spec.missing, **more)
    return dataset if spec.scale is None else scaled(dataset, spec.scale, **more)


def without_missing(
    dataset: Dataset, missing: str, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return the rows without NaN: those that have one are left out, or filled with means.

    Parameters
    ----------
    dataset : Dataset
    missing : {"drop", "mean", "partial"}
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Called with the progress of the passes.

    Raises
    ------
    InvalidDataError
        No row is complete, or a feature has no value at all.
    InvalidParameterError, WrongTypeError
        Another way than these, or sparse rows.
    """
    if not isinstance(dataset, RowDataset) or csr_of(dataset) is not None:
        what = f"a {type(dataset).__name__}" if csr_of(dataset) is None else "sparse rows"
        raise WrongTypeError(
            f"missing={missing!r} cannot be applied to {what}; remove NaN from its rows."
        )
    if dataset.dtype.kind in "biu":
        return dataset
    chosen = choose_engine(engine, dataset)
    with chosen.place(dataset, callbacks=callbacks, footprint=ONE_PASS) as placement:
        if missing == "drop":
            found = presence_of(placement)
            if not (found == ALL).any():
                raise InvalidDataError(
                    f"None of the {dataset.n_rows} rows is complete; use missing='mean', or leave out the "
                    "features that lack values."
                )
            return _left(dataset, found)
        counts: np.ndarray = placement.reduce(PRESENT, dataset.n_features)
    if not counts.all():
        raise InvalidDataError(
            f"Feature {int(np.argmin(counts))} has no value in any row, so it has no mean; leave it out."
        )
    unweighted = dataset.with_weights(None)  # type: ignore[arg-type]
    zeros = unweighted.with_scaling(FeatureScaling.filling(np.zeros(dataset.n_features)))
    means = learn_scaling(zeros, "standard", chosen, callbacks).shift
    means = means * (dataset.n_rows / counts)
    by_cluster = missing == "partial"
    kind = FeatureScaling.of_clusters if by_cluster else FeatureScaling.filling
    return dataset.with_scaling(kind(means))


def _left(dataset: RowDataset, found: np.ndarray) -> RowDataset:
    """Return the complete rows; results of rows have -1 or NaN for the others."""
    rows = without_incomplete(dataset, found)
    if rows is dataset:
        return dataset
    source: Any = dataset
    if dataset.in_memory:  # whose rows are not kept for the sake of their ids
        known = dataset.ids(0, dataset.n_rows)
        source = SourceRows(dataset.n_rows, dataset.chunk_sizes, dataset.id_column, known)
    cells = dataset.grid or GridShape((dataset.n_rows,), source=source)
    mask = np.ones(cells.shape, bool) if cells.mask is None else cells.mask.copy()
    mask[mask] = found == ALL
    return rows.with_facts(grid=replace(cells, mask=mask))


def presence_of(placement: Placement, nodata: float | None = None) -> np.ndarray:
    """Return the `presence` of all rows, uint8 (n,), in one pass."""
    found = ArraySink(np.empty(placement.dataset.n_rows, np.uint8))
    placement.map_rows(_presence, found, nodata, name="missing values")
    return found.array


def _presence(chunk: Chunk, nodata: float | None) -> np.ndarray:
    return presence(np.asarray(chunk.rows), nodata)


def scaled(
    dataset: Dataset, scale: str, *, engine: Any = None, callbacks: Sequence[Callback] = ()
) -> Dataset:
    """Return `dataset` with scaled features; the scale is computed from its rows in one pass.

    Parameters
    ----------
    dataset : Dataset
    scale : {"standard", "minmax"}
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Called with the events of the pass.
    """
    if not isinstance(dataset, RowDataset):
        raise WrongTypeError(f"scale= cannot be applied to a {type(dataset).__name__}.")
    filled = dataset.scaling
    if filled is not None and filled.kind == PARTIAL:
        raise InvalidParameterError(
            f"scale={scale!r} cannot be combined with missing='partial'; scale the rows in the source, "
            "or use missing='mean'."
        )
    if filled is not None and filled.scales:
        raise InvalidParameterError(
            f"scale={scale!r} cannot be applied, since the dataset is already scaled "
            f"({filled.kind}); open its source instead."
        )
    found = learn_scaling(dataset, scale, engine, callbacks)
    return dataset.with_scaling(found if filled is None else replace(found, fill=filled.fill))


def learn_scaling(
    dataset: Dataset, scale: str, engine: Any, callbacks: Sequence[Callback]
) -> FeatureScaling:
    """Return the scaling of the rows of `dataset`. One pass; the bits depend on the rows alone."""
    sparse = csr_of(dataset) is not None
    with choose_engine(engine, dataset).place(
        dataset, callbacks=callbacks, footprint=ONE_PASS
    ) as placement:
        rows = ScaledPlacement(placement)
        origin = rows.origin.astype(np.float64)
        origin = np.zeros_like(origin) if sparse else origin
        found: FeatureStatistics = rows.reduce(FEATURES, lambda scale: FeatureParams(origin, scale))
    return found.scaling(scale, origin, centred=not sparse)
