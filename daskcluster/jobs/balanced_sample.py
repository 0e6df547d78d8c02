"""`balanced_sample`: rows drawn evenly from the clusters of a model, and the clusters of clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskcluster.chunkwise.assign import RowFunction
from daskcluster.chunkwise.labelled import (
    CHOOSE_AGAIN,
    RANKED_BYTES,
    Choice,
    ChoiceParams,
    Ranking,
    SmallestKeys,
)
from daskcluster.data.dataset import RowDataset, chosen_rows
from daskcluster.data.open import open_source
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine, Placement
from daskcluster.errors import DatasetNotFoundError, InvalidParameterError
from daskcluster.estimators.plan import Plan, Travel, centres_bytes
from daskcluster.events import Callback
from daskcluster.jobs.kinds import estimator_of
from daskcluster.methods.kmeans.fit import fit_footprint, pass_flop
from daskcluster.models.balance import Balance, quotas_of_levels, sizes_of_levels
from daskcluster.models.kmeans import KMeansModel
from daskcluster.models.persist import Model, load_document
from daskcluster.parameters import shared
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import Key, as_seed
from daskcluster.sparse_rows import Rows
from daskcluster.typing import Dataset

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
        Rows of weight zero are never drawn; otherwise, weights do not matter.
    size : int >= 1
        Rows to draw, at most n.
    how : {"random", "nearest", "farthest"}, array-like of shape (n,), or str
        Which rows of a cluster: at random, the nearest or farthest to its centre, or those with the largest
        scores. Scores are finite and >= 0: values, the name of a column or array, or a URL, as `weights` of
        `daskcluster.open_dataset` are.
    random_state : int >= 0, RandomState or Generator, optional
        Decides the random rows, and which clusters give one more where shares cannot be equal.
    storage_options : mapping, optional
        Options of the file system for the URLs of model and dataset.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Hear the events of the passes.

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
    rows = estimator.known_rows(dataset)
    labels = estimator.label_function(rows.dtype)
    ranking = _ranking(model, labels, how, seed)
    params = ChoiceParams(labels, ranking, np.zeros(model.n_clusters, np.int64))
    parents = getattr(model, "parents", ())
    footprint = plan_sample(model, rows, size, how, engine.n_threads).footprint
    with engine.place(rows, footprint=footprint, callbacks=callbacks) as placement:
        counted: Choice = placement.map_state(CHOOSE_AGAIN, params)
        sizes = sizes_of_levels(counted.sizes, parents)
        _check_size(size, int(sizes[0].sum()), dataset.n_rows)
        quotas = quotas_of_levels(sizes, parents, size, seed)
        found = _choose(placement, replace(params, most=quotas[0]), sizes[0])
    order = np.argsort(found.rows, kind="stable")
    clusters = found.labels[order]
    weights = sizes[0][clusters] / quotas[0][clusters]
    return BalancedSample(
        found.rows[order], clusters, weights, tuple(sizes), tuple(quotas), seed, dataset
    )


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


def _choose(placement: Placement, params: ChoiceParams, sizes: np.ndarray) -> SmallestKeys:
    """Return the rows with the smallest keys; a pass."""
    below = None
    if params.ranking.how == "random":
        # All but certainly, the smallest keys are below these limits: few others travel.
        most = params.most
        below = (most + _DEVIATIONS * np.sqrt(most) + _ROOM) / np.maximum(sizes, 1)
    found: Choice = placement.map_state(CHOOSE_AGAIN, replace(params, below=below))
    found.chosen.settle()
    if len(found.chosen.rows) < int(params.most.sum()):
        found = placement.map_state(CHOOSE_AGAIN, params)
        found.chosen.settle()
    return found.chosen


def _check_size(size: int, n_weighty: int, n_rows: int) -> None:
    if size > n_weighty:
        without = "" if n_weighty == n_rows else " that have weight"
        raise InvalidParameterError(
            f"size={size} should be <= n_samples={n_weighty}, the rows{without}; draw fewer rows."
        )


def plan_sample(model: Model, rows: Dataset, size: int, how: Any, n_threads: int = 1) -> Plan:
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
        travel=Travel(centres_bytes(rows, k), RANKED_BYTES * size // n_shares),
    )
