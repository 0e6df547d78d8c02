"""Jobs that learn from rows: models, coresets, near-duplicates, partitions and streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from daskcluster.data.label_files import check_file, check_map, mask_of_source
from daskcluster.data.spec import RowsSpec
from daskcluster.data.tables import TableFormat
from daskcluster.errors import InvalidParameterError
from daskcluster.estimators.base import CentreEstimator, EngineMixin
from daskcluster.estimators.inputs import fit_dataset, refuse_given_centres
from daskcluster.estimators.plan import Plan
from daskcluster.estimators.rows import Labels
from daskcluster.events import Callback
from daskcluster.invariance import AS_ITS_ESTIMATOR, DRAWN, FIRST, varies_with
from daskcluster.jobs.run import Run, open_metadata
from daskcluster.methods.catalogue import ALGORITHMS, plan_of
from daskcluster.methods.duplicates.parameters import RULES
from daskcluster.methods.kmeans.initial import checked_centres, model_centres
from daskcluster.models.fitted import Model
from daskcluster.models.record import CoresetRecord, DuplicatesRecord, FitRecord, PartitionRecord
from daskcluster.parameters.checks import check_arguments
from daskcluster.reports.pages import Rows, check_output, rows_of_record
from daskcluster.storage.checkpoint import noting_stored_state
from daskcluster.storage.files import check_space
from daskcluster.storage.location import locate
from daskcluster.typing import Dataset, Visibility

if TYPE_CHECKING:
    from daskcluster.methods.duplicates.search import DuplicatesPlan
    from daskcluster.methods.streaming.service import Cycle, StreamLoop


_LABEL_BYTES = 4


@varies_with(
    chunks=AS_ITS_ESTIMATOR,
    storage=AS_ITS_ESTIMATOR,
    memory_limit=AS_ITS_ESTIMATOR,
    order=AS_ITS_ESTIMATOR,
)
def fit(
    source: Any,
    *,
    n_clusters: int,
    model: str,
    algorithm: str = "auto",
    random_state: int | None = None,
    array: str | None = None,
    weights: Any = None,
    labels: str | None = None,
    distances: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str = "error",
    grid: Mapping[str, Any] | None = None,
    scale: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    **parameters: Any,
) -> FitRecord:
    """Cluster `source`, save the model and, with `labels`, the label of every row.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    n_clusters : int
    model : str
        URL of the model to write.
    algorithm : str, default "auto"
        A name of `daskcluster.methods.catalogue.ALGORITHMS`, which lists its estimator.
    random_state : int, optional
    array : str, optional
        Name of the array, where `source` is a Zarr group.
    weights : str or array-like of shape (n,), optional
        Row weights: an array's name in the same group, a URL, or values.
    labels : str, optional
        URL of the labels to write: a file if it ends in .parquet, .csv (both with ids) or .npy, else a 1-D
        int32 Zarr array. Of the cells of a grid, a map in a Zarr group, or a GeoTIFF if it ends in .tif.
    distances : bool, default False
        Also write Euclidean distances: labels become a Zarr group, or a table with both columns.
    storage_options : mapping, optional
        Options of the file system for all URLs.
    flatten : bool, default False
        Read an array of shape (..., d) as rows; see `daskcluster.open_dataset`.
    decode : bool, optional
        Whether attributes of a stored array decode its numbers; see `daskcluster.open_dataset`.
    columns : str, sequence of str or mapping, optional
        For a table: names of the columns of features, or a mapping with any of ``columns``, ``drop``
        and ``id_column`` as `daskcluster.open_dataset` has them.
    missing : {"error", "drop", "mean", "partial"}, default "error"
        Rows that lack a value; see `daskcluster.open_dataset`. Takes one pass or two. Cells of a grid that
        lack one are left out by default.
    grid : mapping, optional
        ``features``, ``nodata``, ``select`` and ``dequantize`` as `daskcluster.open_grid` has them, if the
        source is a grid. Labels in Zarr then have its shape.
    scale : {"standard", "minmax"}, optional
        Scale the features first, in one extra pass; see `daskcluster.open_dataset`. The model stores the
        scale and applies it to new rows.
    overwrite : bool, default False
        Replace existing outputs.
    resume : bool, default False
        Resume from the state under the parameter ``checkpoint``, a URL; see `daskcluster.KMeans.fit`.
        Chunks of `labels` that an interrupted call finished are not computed again.
    name : str, optional
        Name of the job, which makes it re-entrant. The job saves its state next to the model until it is
        done. Called again under its name, it resumes from there, or returns its record if it was done. In a
        Dask task, the default is the key of the task.
    engine : Engine, dask.distributed.Client, "local" or address, optional
    callbacks : sequence of callables, default ()
        Called with the events of `daskcluster.events`.
    **parameters
        Further parameters of the estimator, e.g. ``init``, ``max_iter``, ``tol``, ``max_time``.

    Returns
    -------
    FitRecord

    Raises
    ------
    OutputExistsError
        An output exists; raised before any work.
    InvalidParameterError
        An invalid parameter, or one that the algorithm does not have.
    InvalidDataError, MemoryLimitError
    JobCancelledError, LeaseError
        The job was cancelled, or another job or run writes the model.

    Notes
    -----
    Cost: that of the estimator; one more pass with `labels`, unless k-means runs on threads of this process
    with room for them. With a name, writes a few small objects next to the model and its checkpoints.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]])
    >>> url = "memory://example/model.zarr"
    >>> record = fit(rows, n_clusters=2, model=url, random_state=0, overwrite=True)
    >>> record.inertia, record.stop_reason
    (1.0, 'converged')
    """
    asked = locals()
    given = {"n_clusters": n_clusters, **parameters}
    if random_state is not None:
        given["random_state"] = random_state
    if given.get("checkpoint") is not None:
        given["checkpoint"] = locate(given["checkpoint"], storage_options)
    ALGORITHMS.check(algorithm, given)
    check_arguments(ALGORITHMS[algorithm], given)
    if distances and labels is None:
        raise InvalidParameterError(
            "distances=True adds distances to the labels, and no labels are written; give labels=URL."
        )
    run = Run("fit", asked)
    with run, noting_stored_state(given.get("checkpoint")):
        if (before := run.begin(FitRecord)) is not None:
            return before
        dataset, chosen = run.open_rows()
        _check_labels(dataset, run.given)
        entry, hearing = ALGORITHMS.find(algorithm), {"callbacks": run.callbacks}
        if "checkpoint" in entry.parameters:
            given["checkpoint"] = run.state_at(given.get("checkpoint"))
            resume = resume or run.is_resumed
        estimator = resolve_name(entry.estimator)(
            **entry.arguments(given), engine=chosen, **hearing
        )
        estimator.fit(dataset, **({"resume": True} if resume else {}))
        fitted: Model = estimator.to_model()
        run.counters.at_least(fitted.passes, fitted.bytes_read)
        run.begin_output()
        save = partial(estimator.save, model, **run.writing)
        # The model is written last: until it exists, the same call resumes.
        resuming = {"resume": resume or run.is_resumed, "before_end": save}
        options = {**run.writing, **resuming, **hearing}
        # Not `estimator.labels_`, which may compute them.
        known = vars(estimator).get("labels_")
        if labels is None:
            save()
        elif distances:
            estimator.predict_level(dataset, return_distance=True, output=labels, **options)
        elif isinstance(known, Labels):
            known.write(labels, **options)
        else:
            estimator.map_rows(dataset, estimator.label_function, output=labels, **options)
        facts = fitted.facts()
        objectives = {name: facts.get(name) for name in ("inertia", "lower_bound")}
        return run.done(run.record(FitRecord, dataset, fitted, **objectives))


def _check_labels(dataset: Dataset, given: Mapping[str, Any]) -> None:
    """Raise, before any pass, if the labels or distances of a fit cannot be written."""
    labels, algorithm = given["labels"], given["algorithm"]
    if labels is not None:
        kind = np.dtype(np.float32 if given["distances"] else np.int32)
        check_map(labels, getattr(dataset, "grid", None), kind)
        check_file(labels, dataset)
        needed = _LABEL_BYTES * dataset.n_rows
        check_space(labels, needed, storage_options=given["storage_options"])
    estimator = resolve_name(ALGORITHMS.find(algorithm).estimator)
    if given["distances"] and not issubclass(estimator, CentreEstimator):
        raise InvalidParameterError(
            f"algorithm={algorithm!r} has no centres, so there are no distances to them; leave distances "
            "out."
        )


def plan_fit(dataset: Dataset, given: Mapping[str, Any]) -> Plan | None:
    """Return the plan of a fit; None if its algorithm has none."""
    algorithm, entry = given["algorithm"], ALGORITHMS.find(given["algorithm"])
    known = {name: given[name] for name in entry.parameters if name in given}
    plan = plan_of(dataset, algorithm, known)
    _check_labels(dataset, given)
    # What the fit refuses before its first pass.
    estimator = resolve_name(entry.estimator)(**entry.arguments(known))
    if isinstance(estimator, EngineMixin):
        estimator.check_parameters()
        fit_dataset(estimator, dataset, None, scalable=True)
    if given.get("scale") and "init" in known:
        refuse_given_centres(estimator)
    if "init" in known and known["init"] not in entry.parameters["init"].choices:
        centres = model_centres(known["init"], dataset)
        checked_centres(centres, known["n_clusters"], dataset, np.float64)
    return plan


@varies_with(order=DRAWN)
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
    resume : bool, default False
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
    run = Run("build_coreset", locals())
    place = None if checkpoint is None else locate(checkpoint, storage_options)
    with run, noting_stored_state(place, "the draw"):
        if (before := run.begin(CoresetRecord)) is not None:
            return before
        dataset, chosen = run.open_rows()
        # Imported here, since scikit-learn takes long to import.
        from daskcluster.methods.coreset.estimator import LightweightCoreset
        from daskcluster.methods.coreset.quality import coreset_quality

        hearing: dict[str, Any] = {"engine": chosen, "callbacks": run.callbacks}
        kept = run.state_at(place)
        drawn = LightweightCoreset(size, random_state=random_state, checkpoint=kept, **hearing)
        drawn.fit(dataset, resume=resume or run.is_resumed)
        run.counters.at_least(drawn.passes_, drawn.bytes_read_)
        run.begin_output()
        drawn.save(output, **run.writing)
        few, report = drawn.coreset_, None
        if quality is not None:
            report = coreset_quality(drawn, dataset, n_clusters=quality, **hearing).as_dict()
        weights = {"total_weight": drawn.total_weight_, "coreset_weight": float(few.weights.sum())}
        own = {"size": few.n_rows, "seed": drawn.seed_, "quality": report}
        return run.done(run.record(CoresetRecord, dataset, **weights, **own))


def plan_coreset(dataset: Dataset, given: Mapping[str, Any]) -> Plan | None:
    """Return the plan of drawing a coreset, and of measuring its quality if that is asked for."""
    plan = plan_of(dataset, "coreset", {"n_clusters": 1, "coreset_size": given["size"]})
    if plan is None or given["quality"] is None:
        return plan
    return replace(plan, passes_at_most=plan.passes_at_most + 1)


def lines_of_coreset(record: Mapping[str, Any]) -> Rows:
    """Return the record of a coreset as lines of text, with its quality."""
    rows = rows_of_record(record)
    for cost in (record["quality"] or {"costs": []})["costs"]:
        text = f"{cost['estimated']:.5g} estimated, {cost['true']:.5g} true"
        rows.append((f"cost of {cost['name']}", f"{text}, off by {cost['relative_error']:+.2%}"))
    return rows


@varies_with(order=FIRST)
def dedup(
    source: Any,
    *,
    output: str,
    report: str | None = None,
    threshold: float = 0.95,
    metric: str = "cosine",
    keep: Any = "first",
    groups: str = "components",
    random_state: int = 0,
    checkpoint: str | None = None,
    resume: bool = False,
    scratch: str | None = None,
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
) -> DuplicatesRecord:
    """Find the near-duplicates of `source`, and write group, kept and similarity of every row.

    Parameters
    ----------
    source : URL, or anything `open_dataset` takes
    output : str
        URL of the result, which appears there only when complete: a ``.parquet`` or ``.csv`` file with the
        ids of the rows, else a Zarr group of the arrays ``group``, ``kept`` and ``similarity`` (or
        ``distance``).
    report : str, optional
        URL of a report on the groups: .html, .png, .md or .json.
    threshold, metric, groups, random_state, checkpoint, resume, scratch
        See `daskcluster.near_duplicates`.
    keep : str or array, default "first"
        As there. Of a table, also the name of a column of scores, which should be no feature.
    array, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine, callbacks
        See `fit`.

    Returns
    -------
    DuplicatesRecord

    Raises
    ------
    OutputExistsError
        The output or the report exists; raised before any work.
    InvalidParameterError, InvalidDataError, CheckpointError, DiskSpaceError

    Notes
    -----
    Cost: see `daskcluster.near_duplicates`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(100, 32))
    >>> rows[60] = rows[7]
    >>> record = dedup(rows, output="memory://example/duplicates", overwrite=True)
    >>> record.n_kept, record.n_groups
    (99, 1)
    """
    with Run("dedup", locals()) as run:
        if (before := run.begin(DuplicatesRecord)) is not None:
            return before
        if report is not None:
            check_output(report, **run.writing)
        dataset, chosen = run.open_rows()
        # Imported here, since scikit-learn takes long to import.
        from daskcluster.methods.duplicates.near_duplicates import searching

        if _is_column(keep, dataset):
            # Rows without a score are no reason to leave out others than those without a feature.
            scores = run.open_rows(columns=[keep], missing="error")[0].to_numpy()[:, 0]
            left = mask_of_source(dataset)
            keep = scores if left is None else scores[left]
        opened, n_bytes = run.counters.passes, run.counters.bytes_read
        # The state goes when the output is there and the job is done.
        with searching(dataset, run.resumable(chosen, keep=keep)) as found:
            # Sweeps over the blocks on scratch are no passes.
            spent = {"passes": opened + found.passes, "bytes_read": n_bytes + found.bytes_read}
            run.begin_output()
            found.save(output, **run.writing)
            if report is not None:
                title = f"Near-duplicates in {source if isinstance(source, str) else 'rows'}"
                found.report(title).save(report, **run.writing)
            return run.done(run.record(DuplicatesRecord, dataset, found, **spent))


def _is_column(keep: Any, dataset: Dataset) -> bool:
    """Return True if `keep` names a column of the table that holds the rows, or of which they are left."""
    form = getattr(getattr(dataset, "base", dataset), "form", None)
    return isinstance(keep, str) and keep not in RULES and isinstance(form, TableFormat)


def plan_dedup(dataset: Dataset, given: Mapping[str, Any]) -> DuplicatesPlan:
    """Return the plan of a search for near-duplicates."""
    from daskcluster.methods.duplicates.near_duplicates import open_scores, plan_search

    plan, keep = plan_search(dataset, given), given["keep"]
    if _is_column(keep, dataset):
        open_metadata(given["source"], {**given, "columns": [keep]})
    elif not (isinstance(keep, str) and keep in RULES):
        open_scores(keep, dataset.n_rows, given["storage_options"])
    return plan


@varies_with(order=DRAWN)
def partition(
    source: Any,
    *,
    output: str,
    centroids: str | None = None,
    target_size: int = 1000,
    max_size: int | None = None,
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
        ids of the rows, else a Zarr group of the array ``partition``.
    centroids : str, optional
        URL of a file of the centres, which is written at last: ``.npy``, ``.faiss`` or ``.parquet``; see
        `daskcluster.methods.partition.partitioning.Partitions.save_centres`.
    target_size, max_size, metric, random_state, checkpoint, resume
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
    with Run("partition", locals()) as run:
        if (before := run.begin(PartitionRecord)) is not None:
            return before
        dataset, chosen = run.open_rows()
        # Imported here, since scikit-learn takes long to import.
        from daskcluster.methods.partition.partitioning import partitioning

        # The state goes when the outputs are there and the job is done.
        with partitioning(dataset, run.resumable(chosen)) as found:
            run.begin_output()
            found.save(output, **run.writing)
            if centroids is not None:
                found.save_centres(centroids, **run.writing)
            sizes = {"variation": found.balance.variation, "largest": found.balance.largest}
            return run.done(run.record(PartitionRecord, dataset, found, **sizes))


@varies_with(order=DRAWN)
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
    random_state: int | None = 0,
    labels: str | None = None,
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
    random_state : int, default 0
        Seed of a new state; an existing state has its own.
    labels : str, optional
        URL to which labels of new rows are written: one array that grows with the source, or a folder with
        one array per object.
    array : str, optional
        Name of the array, if objects are Zarr groups.
    weights : str, optional
        Row weights: an array of the same group, or a column of Parquet files.
    order : {"name", "time"}, default "name"
        Order of objects that are present at the same time.
    settle : float, default 0.0
        Read an object once it has not changed for this many seconds.
    allow_missing : bool, default False
        Read missing chunks as the fill value.
    columns : str, sequence of str or mapping, optional
        Columns of Parquet files; see `fit`. A state belongs to one choice.
    missing : {"error", "drop"}, default "error"
        Rows of Parquet files that lack a value: their file is not folded, or they are left out.
    decode : bool, optional
        See `daskcluster.open_dataset`.
    storage_options : mapping, optional
        Options of the file system for all URLs.
    engine : Engine, dask.distributed.Client, "local" or address, optional
    callbacks : sequence of callables, default ()
    **parameters
        Further parameters of `daskcluster.StreamingKMeans`, e.g. ``half_life``.

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
    from daskcluster.methods.streaming.estimator import StreamingKMeans
    from daskcluster.methods.streaming.service import StreamLoop
    from daskcluster.methods.streaming.sources import open_stream_source

    ALGORITHMS.check("streaming", parameters)
    estimator = StreamingKMeans(n_clusters=n_clusters, random_state=random_state, **parameters)
    estimator.check_parameters()
    ours = tuple(url for url in (state, labels) if url is not None)
    place = locate(state, storage_options)
    if labels is not None and locate(labels, storage_options).holds(place):
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
        estimator,
        state,
        labels=labels,
        settle=settle,
        storage_options=storage_options,
        engine=engine,
        callbacks=callbacks,
    )
