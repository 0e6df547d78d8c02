"""The job that divides rows into partitions of an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daskcluster.events import Callback
from daskcluster.jobs.opening import open_rows
from daskcluster.jobs.run import Run
from daskcluster.models.record import PartitionRecord


def partition(
    source: Any,
    *,
    output: str,
    centroids: str | None = None,
    target_size: int = 1000,
    max_size: int | None = None,
    spill: int = 0,
    metric: str = "euclidean",
    random_state: int = 0,
    checkpoint: str | None = None,
    resume: bool = False,
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
    callbacks: Sequence[Callback] = (),
) -> PartitionRecord:
    """Divide `source` into partitions of nearly equal sizes, and write the partition of every row.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    output : str
        URL of the result, which appears there only when complete: a ``.parquet`` or ``.csv`` file with the
        ids of the rows, else a Zarr group of the arrays ``partition``, ``copy_1`` and so on.
    centroids : str, optional
        URL of a file of the centres, which is written at last: ``.npy``, ``.faiss`` or ``.parquet``; see
        `daskcluster.Partitions.save_centres`.
    target_size, max_size, spill, metric, random_state, checkpoint, resume
        See `daskcluster.partition`.
    array, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine, callbacks
        See `fit`.

    Returns
    -------
    PartitionRecord

    Raises
    ------
    OutputExistsError
        An output exists; raised before any work.
    InvalidParameterError, InvalidDataError, CheckpointError

    Notes
    -----
    Cost: see `daskcluster.partition`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 8))
    >>> record = partition(rows, output="memory://example/parts", target_size=500, overwrite=True)
    >>> record.n_rows, record.largest <= 1000
    (1000, True)
    """
    asked = dict(locals())
    given: dict[str, Any] = {"target_size": target_size, "max_size": max_size, "spill": spill}
    given |= {"metric": metric, "random_state": random_state}
    run = Run("partition", asked)
    with run:
        before = run.begin(PartitionRecord)
        if before is not None:
            return before
        dataset, chosen = open_rows(run)
        # Imported here, since scikit-learn takes long to import.
        from daskcluster.methods.partition.partitioning import centres_writer, partitioning

        if centroids is not None:
            centres_writer(centroids)  # before any work
        # The state goes when the outputs are there and the job is done.
        with partitioning(
            dataset,
            engine=chosen,
            callbacks=run.callbacks,
            checkpoint=run.state_at(checkpoint),
            resume=resume or run.is_resumed,
            storage_options=storage_options,
            **given,
        ) as found:
            common = run.counters.common(dataset)
            run.begin_output()
            found.save(output, overwrite=run.overwrite, storage_options=storage_options)
            if centroids is not None:
                found.save_centres(
                    centroids, overwrite=run.overwrite, storage_options=storage_options
                )
            balance = found.balance
            facts: dict[str, Any] = {"n_partitions": balance.n_clusters}
            facts |= {"n_copies": found.n_copies, "metric": metric}
            facts |= {"variation": balance.variation, "largest": balance.largest}
            facts |= {"largest_over_mean": found.largest_over_mean}
            record = PartitionRecord(output=str(output), centroids=centroids, **facts, **common)
            return run.done(record)
