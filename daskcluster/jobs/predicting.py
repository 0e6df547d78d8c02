"""Rows under saved models: the jobs that label and score them, and draw evenly from their clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pkgutil import resolve_name
from typing import Any

import numpy as np

from daskcluster.chunk import row_dtype
from daskcluster.chunkwise.assign import RowFunction
from daskcluster.chunkwise.labelled import (
    CHOOSE_AGAIN,
    RANKED_BYTES,
    Choice,
    ChoiceParams,
    Ranking,
)
from daskcluster.data.csr import csr_of
from daskcluster.data.dataset import RowDataset, chosen_ids, chosen_rows, refuse_replacing
from daskcluster.data.label_files import is_file_output, rows_of, write_label_file
from daskcluster.data.missing import ALL, without_incomplete
from daskcluster.data.open import open_source
from daskcluster.data.weighted import MARK
from daskcluster.data.writer import ROW_KINDS, WEIGHTS, RowsShape, RowsWriter, write_values
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError
from daskcluster.estimators.examples import MOST_RANKED
from daskcluster.estimators.inputs import features_of
from daskcluster.estimators.opening import presence_of
from daskcluster.estimators.plan import PassTraffic, Plan, centres_bytes
from daskcluster.events import Callback
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.jobs.run import Run, open_metadata
from daskcluster.methods.kmeans.fit import fit_footprint, pass_flop
from daskcluster.metrics.separation import SAMPLE_SIZE, measure
from daskcluster.models.balance import (
    Balance,
    ancestors,
    check_labels_alone,
    quotas_of_levels,
    sizes_of_levels,
)
from daskcluster.models.fitted import KMeansModel, Model, load_document
from daskcluster.models.record import PredictRecord, SampleRecord, ScoreRecord
from daskcluster.parameters import shared
from daskcluster.parameters.algorithm import check_measures
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import Key, as_seed
from daskcluster.reports.contents import Clusters
from daskcluster.reports.pages import Rows as Lines
from daskcluster.reports.pages import rows_of_record
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.storage.checkpoint import noting_stored_state
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging, check_free
from daskcluster.typing import Dataset

ESTIMATORS: dict[str, str] = {
    "kmeans": "daskcluster.methods.kmeans.estimator:KMeans",
    "hierarchical-kmeans": "daskcluster.methods.hierarchical.estimator:HierarchicalKMeans",
    "partitions": "daskcluster.methods.partition.partitioning:PartitionRows",
    "mixture": "daskcluster.methods.mixture.estimator:VariationalGaussianMixture",
    "kernel-kmeans": "daskcluster.methods.kernel_kmeans.estimator:KernelKMeans",
    "graph-kmeans": "daskcluster.methods.kernel_kmeans.estimator:KernelKMeans",
}
"""Import paths of estimators by kind of model, as in `daskcluster.models.fitted.KINDS`."""


def estimator_of(model: Model, engine: Any = None) -> Any:
    """Return an estimator that has results for rows under a model, on an engine."""
    kind: Any = resolve_name(ESTIMATORS[model.kind])
    return kind.from_model(model).set_params(engine=engine)


def examine(
    model: Model,
    dataset: Any,
    *,
    shown: int = 0,
    most: int = MOST_RANKED,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Clusters:
    """Return size, weight and cost of every cluster, and its `most` nearest and farthest rows.

    Kernel k-means has no examples, since its centres are not points in the space of the rows.

    Parameters
    ----------
    dataset : anything that estimators take
    shown : int, default 0
        Number of clusters, from the largest, for which the example rows are returned as well. If it is
        positive, so is a sample of 10,000 rows, for silhouettes and the stability of k-means.

    Notes
    -----
    Cost: one pass with k + 1 distances per row. Each worker returns at most 40 k (`most` + 1) bytes, its
    part of the sample, and example rows of all clusters if these take at most 64 MiB; else those of the
    `shown` clusters are read once more.
    """
    estimator = estimator_of(model, engine)
    rows = estimator.known_rows(dataset, complete=True)
    found: Clusters = estimator.examine(rows, shown, most, callbacks)
    return found


@varies_with()
def predict(
    model: str,
    source: Any,
    *,
    output: str,
    posteriors: str | None = None,
    n_nearest: int | None = None,
    distances: bool = False,
    level: int = 1,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str | None = None,
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> PredictRecord:
    """Write the label of every row of `source` to `output`: a Zarr array, or a file with ids.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine
    callbacks
        See `fit`. By default, rows that lack a value are treated as in the fit of the model.
    output : str
        URL of the labels, which appear there only when complete. A file if it ends in .parquet, .csv (both
        with ids) or .npy, else a 1-D int32 Zarr array; with `distances` a Zarr group of ``label`` and
        ``distance``. Of the cells of a grid, a map in a Zarr group, or a GeoTIFF if it ends in .tif.
    posteriors : str, optional
        For a mixture: URL of a Zarr group with ``components`` (int32) and ``probabilities`` (float32), the
        largest posteriors of every row.
    n_nearest : int, optional
        Write that many nearest centres of every row, nearest first.
    distances : bool, default False
        Also write Euclidean distances.
    level : int, default 1
        For a model of several levels: write the clusters of this one, from 1.
    resume : bool, default False
        Resume an interrupted call: finished chunks of the outputs are not computed again. Finished chunks
        of this call are kept if it is interrupted, too.

    Raises
    ------
    ModelFormatError, OutputExistsError
        The model is damaged or an output exists; raised before any work.
    InvalidDataError
        The rows have another number of features than the model.

    Notes
    -----
    Cost: one pass; one more for `posteriors`. With `missing`, and for a grid with ``nodata`` or a GeoTIFF,
    finding what is missing takes one more first, or two (see `daskcluster.open_dataset`).
    """
    with Run("predict", locals()) as run:
        if (before := run.begin(PredictRecord)) is not None:
            return before
        fitted = load_document(model, storage_options)
        parents = ancestors(getattr(fitted, "parents", ()), level)
        if posteriors is not None and fitted.kind != "mixture":
            raise InvalidParameterError(
                f"a model of kind {fitted.kind!r} has no posteriors; leave posteriors out, or give a model "
                "of kind 'mixture'."
            )
        if parents is not None:
            check_labels_alone(level, n_nearest=n_nearest, distances=distances)
        if not isinstance(fitted, KMeansModel) and (n_nearest is not None or distances):
            raise InvalidParameterError(
                f"a model of kind {fitted.kind!r} has no nearest centres; leave n_nearest and distances "
                "out."
            )
        dataset, chosen = run.open_rows(fitted.feature_names)
        estimator = estimator_of(fitted, chosen)
        dataset = estimator.known_rows(dataset)
        run.begin_output()
        resuming = {"callbacks": run.callbacks, "resume": resume or run.is_resumed}
        options: dict[str, Any] = {**run.writing, **resuming}

        def write_posteriors() -> None:
            if posteriors is not None:
                estimator.save_posteriors(dataset, posteriors, **options)

        # Labels are published last: until they exist, the same call resumes.
        options_of_labels = options | {"output": output, "before_end": write_posteriors}
        if isinstance(fitted, KMeansModel):
            nearest: dict[str, Any] = {"n_nearest": n_nearest, "return_distance": distances}
            estimator.predict_level(dataset, parents, **nearest, **options_of_labels)
        else:
            estimator.map_rows(dataset, estimator.label_function, **options_of_labels)
        return run.done(run.record(PredictRecord, dataset))


@varies_with()
def score(
    model: str,
    source: Any,
    *,
    array: str | None = None,
    weights: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str | None = None,
    grid: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = (),
    sample_size: int | None = SAMPLE_SIZE,
    random_state: int | None = None,
    checkpoint: str | None = None,
    resume: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> ScoreRecord:
    """Return the inertia of `source` under a saved model.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, weights, storage_options, flatten, decode, columns, missing, grid, name, engine
    callbacks
        See `fit`. By default, rows that lack a value are treated as in the fit of the model.
    metrics : sequence of str, default ()
        Measures of the model's clustering of these rows; names of
        `daskcluster.parameters.algorithm.MEASURES`. Silhouettes use the model's metric.
    sample_size, random_state
        Sample of the silhouette; see `daskcluster.metrics.silhouette`.
    checkpoint : str, optional
        URL at which long passes over stored rows keep their totals about every minute, until the job is
        done.
    resume : bool, default False
        Read only what an interrupted job with this `checkpoint` has not read.

    Raises
    ------
    CheckpointError
        The totals at `checkpoint` are of other rows, another model or other measures.
    ModelFormatError
    InvalidDataError
        The rows have another number of features than the model.
    InvalidParameterError
        A measure is unknown, or undefined since all rows are in one cluster.

    Notes
    -----
    Cost: one pass, and the passes of the measures, which are shared between them. To leave out rows that
    lack a value takes one more.
    """
    asked = locals()
    wanted = check_measures(metrics)
    place = None if checkpoint is None else locate(checkpoint, storage_options)
    seed = as_seed(random_state)
    sample = {"sample_size": sample_size, "random_state": random_state}
    with Run("score", asked) as run, noting_stored_state(place, "the score"):
        run.hold()
        fitted = load_document(model, storage_options)
        opened, chosen = run.open_rows(fitted.feature_names)
        estimator = estimator_of(fitted, chosen)
        dataset: Any = estimator.known_rows(opened, complete=True)
        keeping: dict[str, Any] = {"seed": seed, "resume": resume, "callbacks": run.callbacks}
        keeping["parameters"] = {"metrics": ", ".join(wanted), **(sample if wanted else {})}
        with estimator.storing_score(dataset, place, **keeping) as stored:
            inertia, value = estimator.scores(
                dataset, run.callbacks, None if stored is None else stored.totals()
            )
            found = None
            if wanted:
                found = measure(
                    dataset.with_facts(normalize=False),
                    estimator.label_function(dataset.dtype),
                    fitted.n_clusters,
                    wanted,
                    metric=str(fitted.facts().get("metric", "euclidean")),
                    sample_size=sample_size,
                    random_state=seed if stored is None else stored.seed,
                    engine=chosen,
                    callbacks=run.callbacks,
                    totals_of=(lambda name: None) if stored is None else stored.totals,
                )
        values = {"inertia": inertia, "score": value, "metrics": found}
        return run.done(run.record(ScoreRecord, dataset, **values))


def lines_of_score(record: Mapping[str, Any]) -> Lines:
    """Return a score as lines of text, with the measured values."""
    measured = [
        (name.replace("-", " "), f"{value:.6g}")
        for name, value in (record["metrics"] or {}).items()
    ]
    return [*rows_of_record(record), *measured]


_DEVIATIONS, _ROOM = 6.0, 16.0
"""Random keys are expected to be smaller by so many standard deviations, and rows."""


@dataclass(frozen=True, eq=False)
class BalancedSample:
    """Rows of a dataset that were drawn evenly from clusters; see `balanced_sample`.

    Attributes
    ----------
    rows : ndarray of shape (m,), int64
        Row numbers, ascending.
    clusters : ndarray of shape (m,), int32
        The cluster of each row in the first level.
    weights : ndarray of shape (m,), float64
        Rows of its cluster that each row stands for: sums with these weights estimate those of all rows,
        if rows were chosen at random.
    sizes, quotas : tuple of ndarray of int64
        For each level, the rows of the clusters in the dataset and in the sample.
    seed : int
    dataset : Dataset
    """

    rows: np.ndarray
    clusters: np.ndarray
    weights: np.ndarray
    sizes: tuple[np.ndarray, ...]
    quotas: tuple[np.ndarray, ...]
    seed: int
    dataset: Dataset

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        n, k = self.dataset.n_rows, len(self.sizes[0])
        return f"BalancedSample({len(self):,} of {n:,} rows, {k:,} clusters; .rows, .clusters, .weights)"

    def take(self) -> Rows:
        """Return the rows themselves, (m, d), dense or CSR as the dataset has them; they fit in memory.

        Notes
        -----
        Cost: reads every storage chunk with at least one of the rows, in this process.
        """
        return chosen_rows(self.dataset, self.rows)

    def balance(self, level: int = 1) -> tuple[Balance, Balance]:
        """Return how evenly all rows, and those of the sample, are spread over the clusters of a level.

        Clusters without rows are left out.
        """
        sizes, quotas = self.sizes[level - 1], self.quotas[level - 1]
        return Balance.of(sizes[sizes > 0]), Balance.of(quotas[sizes > 0])


@varies_with(order=DRAWN)
def balanced_sample(
    model: Any,
    dataset: Any,
    *,
    size: int = 10_000,
    how: Any = "random",
    random_state: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> BalancedSample:
    """Draw rows as evenly as possible from the clusters of a model, without replacement.

    The clusters of the top level share `size` evenly, except that none gives more rows than it has and
    what is left over goes to the others. The share of each is divided in the same way among the clusters
    below it, down to those of the first level. A model of one level divides `size` among its clusters.

    Parameters
    ----------
    model : fitted estimator, URL of a saved one, or Model
        `HierarchicalKMeans` with several levels gives the most even samples.
    dataset : anything `open_dataset` takes, of shape (n, d)
        Rows of weight zero are never drawn; otherwise, weights do not matter. Nor are rows that lack a
        value, if the fit of the model left out such rows.
    size : int >= 1, default 10000
        Rows to draw, at most n.
    how : {"random", "nearest", "farthest"}, array-like of shape (n,), or str, default "random"
        Which rows of a cluster: at random, the nearest or farthest to its centre, or those with the largest
        scores. Scores are finite and >= 0: values, the name of a column or array, or a URL, as `weights` of
        `daskcluster.open_dataset` are.
    random_state : int >= 0, RandomState or Generator, optional
        Decides the random rows, and which clusters give one more where shares cannot be equal.
    storage_options : mapping, optional
        Options of the file system for the URLs of model and dataset.
    engine : Engine, dask.distributed.Client, "local" or address, optional
    callbacks : sequence of callables, default ()
        Called with the events of the passes.

    Returns
    -------
    BalancedSample
        Its ``rows`` are row numbers, ascending. They depend on model, rows and seed, not on chunks, workers
        or engine.

    Raises
    ------
    InvalidParameterError
        `size` exceeds the number of rows, or `how` needs centres that the model does not have.
    InvalidDataError
        The rows have another number of features than the model.
    MemoryLimitError

    Notes
    -----
    Cost: two passes, one to label and count the rows, one to choose; the second reads no rows to choose
    at random where it has their labels. Memory: 4 bytes a row for labels, over all workers (where the limit
    leaves no room, rows are labelled again), and about 60 bytes for each row of the sample: in all tasks
    together for random rows, else in each thread.

    Hierarchical sampling of Vo et al., "Automatic Data Curation for Self-Supervised Learning: A
    Clustering-Based Approach" (2024). What differs: a row is drawn by a random number that belongs to it.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (900, 2)), rng.normal(9, 1, (90, 2)), [[99.0, 99.0]]])
    >>> model = dc.KMeans(3, random_state=0).fit(X)
    >>> sample = dc.balanced_sample(model, X, size=101, random_state=0)
    >>> sample
    BalancedSample(101 of 991 rows, 3 clusters; .rows, .clusters, .weights)
    >>> sorted(np.bincount(sample.clusters).tolist())
    [1, 50, 50]
    """
    check_value("balanced_sample", shared.SAMPLE_SIZE, size)
    check_value("balanced_sample", shared.RANDOM_STATE, random_state)
    fitted = model_of(model, storage_options)
    score = score_of(how)
    if score is not None and isinstance(dataset, RowDataset):
        dataset = dataset.with_weights(None)  # type: ignore[arg-type]
    with naming_scores(score):
        options = storage_options if isinstance(dataset, (str, os.PathLike)) else None
        opened = open_source(dataset, weights=score, storage_options=options)
    chosen = choose_engine(engine, opened)
    return draw(fitted, opened, size, how, as_seed(random_state), chosen, callbacks)


def model_of(model: Any, storage_options: Mapping[str, Any] | None = None) -> Model:
    """Return the model of a fitted estimator, or the one at a URL."""
    if isinstance(model, (str, os.PathLike)):
        return load_document(os.fspath(model), storage_options)
    found: Model = model.to_model() if hasattr(model, "to_model") else model
    return found


def score_of(how: Any) -> Any:
    """Return `how` if it is a score, None if it is one of `daskcluster.parameters.shared.HOW`.

    Examples
    --------
    >>> score_of("random"), score_of("quality")
    (None, 'quality')
    """
    return None if isinstance(how, str) and how in shared.HOW else how


@contextmanager
def naming_scores(score: Any) -> Iterator[None]:
    """Say in errors of row weights that they are scores."""
    try:
        yield
    except (InvalidParameterError, DatasetNotFoundError) as error:
        if score is None:
            raise
        shown = repr(score) if isinstance(score, str) else f"<{type(score).__name__}>"
        raise InvalidParameterError(
            f"how={shown} should be {', '.join(shared.HOW)}, or scores, which are read as weights of rows: "
            f"{error}"
        ) from error


def draw(
    model: Model,
    dataset: Dataset,
    size: int,
    how: Any,
    seed: int,
    engine: Engine,
    callbacks: Sequence[Callback],
) -> BalancedSample:
    """Draw the sample in two passes; if `how` is a score, `dataset` has it as weights."""
    estimator = estimator_of(model)
    known, left, numbers = features_of(estimator), dataset, None
    may_lack = csr_of(dataset) is None and dataset.dtype.kind not in "biu"
    if may_lack and isinstance(dataset, RowDataset) and known.leaves_out(dataset):
        hearing: dict[str, Any] = {"footprint": ONE_PASS, "callbacks": callbacks}
        with engine.place(known.chosen_from(dataset), **hearing) as placement:
            present = presence_of(placement)
        left, numbers = without_incomplete(dataset, present), np.flatnonzero(present == ALL)
    rows = estimator.known_rows(left)
    labels = estimator.label_function(rows.dtype)
    ranking = _ranking(model, labels, how, seed)
    params = ChoiceParams(labels, ranking, np.zeros(model.n_clusters, np.int64))
    parents = getattr(model, "parents", ())
    footprint = cost_of_sample(model, rows, size, how, engine.n_threads).footprint
    with engine.place(rows, footprint=footprint, callbacks=callbacks) as placement:
        counted: Choice = placement.map_state(CHOOSE_AGAIN, params)
        sizes = sizes_of_levels(counted.sizes, parents)
        n_weighty = int(sizes[0].sum())
        if size > n_weighty:
            without = "" if n_weighty == rows.n_rows else " that have weight"
            raise InvalidParameterError(
                f"size={size} should be <= n_samples={n_weighty}, the rows{without}; draw fewer rows."
            )
        quotas = quotas_of_levels(sizes, parents, size, seed)
        most, below = quotas[0], None
        if ranking.how == "random":
            # All but certainly, the smallest keys are below these limits: few others travel.
            below = (most + _DEVIATIONS * np.sqrt(most) + _ROOM) / np.maximum(sizes[0], 1)
        drawn: Choice = placement.map_state(CHOOSE_AGAIN, replace(params, most=most, below=below))
        found = drawn.chosen
        found.settle()
        if len(found.rows) < int(most.sum()):
            found = placement.map_state(CHOOSE_AGAIN, replace(params, most=most)).chosen
            found.settle()
    order = np.argsort(found.rows, kind="stable")
    clusters = found.labels[order]
    weights = sizes[0][clusters] / quotas[0][clusters]
    drawn_rows = found.rows[order] if numbers is None else numbers[found.rows[order]]
    return BalancedSample(drawn_rows, clusters, weights, tuple(sizes), tuple(quotas), seed, dataset)


def _ranking(model: Model, labels: RowFunction, how: Any, seed: int) -> Ranking:
    if score_of(how) is not None:
        return Ranking("score")
    if how == "random":
        return Ranking(how, Key(seed, "balanced sample"))
    if not isinstance(model, KMeansModel):
        raise InvalidParameterError(
            f"how={how!r} needs a model of k-means, whose clusters have centres in the space of the rows, "
            f"found a model of kind {model.kind!r}; use how='random' or scores."
        )
    return Ranking(how, centres=labels.params.centres)


def cost_of_sample(model: Model, rows: Dataset, size: int, how: Any, n_threads: int = 1) -> Plan:
    """Return the cost of a sample of `rows`."""
    k, drawn = model.n_clusters, RANKED_BYTES * size
    found = fit_footprint(rows, k, "sample")
    # Random rows are divided among the threads; others may all be found by one.
    n_shares = n_threads if score_of(how) is None and how == "random" else 1
    footprint = replace(
        found,
        thread_bytes=found.thread_bytes + drawn // n_shares,
        row_bytes=CHOOSE_AGAIN.row_bytes,
        home_bytes=drawn,
        keeps_rows=False,
    )
    return Plan(
        seeding="",
        passes_seeding=0,
        restarts=1,
        passes_at_most=2,
        footprint=footprint,
        flop=pass_flop(rows, k),
        travel=PassTraffic(centres_bytes(rows, k), RANKED_BYTES * size // n_shares),
    )


PARQUET = (".parquet", ".pq")
_STEP = 1 << 20
"""Rows of a file of ids that are written at once."""
_BLOCK_BYTES = 1 << 26
"""Bytes of rows that are read at once."""


def write_sample(
    sample: BalancedSample,
    output: str,
    *,
    rows: str | None = None,
    weighted: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Write the ids of the rows of a sample and, if requested, the rows; each whole or not at all.

    Parameters
    ----------
    sample : BalancedSample
    output : str
        A file that ends in .parquet or .csv, of ids, clusters and weights; else row numbers alone, as
        .npy or a Zarr array.
    rows : str, optional
        URL of the rows, in the order of the ids: a Parquet file if it ends in .parquet, else Zarr. The file
        has the ids, too, and a column for each named feature, or one of lists, ``X``.
    weighted : bool
        Write the rows with their weights: as a group of ``X`` and ``weights`` that every estimator takes,
        or in a column ``weight``.
    overwrite : bool
    storage_options : mapping, optional

    Raises
    ------
    OutputExistsError
    InvalidDataError
        Sparse rows, which Parquet does not hold.

    Notes
    -----
    Cost: for rows, reads every storage chunk with at least one of them, in this process; memory is about
    128 MB, or the whole sample for sparse rows.
    """
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    place = locate(output, storage_options)
    rows_place = None if rows is None else locate(rows, storage_options)
    refuse_replacing(sample.dataset, output=place, rows=rows_place)
    if rows is not None:
        write = _write_parquet if is_file_output(rows) else _write_zarr
        write(sample, rows, weighted=weighted, **options)
    chosen = _ChosenRows(sample)
    # Ids come last: who finds them finds the rows.
    if not is_file_output(output):
        write_values(output, [chosen.numbers], len(sample), np.dtype(np.int64), **options)
        return
    check_free(output, kinds=("file",), **options)
    columns = {"cluster": sample.clusters, "weight": sample.weights}
    if output.lower().endswith(".npy"):
        columns = {"row": chosen.numbers}
    values = {name: partial(rows_of, array) for name, array in columns.items()}
    write_label_file(place, chosen, values, overwrite=overwrite)


class _ChosenRows:
    """Rows of a sample, in the form in which `write_label_file` reads them, feature by feature."""

    def __init__(self, sample: BalancedSample, step: int = _STEP) -> None:
        self._dataset: Any = sample.dataset
        self._rows = sample.rows
        self._span, self._block = (0, 0), np.empty((0, 0))
        self.n_rows = len(sample)
        self.id_column: str | None = getattr(sample.dataset, "id_column", None)
        edges = [*range(0, self.n_rows, step), self.n_rows]
        self.chunk_sizes = tuple(last - first for first, last in pairwise(edges))

    def ids(self, start: int, stop: int) -> Any:
        """Return the ids of rows `start` to `stop` of the sample."""
        return chosen_ids(self._dataset, self._rows[start:stop])

    @cached_property
    def numbers(self) -> np.ndarray:
        """Numbers of the rows in the source, int64 (m,)."""
        return self._rows if self.id_column is not None else self.ids(0, self.n_rows)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop` of the sample; the last ones are kept."""
        if self._span != (start, stop):
            found = np.asarray(chosen_rows(self._dataset, self._rows[start:stop]))
            self._block = found.astype(row_dtype(self._dataset.dtype), copy=False)
            self._span = start, stop
        return self._block

    def feature(self, column: int, start: int, stop: int) -> np.ndarray:
        """Return one feature of these rows."""
        return np.ascontiguousarray(self.rows(start, stop)[:, column])


def check_rows(rows: str | None, dataset: Any = None) -> None:
    """Raise, before any work, if rows cannot be written to this URL.

    Raises
    ------
    InvalidParameterError, InvalidDataError
    """
    if rows is None or not is_file_output(rows):
        return
    if not rows.lower().endswith(PARQUET):
        raise InvalidParameterError(
            f"rows={rows!r} should end in {' or '.join(PARQUET)}, or in .zarr: rows are written as Parquet "
            "or Zarr."
        )
    if csr_of(dataset) is not None:
        raise InvalidDataError(
            f"rows={rows!r} should be Zarr: the rows are sparse, which Parquet does not hold; write them "
            "to a URL that ends in .zarr."
        )


def _write_parquet(sample: BalancedSample, url: str, *, weighted: bool, **options: Any) -> None:
    dataset: Any = sample.dataset
    check_rows(url, dataset)
    place, _ = check_free(url, kinds=("file",), **options)
    bytes_of_row = max(1, dataset.n_features * row_dtype(dataset.dtype).itemsize)
    chosen = _ChosenRows(sample, max(1, _BLOCK_BYTES // bytes_of_row))
    names = getattr(dataset, "feature_names", None) or ()
    taken = {chosen.id_column or "row", "weight"}
    columns = getattr(getattr(dataset, "form", None), "columns", None)
    lists = [] if columns is None else [each for each in columns.names if each not in taken]
    values: dict[str, Any] = {lists[0] if len(lists) == 1 else "X": chosen.rows}
    if names and not taken & set(names):
        values = {name: partial(chosen.feature, column) for column, name in enumerate(names)}
    if weighted:
        values["weight"] = partial(rows_of, sample.weights)
    write_label_file(place, chosen, values, overwrite=options["overwrite"], row_bytes=bytes_of_row)


def _write_zarr(sample: BalancedSample, url: str, *, weighted: bool, **options: Any) -> None:
    dataset: Any = sample.dataset
    step = max(1, _BLOCK_BYTES // max(1, dataset.bytes_of((0, 1))))
    shape, every = RowsShape(len(sample), dataset.n_features, dataset.dtype), None
    if isinstance(chosen_rows(dataset, sample.rows[:1]), SparseRows):
        every = sample.take()
        shape = RowsShape.of(every)
    others = {WEIGHTS: np.float64} if weighted else {}
    account = {"size": len(sample), "n_rows": dataset.n_rows, "seed": sample.seed}
    with Staging.begin(url, kinds=ROW_KINDS, **options) as staging:
        with RowsWriter(staging, shape, others, group={"sample": account, **MARK}) as writer:
            for start in range(0, len(sample), step):
                part = slice(start, start + step)
                values = (sample.weights[part],) if weighted else ()
                rows = chosen_rows(dataset, sample.rows[part]) if every is None else every[part]
                writer.append(rows, *values)
        staging.commit(writer.documents())


@varies_with(order=DRAWN)
def sample(
    model: str,
    source: Any,
    *,
    size: int,
    output: str,
    rows: str | None = None,
    weighted: bool = False,
    how: Any = "random",
    random_state: int | None = None,
    array: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    flatten: bool = False,
    decode: bool | None = None,
    columns: Any = None,
    missing: str | None = None,
    grid: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    name: str | None = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
) -> SampleRecord:
    """Draw rows of `source` evenly from the clusters of a model, and write their ids.

    Parameters
    ----------
    model : str
        URL of a saved model.
    source, array, storage_options, flatten, decode, columns, missing, grid, overwrite, name, engine
    callbacks
        See `fit`. By default, rows that lack a value are treated as in the fit of the model.
    size, how, random_state
        See `daskcluster.balanced_sample`.
    output : str
        URL of the ids: a file with clusters and weights if it ends in .parquet or .csv; else row numbers
        alone, as .npy or a Zarr array.
    rows : str, optional
        URL of the rows themselves, in the order of the ids: Parquet (with ids) if it ends in .parquet, else
        Zarr.
    weighted : bool, default False
        Write the rows with their weights. Every estimator uses those of Zarr by itself, and those of
        Parquet with ``weights="weight"``.

    Returns
    -------
    SampleRecord

    Raises
    ------
    OutputExistsError
        An output exists; raised before any work.
    InvalidParameterError, InvalidDataError, ModelFormatError, MemoryLimitError

    Notes
    -----
    Cost: two passes; with `rows`, their storage chunks are read once more. To leave out rows that lack a
    value takes one more, first.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.jobs import fit
    >>> X = np.random.default_rng(0).normal(size=(5000, 2))
    >>> urls = {"model": "memory://example/sampled-model", "overwrite": True}
    >>> record = fit(X, n_clusters=20, random_state=0, **urls)
    >>> record = sample(source=X, size=200, random_state=0, output="memory://example/ids.zarr", **urls)
    >>> record.size, record.passes, record.after[0]["largest"]
    (200, 2, 10)
    """
    asked = locals()
    check_value("sample", shared.SAMPLE_SIZE, size)
    score = score_of(how)
    with Run("sample", asked) as run:
        if (before := run.begin(SampleRecord)) is not None:
            return before
        fitted = model_of(model, storage_options)
        with naming_scores(score):
            weighted_by = {} if score is None else {"weights": score}
            dataset, chosen = run.open_rows(fitted.feature_names, **weighted_by)
        check_rows(rows, dataset)
        seed = as_seed(random_state)
        found = draw(fitted, dataset, size, how, seed, chosen, run.callbacks)
        run.begin_output()
        write_sample(found, output, rows=rows, weighted=weighted, **run.writing)
        levels = range(1, len(found.sizes) + 1)
        of_all, of_sample = zip(*(found.balance(level) for level in levels), strict=True)
        own: dict[str, Any] = {
            "size": len(found),
            "how": how if isinstance(how, str) else "scores",
            "seed": seed,
            "levels": [len(sizes) for sizes in found.sizes],
            "before": [balance.as_dict() for balance in of_all],
            "after": [balance.as_dict() for balance in of_sample],
        }
        return run.done(run.record(SampleRecord, dataset, **own))


def plan_sample(dataset: Dataset, given: Mapping[str, Any]) -> Plan:
    """Return the plan of the job, or raise what it would raise before its first pass."""
    model = model_of(given["model"], given["storage_options"])
    size, how, estimator = given["size"], given["how"], estimator_of(model)
    check_value("sample", shared.SAMPLE_SIZE, size)
    check_rows(given["rows"], dataset)
    score = score_of(how)
    if score is not None:
        with naming_scores(score):
            open_metadata(given["source"], {**given, "weights": score}, model.feature_names)
    rows = estimator.known_rows(dataset)
    _ranking(model, estimator.label_function(rows.dtype), how, 0)
    if size > rows.n_rows:
        raise InvalidParameterError(
            f"size={size} should be <= n_samples={rows.n_rows}, the rows; draw fewer rows."
        )
    return cost_of_sample(model, rows, size, how)


def lines_of_sample(record: Mapping[str, Any]) -> Lines:
    """Return the record of a sample as lines of text, with the balance of its levels."""
    balances = zip(record["before"], record["after"], strict=True)
    return [
        *rows_of_record(record),
        *(
            (name, str(Balance(**balance)))
            for level, both in enumerate(balances, 1)
            for name, balance in zip((f"level {level}", "  sample"), both, strict=True)
        ),
    ]
