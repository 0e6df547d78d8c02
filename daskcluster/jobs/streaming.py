"""The job that brings the state of a stream up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback
from daskcluster.parameters.catalogue import check_parameters

if TYPE_CHECKING:
    from daskcluster.streaming.cycle import Cycle
    from daskcluster.streaming.loop import StreamLoop


def stream(source: Any, **arguments: Any) -> Cycle:
    """Fold what is new at `source` into a stream, and commit.

    Parameters
    ----------
    source : URL or iterable
        See `open_stream`. An iterator is drawn to its end.
    **arguments
        Of `open_stream`: ``state`` and ``n_clusters`` are needed.

    Returns
    -------
    Cycle
        ``rows_seen``, ``model_version``, ``model`` and what was found.

    Raises
    ------
    CheckpointError
        The state is of another source or other parameters.
    InvalidParameterError, InvalidDataError

    Notes
    -----
    Cost: new rows are read once, twice where labels are wanted; one listing of the source.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> chunks = (rng.normal(size=(500, 2)) + 10 * (day % 2) for day in range(6))
    >>> found = stream(chunks, state="memory://stream-example", n_clusters=2)
    >>> found.rows_seen, found.model_version
    (3000, 3000)
    """
    loop = open_stream(source, **arguments)
    cycle = loop.cycle()
    while loop.is_drawn and cycle.new_objects:
        cycle = loop.cycle()
    return cycle


def open_stream(
    source: Any,
    *,
    state: str,
    n_clusters: int,
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
        Further parameters of `daskcluster.StreamingKMeans`, e.g. ``half_life``.

    Returns
    -------
    StreamLoop
    """
    check_parameters("streaming", {"n_clusters": n_clusters, **parameters})
    if not settle >= 0.0:
        raise InvalidParameterError(f"settle={settle!r} should be >= 0, in seconds.")
    # Scikit-learn takes long to import.
    from daskcluster.estimators.streaming import StreamingKMeans
    from daskcluster.streaming.loop import StreamLoop
    from daskcluster.streaming.sources import open_source

    estimator = StreamingKMeans(n_clusters, random_state=random_state, **parameters)
    estimator.check_parameters()
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
        estimator,
        state,
        labels=labels,
        distances=distances,
        settle=settle,
        storage_options=storage_options,
        engine=engine,
        callbacks=callbacks,
    )
