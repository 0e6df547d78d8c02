"""The job that brings the state of a stream up to date."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.jobs.run import Run
from daskcluster.storage.location import locate
from daskcluster.typing import Visibility

if TYPE_CHECKING:
    from daskcluster.methods.streaming.service.loop import StreamLoop
    from daskcluster.methods.streaming.service.state import Cycle


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
    """Fold what is new at `source` into a stream, and commit.

    Parameters
    ----------
    source : URL or iterable
        See `open_stream`. An iterator is drawn to its end.
    state : str
        URL of the state; see `open_stream`.
    n_clusters : int
    every : float, optional
        Poll the source this many seconds after the last poll began, until the job is cancelled.
        Default: once.
    heard : callable (Cycle) -> None, optional
        Gets every cycle.
    name : str, optional
        Of the job: only this job writes the state; called again anywhere, it resumes from its last commit.
        It polls again then, also after it was done. A Dask task has its key as its name.
    storage_options, engine, callbacks
        See `open_stream`; inside a Dask task the default is the task's cluster.
    **arguments
        Further ones of `open_stream`.

    Returns
    -------
    Cycle
        ``rows_seen``, ``model_version``, ``model`` and what was found.

    Raises
    ------
    CheckpointError
        The state is of another source or other parameters.
    InvalidParameterError, InvalidDataError
    JobCancelledError, LeaseError
        It was asked to stop, or another job or run writes the state.

    Notes
    -----
    Cost: new rows are read once, twice where labels are wanted; one listing of the source. With a name a
    few small objects next to the state; while it waits, four questions a second to the scheduler that it
    was submitted to, and none to the store.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> chunks = (rng.normal(size=(500, 2)) + 10 * (day % 2) for day in range(6))
    >>> found = stream(chunks, state="memory://stream-example", n_clusters=2)
    >>> found.rows_seen, found.model_version
    (3000, 3000)
    """
    if every is not None and not every >= 0.0:
        raise InvalidParameterError(
            f"every={every!r} should be >= 0, in seconds, or None for once."
        )
    # The state itself refuses other arguments, those of the last commit included.
    run = Run(
        "stream",
        name,
        output=state,
        arguments={},
        storage_options=storage_options,
        engine=engine,
        callbacks=callbacks,
    )
    with run:
        run.hold()
        loop = open_stream(
            source,
            state=state,
            n_clusters=n_clusters,
            storage_options=storage_options,
            engine=run.drives(engine, _visibility(source)),
            callbacks=run.callbacks,
            **arguments,
        )
        return run.done(_followed(loop, run, every, heard or _ignore))


def _followed(
    loop: StreamLoop, run: Run, every: float | None, heard: Callable[[Cycle], None]
) -> Cycle:
    """Return the last cycle; of those that are made again and again there is none."""
    if every is not None:
        loop.run(every, heard, sleep=run.rest, before=run.begin_output)
    while True:
        run.begin_output()
        cycle = loop.cycle()
        heard(cycle)
        if not (loop.is_drawn and cycle.new_objects):
            return cycle


def _ignore(cycle: Cycle) -> None:
    """Ignore the events of a cycle."""


def _visibility(source: Any) -> Visibility:
    return (
        locate(source).visibility if isinstance(source, str | os.PathLike) else Visibility.PROCESS
    )


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
    storage_options: Mapping[str, Any] | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    **parameters: Any,
) -> StreamLoop:
    """Return the loop of a stream, ready for its next cycle.

    Parameters
    ----------
    source : URL or iterable
        A Zarr array that grows along its first axis; a folder or prefix in which Zarr arrays, groups
        and Parquet files land, or a pattern of their names; or an iterator of chunks, or of pairs of a
        name and a chunk.
    state : str
        URL of the state: what was folded, the ledger, and all versions of the model.
    n_clusters : int
        Of a mixture, its components.
    algorithm : {"streaming", "mini-batch", "vc-gmm"}
        What learns: k-means of a summary of all rows, centres moved by each row once, or a Gaussian
        mixture of the summary. Models are those of `daskcluster.StreamingKMeans`, `MiniBatchKMeans` and
        `VariationalGaussianMixture`.
    random_state : int
        Of a new state; one that is there keeps its own.
    labels, distances : str, optional
        URLs under which labels and distances of new rows are written: an array that grows along, or a
        folder with an array for each object.
    array : str, optional
        Which array, where objects are Zarr groups.
    weights : str, optional
        Row weights: an array of the same group, or a column of Parquet files.
    order : {"name", "time"}
        Of objects that are there at the same time.
    settle : float
        Seconds for which an object must not have changed before it is read.
    allow_missing : bool
        Take chunks that are not there as the fill value.
    storage_options : mapping, optional
        For all URLs.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
    **parameters
        Further ones of the algorithm, e.g. ``half_life``: see
        `daskcluster.methods.streaming.streams.STREAMS`.

    Returns
    -------
    StreamLoop
    """
    if not settle >= 0.0:
        raise InvalidParameterError(f"settle={settle!r} should be >= 0, in seconds.")
    # Scikit-learn takes long to import.
    from daskcluster.methods.streaming.service.loop import StreamLoop
    from daskcluster.methods.streaming.service.sources import open_source
    from daskcluster.methods.streaming.streams import make_learner

    given = {"n_clusters": n_clusters, "random_state": random_state, **parameters}
    learner = make_learner(algorithm, given)
    ours = tuple(url for url in (state, labels, distances) if url is not None)
    opened = open_source(
        source,
        array=array,
        weights=weights,
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
