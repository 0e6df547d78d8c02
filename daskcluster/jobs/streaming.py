"""The job that brings the state of a stream up to date."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daskcluster.data.spec import RowsSpec
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.jobs.run import Run
from daskcluster.storage.location import locate
from daskcluster.storage.staging import refuse_overlaps
from daskcluster.typing import Visibility

if TYPE_CHECKING:
    from daskcluster.methods.streaming.service import Cycle, StreamLoop


def stream(
    source: Any,
    *,
    state: str,
    n_clusters: int,
    every: float | None = None,
    heard: Callable[[Cycle], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    **arguments: Any,
) -> Cycle:
    """Add the new rows of `source` to a stream and commit its state.

    Parameters
    ----------
    source : URL or iterable
        See `open_stream`. An iterator is read to its end.
    state : str
        URL of the state; see `open_stream`.
    n_clusters : int
    every : float, optional
        Poll the source this many seconds after the last poll began, until the job is cancelled.
        Default: once.
    heard : callable (Cycle) -> None, optional
        Called with every cycle.
    name : str, optional
        Name of the job. Only this job may write the state. Called again from anywhere, it resumes from its
        last commit and polls the source again, even if it was done. In a Dask task, the default is the key
        of the task.
    storage_options, engine, callbacks
        See `open_stream`; inside a Dask task the default is the task's cluster.
    **arguments
        Further arguments of `open_stream`.

    Returns
    -------
    Cycle
        The last cycle, with ``rows_seen``, ``model_version``, ``model`` and findings.

    Raises
    ------
    CheckpointError
        The state belongs to another source or other parameters.
    InvalidParameterError, InvalidDataError
    JobCancelledError, LeaseError
        The job was cancelled, or another job or run writes the state.

    Notes
    -----
    Cost: new rows are read once, or twice if labels are requested; one listing of the source per poll. With
    a name, writes a few small objects next to the state. While waiting, makes four requests a second to the
    scheduler it was submitted to, and none to the store.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> chunks = (rng.normal(size=(500, 2)) + 10 * (day % 2) for day in range(6))
    >>> found = stream(chunks, state="memory://stream-example", n_clusters=2)
    >>> found.rows_seen, found.model_version
    (3000, 3000)
    """
    asked = locals()
    if every is not None and not every >= 0.0:
        raise InvalidParameterError(
            f"every={every!r} should be >= 0, in seconds, or None for once."
        )
    visibility = Visibility.PROCESS
    if isinstance(source, str | os.PathLike):
        visibility = locate(source).visibility
    hearing = heard or (lambda cycle: None)
    with Run("stream", asked) as run:
        run.hold()
        loop = open_stream(
            source,
            state=state,
            n_clusters=n_clusters,
            storage_options=storage_options,
            engine=run.drives(visibility),
            callbacks=run.callbacks,
            **arguments,
        )
        if every is not None:  # until the job is cancelled
            loop.run(every, hearing, sleep=run.monitor.rest, before=run.begin_output)
        while True:
            run.begin_output()
            cycle = loop.cycle()
            hearing(cycle)
            if not (loop.is_drawn and cycle.new_objects):
                return run.done(cycle)


def open_stream(
    source: Any,
    *,
    state: str,
    n_clusters: int,
    algorithm: str = "streaming",
    random_state: int | None = 0,
    labels: str | None = None,
    distances: str | None = None,
    array: str | None = None,
    weights: Any = None,
    order: str = "name",
    settle: float = 0.0,
    allow_missing: bool = False,
    columns: Any = None,
    missing: str = "error",
    decode: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    **parameters: Any,
) -> StreamLoop:
    """Return the loop of a stream, ready for its next cycle.

    Parameters
    ----------
    source : URL or iterable
        A Zarr array that grows along its first axis; a folder or prefix to which Zarr arrays, groups and
        Parquet files are added, or a pattern of their names; or an iterator of chunks or (name, chunk)
        pairs.
    state : str
        URL of the state: the summary of the rows, the ledger, and all versions of the model.
    n_clusters : int
        Number of clusters, or of components of a mixture.
    algorithm : {"streaming", "mini-batch", "vc-gmm"}
        k-means of a summary of all rows, mini-batch k-means that uses each row once, or a Gaussian mixture
        of the summary. The models are those of `daskcluster.StreamingKMeans`, `MiniBatchKMeans` and
        `VariationalGaussianMixture`.
    random_state : int
        Seed of a new state; an existing state has its own.
    labels, distances : str, optional
        URLs to which labels and distances of new rows are written: one array that grows with the source, or
        a folder with one array per object.
    array : str, optional
        Name of the array, if objects are Zarr groups.
    weights : str, optional
        Row weights: an array of the same group, or a column of Parquet files.
    order : {"name", "time"}
        Order of objects that are present at the same time.
    settle : float
        Read an object once it has not changed for this many seconds.
    allow_missing : bool
        Read missing chunks as the fill value.
    columns : str, sequence of str or mapping, optional
        Columns of Parquet files; see `fit`. A state belongs to one choice.
    missing : {"error", "drop"}
        Rows of Parquet files that lack a value: their file is not folded, or they are left out.
    decode : bool, optional
        See `daskcluster.open_dataset`.
    storage_options : mapping, optional
        Options of the file system for all URLs.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
    **parameters
        Further parameters of the algorithm, e.g. ``half_life``; see
        `daskcluster.methods.streaming.streams.STREAMS`.

    Returns
    -------
    StreamLoop

    Notes
    -----
    Cost: reads the last commit of the state, if there is one; no rows.
    """
    spec = RowsSpec.among(locals())
    if not settle >= 0.0:
        raise InvalidParameterError(f"settle={settle!r} should be >= 0, in seconds.")
    # Scikit-learn takes long to import.
    from daskcluster.methods.streaming.service import StreamLoop
    from daskcluster.methods.streaming.sources import open_stream_source
    from daskcluster.methods.streaming.streams import make_learner

    given = {"n_clusters": n_clusters, "random_state": random_state, **parameters}
    learner = make_learner(algorithm, given)
    ours = tuple(url for url in (state, labels, distances) if url is not None)
    written = {"labels": labels, "distances": distances}
    places = {n: locate(url, storage_options) for n, url in written.items() if url is not None}
    refuse_overlaps(places)
    if labels is not None and places["labels"].holds(locate(state, storage_options)):
        raise InvalidParameterError(
            f"labels={labels!r} would hold the state {state!r}; write them to another URL."
        )
    opened = open_stream_source(
        source,
        spec,
        order=order,
        allow_missing=allow_missing,
        storage_options=storage_options,
        without=ours,
    )
    return StreamLoop(
        opened,
        learner,
        state,
        labels=labels,
        distances=distances,
        settle=settle,
        storage_options=storage_options,
        engine=engine,
        callbacks=callbacks,
    )
