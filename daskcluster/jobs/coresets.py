"""The job that draws a coreset and saves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.events import Callback
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.models.record import CoresetRecord
from daskcluster.storage.checkpoint import noting_stored_state
from daskcluster.storage.location import locate


def build_coreset(
    source: Any,
    *,
    size: int,
    output: str,
    random_state: int | None = None,
    quality: int | None = None,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str = "error",
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    checkpoint: str | None = None,
    resume: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> CoresetRecord:
    """Draw a lightweight coreset of `source` and save it.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    size : int
        Rows to draw.
    output : str
        URL of the coreset to write: a Zarr group of ``X``, ``weights`` and ``indices``, which every
        estimator accepts as rows.
    random_state : int, optional
    quality : int, optional
        Also compare estimated and true costs of this many centres; see `daskcluster.coreset_quality`.
    checkpoint : str, optional
        URL under which to save progress; see `daskcluster.LightweightCoreset`.
    resume : bool
        Resume from the state under `checkpoint`.
    array, weights, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine
    callbacks
        See `fit`.

    Returns
    -------
    CoresetRecord

    Raises
    ------
    OutputExistsError
        An output exists; raised before any work.
    InvalidParameterError, InvalidDataError, MemoryLimitError

    Notes
    -----
    Cost: two passes; one more with `quality`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(5000, 2))
    >>> url = "memory://example/coreset"
    >>> record = build_coreset(rows, size=100, output=url, random_state=0, overwrite=True)
    >>> record.size, record.passes
    (100, 2)
    """
    asked = dict(locals())
    run = Run("build_coreset", asked)
    place = None if checkpoint is None else locate(checkpoint, storage_options)
    with run, noting_stored_state(place, "the draw"):
        before = run.begin(CoresetRecord)
        if before is not None:
            return before
        dataset, chosen = open_rows(run)
        # Imported here, since scikit-learn takes long to import.
        from daskcluster.methods.coreset.estimator import LightweightCoreset
        from daskcluster.methods.coreset.quality import coreset_quality

        given = run.keeping("coreset", {"checkpoint": place, "random_state": random_state})
        drawn = LightweightCoreset(size, engine=chosen, callbacks=run.callbacks, **given)
        drawn.fit(dataset, resume=run.resumes("coreset", resume=resume))
        run.counters.at_least(drawn.passes_, drawn.bytes_read_)
        run.begin_output()
        options = None if storage_options is None else dict(storage_options)
        drawn.save(output, overwrite=run.overwrite, storage_options=options)
        report = None
        if quality is not None:
            report = coreset_quality(
                drawn, dataset, n_clusters=quality, engine=chosen, callbacks=run.callbacks
            ).as_dict()
        return run.done(
            CoresetRecord(
                output=str(output),
                size=drawn.coreset_.n_rows,
                seed=drawn.seed_,
                total_weight=drawn.total_weight_,
                coreset_weight=float(drawn.coreset_.weights.sum()),
                quality=report,
                **run.counters.common(dataset),
            )
        )
