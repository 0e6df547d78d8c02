"""Measures of compactness and separation: from cluster sums, distances to means, and silhouettes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.labelled import (
    LABELLED_SUMS,
    PICK,
    SPREADS,
    Numbers,
    PickedRows,
    PickParams,
    RenumberedLabels,
    RowLabels,
    SpreadParams,
    Spreads,
    SumsParams,
)
from daskcluster.chunkwise.statistics import KMeansStatistics
from daskcluster.data.join import in_order_of
from daskcluster.data.label_files import BLOCK_ROWS, LabelArray, mask_of_source, open_labels
from daskcluster.data.nodes import metadata_digest, open_array
from daskcluster.data.open import open_source
from daskcluster.data.recipes import for_metric
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.events import Callback
from daskcluster.invariance import ADDED, varies_with
from daskcluster.kernels.distance import sqdist_all
from daskcluster.parameters.algorithm import check_measures
from daskcluster.randomness import Key, as_seed
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.storage.location import Location
from daskcluster.storage.pass_totals import PassTotals
from daskcluster.storage.process_local import open_once
from daskcluster.typing import Dataset, Visibility

_INLINE_BYTES = 1 << 20
"""Most bytes of numbers that are sent with every task."""


@dataclass(frozen=True)
class Labelling:
    """Labels of rows and their distinct values.

    Attributes
    ----------
    array : LabelArray
    classes : ndarray of shape (k,)
        The distinct labels, sorted.
    location : Location or None
        Location of the Zarr array that holds the labels, if any.
    digest : str
        Digest of that array, which changes if another replaces it under the same URL.
    """

    array: LabelArray
    classes: np.ndarray
    location: Location | None = None
    digest: str = ""

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Return the cluster numbers of rows `start` to `stop`, int32."""
        return numbered(self.array.read(start, stop), self.classes)

    def row_labels(self, placement: Placement) -> RowLabels:
        """Return the object that gives these numbers to the tasks of `placement`.

        Raises
        ------
        InvalidParameterError
            The labels are in this process's memory, are too large to send with tasks, and the workers share
            no disk with it.
        """
        here = placement.shares_memory
        if self.location is not None and (
            here or self.location.visibility is not Visibility.PROCESS
        ):
            return StoredNumbers(self.location, self.digest, self.classes)
        found = np.empty(self.array.n_rows, np.int32)
        for start in range(0, len(found), BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, len(found))
            found[start:stop] = self.numbers(start, stop)
        if here or found.nbytes <= _INLINE_BYTES:
            return HeldNumbers(found)
        folder = placement.shared_folder()
        if folder is None:
            raise InvalidParameterError(
                f"labels of {len(found)} rows in this process's memory cannot be sent to the workers; "
                "write them to a Zarr array that the workers can read and give its URL."
            )
        path = os.path.join(folder, "labels.npy")
        np.save(path, found)
        return HeldNumbers(path)


def open_labelling(labels: Any, n_rows: int, kept: np.ndarray | None = None) -> Labelling:
    """Open labels and find their distinct values.

    Parameters
    ----------
    labels : array-like of shape (n,), str or path
        As `daskcluster.data.label_files.open_labels` takes them.
    n_rows : int
        Number of rows of the dataset.
    kept : ndarray of bool, optional
        Which rows of its source the dataset has. Labels of all these are taken too, and those of the others
        left out.

    Raises
    ------
    InvalidDataError
        The number of labels differs from `n_rows`.

    Notes
    -----
    Cost: one pass over the labels, a million at a time.

    Examples
    --------
    >>> found = open_labelling(["b", "a", "b"], 3)
    >>> found.classes.tolist(), found.numbers(0, 3).tolist()
    (['a', 'b'], [1, 0, 1])
    """
    array = whole = open_labels(labels)
    if kept is not None and len(kept) == array.n_rows != n_rows:
        at = np.append(np.flatnonzero(kept), len(kept))

        def read(start: int, stop: int) -> np.ndarray:
            return whole.read(int(at[start]), int(at[stop]))[kept[at[start] : at[stop]]]

        array = LabelArray(n_rows, read)
    if array.n_rows != n_rows:
        raise InvalidDataError(
            "Found input variables with inconsistent numbers of samples: "
            f"{[n_rows, array.n_rows]}. labels has {array.n_rows} rows, X has {n_rows}; give one label for "
            "every row."
        )
    classes = np.empty(0)
    for start in range(0, n_rows, BLOCK_ROWS):
        block = np.unique(array.read(start, min(start + BLOCK_ROWS, n_rows)))
        classes = np.union1d(classes, block) if start else block
    location = array.location
    digest = "" if location is None else metadata_digest(open_array(location))
    return Labelling(array, classes, location, digest)


def numbered(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the position of each of `values` in `classes`, int32.

    Raises
    ------
    InvalidDataError
        A value is not in `classes`: the labels were rewritten meanwhile.
    """
    found = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
    if not np.array_equal(classes[found], values):
        raise InvalidDataError(
            "The labels changed while they were being read; wait for the writer and run again."
        )
    return found.astype(np.int32)


# -- picklable cluster numbers ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HeldNumbers:
    """Numbers of clusters in memory, or in a .npy file that all tasks can read."""

    array: np.ndarray | str

    def ready(self) -> Numbers:
        """Return the function that copies them, since compiled code takes no read-only arrays."""
        held = self.array
        array = np.load(held, mmap_mode="r") if isinstance(held, str) else held
        return lambda chunk: np.array(array[chunk.start : chunk.stop])


@dataclass(frozen=True, eq=False)
class StoredNumbers:
    """Numbers of clusters from labels in a Zarr array."""

    location: Location
    digest: str
    classes: np.ndarray

    def ready(self) -> Numbers:
        """Return the function that reads them; adjacent rows read a storage chunk once."""
        array = open_once((self.location, self.digest), lambda: open_array(self.location))
        step, kept = int(array.chunks[0]), threading.local()

        def read(chunk: Chunk) -> np.ndarray:
            # Whole storage chunks, of which each thread keeps the last one.
            found, start = np.empty(chunk.n_rows, np.int32), chunk.start
            while start < chunk.stop:
                first = start // step * step
                stop = min(chunk.stop, first + step)
                if getattr(kept, "first", None) != first:
                    values = np.asarray(array[first : first + step])
                    kept.numbers, kept.first = numbered(values, self.classes), first
                part = kept.numbers[start - first : stop - first]
                found[start - chunk.start : stop - chunk.start] = part
                start = stop
            return found

        return read


DISTANCES = ("euclidean", "cosine")
_CELLS = 1 << 22
"""Distances held at a time."""
_ZERO = 1e-8
"""Distances below this count as zero, as in scikit-learn."""
_LEAST_SHARE = 1e-6
"""Share of the total scatter below which the scatter within clusters is not computed as a difference."""


@varies_with()
def calinski_harabasz(X: Any, labels: Any, *, engine: Any = None) -> float:
    """Return the ratio of scatter between and within clusters, each divided by its degrees of freedom.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
        With row weights, a row of weight w counts as w rows.
    labels : labels of shape (n,)
        In memory, a Labels handle, a dask array, a zarr.Array, or the URL of a 1-D Zarr array. A noise
        label such as -1 is a cluster like any other.
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    float
        Larger is better; 1 if all rows equal the mean of their cluster.

    Raises
    ------
    InvalidParameterError
        There are fewer than 2 distinct labels, or as many labels as rows.
    InvalidDataError
        The number of labels differs from that of the rows, or a row is not finite.

    Notes
    -----
    Calinski and Harabasz 1974; `sklearn.metrics.calinski_harabasz_score`, whose result it equals up to
    rounding. Sums are exact, so the bits do not depend on engine, chunks or workers. The scatter within
    clusters is the total scatter minus that between clusters; if this difference loses digits, the rows are
    read once more.

    Cost: one pass over rows and labels; two if the scatter within clusters is below a millionth of the
    total. Each thread holds, and each worker returns, two sums of k x d numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> metrics.calinski_harabasz(rows, [0, 0, 1, 1])
    128.0
    """
    with _labelled(X, labels, engine) as (placement, found, k):
        return Clusters(ScaledPlacement(placement), found, k).calinski_harabasz()


@varies_with()
def davies_bouldin(X: Any, labels: Any, *, engine: Any = None) -> float:
    """Return the mean over clusters of the largest ratio of the radii of two clusters to their distance.

    Parameters
    ----------
    X, labels, engine
        As in `calinski_harabasz`.

    Returns
    -------
    float
        At least 0; smaller is better.

    Raises
    ------
    InvalidParameterError, InvalidDataError
        As in `calinski_harabasz`.

    Notes
    -----
    Davies and Bouldin 1979; `sklearn.metrics.davies_bouldin_score`, whose result it equals up to rounding.
    The radius of a cluster is the mean Euclidean distance of its rows to their mean.

    Cost: two passes over rows and labels, one for the means and one for the distances to them; k^2
    distances between means.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [1.0], [8.0], [9.0]])
    >>> metrics.davies_bouldin(rows, [0, 0, 1, 1])
    0.125
    """
    with _labelled(X, labels, engine) as (placement, found, k):
        return Clusters(ScaledPlacement(placement), found, k).davies_bouldin()


@varies_with()
def simplified_silhouette(
    X: Any, labels: Any, *, metric: str = "euclidean", engine: Any = None
) -> float:
    """Return the mean silhouette of all rows, with distances to cluster means instead of mean distances.

    For a row, let a be its distance to the mean of its cluster and b that to the nearest other mean. Its
    silhouette is (b - a) / max(a, b), and 0 in a cluster of one row.

    Parameters
    ----------
    X, labels, engine
        As in `calinski_harabasz`.
    metric : {"euclidean", "cosine"}, default "euclidean"
        With ``"cosine"``, rows are scaled to length one, and distances are half of squared ones.

    Returns
    -------
    float
        In [-1, 1]; larger is better.

    Raises
    ------
    InvalidParameterError, InvalidDataError
        As in `calinski_harabasz`.

    Notes
    -----
    Hruschka, Campello and de Castro, "Evolving clusters in gene-expression data", Information Sciences
    176 (2006). It needs n k distances, while `silhouette` needs n^2.

    Cost: two passes over rows and labels, and k distances per row.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [2.0], [9.0], [11.0]])
    >>> round(metrics.simplified_silhouette(rows, [0, 0, 1, 1]), 4)
    0.8875
    """
    check_distance(metric)
    rows, labels = for_metric(open_source(X), metric), in_order_of(X, labels, "labels")
    with _labelled(rows, labels, engine) as (placement, found, k):
        return Clusters(ScaledPlacement(placement), found, k).simplified_silhouette()


def check_distance(metric: str) -> str:
    """Return `metric` if it is one of `DISTANCES`."""
    if metric not in DISTANCES:
        raise InvalidParameterError(f"metric={metric!r} should be one of {', '.join(DISTANCES)}.")
    return metric


def check_labels(n_labels: int, n_rows: int) -> None:
    """Raise for a single label, or as many labels as rows, as scikit-learn does."""
    if not 1 < n_labels < n_rows:
        raise InvalidParameterError(
            f"Number of labels is {n_labels}. Valid values are 2 to n_samples - 1 (inclusive): with "
            f"{n_rows} rows, one cluster or as many as rows have no separation to measure."
        )


@contextmanager
def _labelled(X: Any, labels: Any, engine: Any) -> Iterator[tuple[Placement, RowLabels, int]]:
    """Place rows, open their labels, and yield both with the number of distinct labels."""
    dataset, labels = open_source(X), in_order_of(X, labels, "labels")
    labelling = open_labelling(labels, dataset.n_rows, mask_of_source(dataset))
    check_labels(len(labelling.classes), dataset.n_rows)
    with choose_engine(engine, dataset).place(dataset) as placement:
        yield placement, labelling.row_labels(placement), len(labelling.classes)


@dataclass(frozen=True)
class Found:
    """Sums of the non-empty clusters; `labels` number only these."""

    labels: RowLabels
    statistics: KMeansStatistics
    means: np.ndarray
    weights: np.ndarray


class Clusters:
    """Labelled rows and their statistics; each pass runs when its result is first needed.

    Parameters
    ----------
    rows : ScaledPlacement
    labels : RowLabels
    n_clusters : int
        Labels are less than this; clusters without rows or without weight are ignored.
    compare : bool
        Also compute distances to the means of other clusters, in the same pass.
    """

    def __init__(
        self, rows: ScaledPlacement, labels: RowLabels, n_clusters: int, *, compare: bool = True
    ) -> None:
        self._rows, self._labels, self._n_clusters = rows, labels, n_clusters
        self._compare = compare

    @cached_property
    def sums(self) -> Found:
        """Sums, means and weights of the clusters. One pass."""
        labels, k = self._labels, self._n_clusters
        found: KMeansStatistics = self._rows.reduce(
            LABELLED_SUMS, lambda scale: SumsParams(labels, k, scale)
        )
        there = found.weights > 0.0
        check_labels(int(there.sum()), self._rows.placement.dataset.n_rows)
        means = found.means(np.zeros((k, len(self._rows.origin))))[there]
        if not there.all():
            # Rows without weight go to cluster 0, to which they add nothing.
            labels = RenumberedLabels(labels, np.maximum(np.cumsum(there) - 1, 0))
        return Found(labels, found, means, found.weights[there])

    @cached_property
    def spreads(self) -> Spreads:
        """Distances of rows to the means. One pass, after that of `sums`."""
        found, compare = self.sums, self._compare
        alone = found.weights == 1.0
        spreads: Spreads = self._rows.reduce(
            SPREADS,
            lambda scale: SpreadParams(found.labels, found.means, alone, scale, compare),
        )
        return spreads

    def calinski_harabasz(self) -> float:
        """See `calinski_harabasz`."""
        weights, means = self.sums.weights, self.sums.means
        total = float(weights.sum())
        centre = self.sums.statistics.totals.sum(axis=0) / total
        gaps = means - centre
        between = float((weights * (gaps * gaps).sum(axis=1)).sum())
        data_statistics = self._rows.data_statistics
        assert data_statistics is not None
        offset = centre - data_statistics.origin
        scatter = data_statistics.total_spread - total * float((offset * offset).sum())
        within = float(scatter) - between
        if within < _LEAST_SHARE * between:
            within = float(self.spreads.squares.sum())
        if within == 0.0:
            return 1.0
        return float(between * (total - len(means)) / (within * (len(means) - 1.0)))

    def davies_bouldin(self) -> float:
        """See `davies_bouldin`."""
        sizes = self.spreads.lengths.sum(axis=0) / self.sums.weights
        worst = np.zeros(len(sizes))
        apart = False
        means = self.sums.means
        step = max(1, _CELLS // len(means))
        for first in range(0, len(means), step):
            rows = slice(first, min(first + step, len(means)))
            gaps = np.empty((rows.stop - first, len(means)))
            sqdist_all(means[rows], means, gaps)
            np.sqrt(gaps, out=gaps)
            apart = apart or bool((gaps > _ZERO).any())
            gaps[gaps == 0.0] = np.inf
            worst[rows] = ((sizes[rows, None] + sizes) / gaps).max(axis=1)
        return float(worst.mean()) if apart and (sizes > _ZERO).any() else 0.0

    def simplified_silhouette(self) -> float:
        """See `simplified_silhouette`."""
        return self.spreads.silhouettes.value / float(self.sums.weights.sum())


SAMPLE_SIZE = 10_000


@varies_with(order=ADDED)
def silhouette(
    X: Any,
    labels: Any,
    *,
    metric: str = "euclidean",
    sample_size: int | None = SAMPLE_SIZE,
    random_state: Any = None,
    engine: Any = None,
) -> float:
    """Return the mean silhouette: how much nearer rows are to their own cluster than to the next one.

    For a row, let a be its mean distance to the other rows of its cluster and b the smallest mean distance
    to the rows of another cluster. Its silhouette is (b - a) / max(a, b), and 0 in a cluster of one row.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
        Must not have row weights.
    labels : labels of shape (n,)
        As in `daskcluster.metrics.calinski_harabasz`.
    metric : {"euclidean", "cosine"}, default "euclidean"
        Distance of two rows. ``"cosine"`` is one minus the cosine of their angle, and 1 if a row is zero.
    sample_size : int or None, default 10000
        If there are more rows, use a uniform sample of this many, and distances within the sample. None:
        use all rows.
    random_state : int, RandomState or Generator, optional
        Seed of the sample.
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    float
        In [-1, 1]; larger is better.

    Raises
    ------
    InvalidParameterError
        The sample has fewer than 2 distinct labels, or as many labels as rows; or the rows have weights.
    InvalidDataError
        The number of labels differs from that of the rows, or a row is not finite.

    Notes
    -----
    Rousseeuw 1987; `sklearn.metrics.silhouette_score`, whose result it equals up to rounding if all rows
    are used. The sample depends only on seed and n, so the bits do not depend on engine or chunks.
    Distances are computed by direct differences for dense rows, and from norms and products for sparse
    ones. Cost: one pass, which returns the m rows of the sample to this process; then m^2 distances there.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [2.0], [9.0], [11.0]])
    >>> round(metrics.silhouette(rows, [0, 0, 1, 1]), 4)
    0.775
    """
    if sample_size is not None and not sample_size >= 3:
        raise InvalidParameterError(
            f"sample_size={sample_size!r} should be at least 3, or None for all rows."
        )
    check_distance(metric)
    with _labelled(X, labels, engine) as (placement, found, _):
        return sampled_silhouette(placement, found, metric, sample_size, random_state)


def sampled_silhouette(
    placement: Placement,
    labels: RowLabels,
    metric: str,
    sample_size: int | None,
    random_state: Any,
) -> float:
    """Return the silhouette of a placed dataset; see `silhouette`. One pass."""
    indices = sample_of_rows(placement.dataset.n_rows, sample_size, random_state)
    return float(_silhouettes_of(placement, labels, indices, metric).mean())


def sample_of_rows(n_rows: int, sample_size: int | None, random_state: Any) -> np.ndarray:
    """Return the numbers of a uniform sample of rows, int64 ascending; of all if there are no more."""
    if sample_size is None or n_rows <= sample_size:
        return np.arange(n_rows)
    draw = Key(as_seed(random_state), "silhouette").generator()
    return np.sort(draw.choice(n_rows, sample_size, replace=False))


@varies_with(order=ADDED)
def silhouette_samples(
    X: Any, labels: Any, *, metric: str = "euclidean", engine: Any = None
) -> np.ndarray:
    """Return the silhouette of every row; see `silhouette`, which is their mean.

    Parameters
    ----------
    X : anything `open_dataset` takes, of shape (n, d)
        Must not have row weights.
    labels : labels of shape (n,)
        As in `daskcluster.metrics.calinski_harabasz`.
    metric : {"euclidean", "cosine"}, default "euclidean"
    engine : Engine, dask.distributed.Client, "local" or address, optional

    Returns
    -------
    ndarray of shape (n,), float64

    Raises
    ------
    InvalidParameterError
        There are fewer than 2 distinct labels, or as many labels as rows; or the rows have weights.
    InvalidDataError
        The number of labels differs from that of the rows, or a row is not finite.

    Notes
    -----
    `sklearn.metrics.silhouette_samples`. Cost: one pass, which gathers all rows in the memory of this
    process; then n^2 distances there.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster import metrics
    >>> rows = np.array([[0.0], [2.0], [9.0], [11.0]])
    >>> metrics.silhouette_samples(rows, [0, 0, 1, 1]).round(3)
    array([0.8 , 0.75, 0.75, 0.8 ])
    """
    check_distance(metric)
    with _labelled(X, labels, engine) as (placement, found, _):
        return _silhouettes_of(placement, found, np.arange(placement.dataset.n_rows), metric)


def _silhouettes_of(
    placement: Placement, labels: RowLabels, indices: np.ndarray, metric: str
) -> np.ndarray:
    """Return the silhouettes of the rows at ascending `indices`, within this subset. One pass."""
    if placement.dataset.weights is not None:
        raise InvalidParameterError(
            "the silhouette is not defined for weighted rows: no weighted form both equals that of w "
            "copies of a row and is invariant to the scale of weights; open the rows without weights, "
            "or use simplified_silhouette."
        )
    picked: PickedRows = placement.reduce(PICK, PickParams(labels, indices))
    rows, numbers = picked.joined()
    classes, numbers = np.unique(numbers, return_inverse=True)
    check_labels(len(classes), len(numbers))
    return silhouettes(rows, numbers, metric)


def silhouettes(rows: Rows, numbers: np.ndarray, metric: str = "euclidean") -> np.ndarray:
    """Return the silhouette of every row among `rows`, float64 (m,).

    Parameters
    ----------
    rows : Rows, shape (m, d)
    numbers : ndarray of shape (m,), int
        Clusters of the rows, 0 to k - 1; each must occur.
    metric : {"euclidean", "cosine"}

    Examples
    --------
    >>> import numpy as np
    >>> silhouettes(np.array([[0.0], [2.0], [9.0]]), np.array([0, 0, 1])).round(3)
    array([0.778, 0.714, 0.   ])
    """
    counts, found = np.bincount(numbers), np.empty(len(numbers))
    for at, totals in _totals(rows, numbers, metric):
        found[at] = silhouettes_of_totals(totals, numbers[at], counts)
    return found


def distance_totals(rows: Rows, numbers: np.ndarray, metric: str = "euclidean") -> np.ndarray:
    """Return the sum of the distances of each row to the rows of each cluster, float64 (m, k).

    Parameters
    ----------
    rows, numbers, metric
        The same as in `silhouettes`.

    Examples
    --------
    >>> import numpy as np
    >>> distance_totals(np.array([[0.0], [2.0], [9.0]]), np.array([0, 0, 1])).tolist()
    [[2.0, 9.0], [2.0, 7.0], [16.0, 0.0]]
    """
    found = np.empty((len(numbers), int(numbers.max()) + 1))
    for at, totals in _totals(rows, numbers, metric):
        found[at] = totals
    return found


def _totals(
    rows: Rows, numbers: np.ndarray, metric: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the numbers of some rows, and the sums of their distances to every cluster."""
    # Sort by cluster, so that the distances of a row to one cluster are contiguous.
    order = np.argsort(numbers, kind="stable")
    distances = _distances(rows[order], metric)
    counts = np.bincount(numbers)
    starts = np.cumsum(counts) - counts
    step = max(1, _CELLS // len(numbers))
    for first in range(0, len(numbers), step):
        last = min(first + step, len(numbers))
        yield order[first:last], np.add.reduceat(distances(first, last), starts, axis=1)


def silhouettes_of_totals(totals: np.ndarray, own: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return silhouettes from `distance_totals` of rows whose clusters are `own`."""
    at = np.arange(len(own))
    inside = totals[at, own] / np.maximum(counts[own] - 1, 1)
    means = totals / counts
    means[at, own] = np.inf
    nearest = means.min(axis=1)
    larger = np.maximum(inside, nearest)
    values = (nearest - inside) / np.where(larger > 0.0, larger, 1.0)
    return np.where(counts[own] == 1, 0.0, values)


def _distances(rows: Rows, metric: str) -> Callable[[int, int], np.ndarray]:
    """Return what computes the distances from a block of rows to all rows, float64."""
    joined: Any = Chunk(rows, normalize=metric == "cosine").computed()
    parts: list[Any] = []
    if isinstance(joined, SparseRows):
        values = joined.data.astype(np.float64), joined.indices, joined.offsets
        whole = sparse.csr_array(values, shape=joined.shape)
        norms = np.asarray((whole * whole).sum(axis=1))
        no_angle, parts = norms == 0.0, _short_parts(whole, joined.dtype)
    else:
        joined = joined.astype(np.float64)
        no_angle = ~joined.any(axis=1)

    def block(first: int, last: int) -> np.ndarray:
        own = np.arange(last - first), np.arange(first, last)
        squares = np.zeros((last - first, len(no_angle)))
        if parts:
            for part in parts:
                for other in parts:
                    squares += (part[first:last] @ other.T).toarray()
            squares = norms[first:last, None] + norms - 2.0 * squares
            squares[own] = 0.0
            squares = np.maximum(squares, 0.0)
        else:
            sqdist_all(joined[first:last], joined, squares)
        if metric != "cosine":
            return np.asarray(np.sqrt(squares))
        squares[no_angle[first:last]] = 2.0
        squares[:, no_angle] = 2.0
        squares[own] = 0.0
        return 0.5 * squares

    return block


def _short_parts(matrix: Any, dtype: Any) -> list[Any]:
    """Split float64 values into a sum of matrices with at most 26 significant bits each.

    Products of such numbers are exact, so results do not depend on whether SciPy was compiled with fused
    multiply-add. Values from float32 have 24 bits.
    """
    if dtype == np.float32:
        return [matrix]
    wide = matrix.data * (2.0**27 + 1.0)
    high = wide - (wide - matrix.data)
    shape = matrix.shape
    return [
        sparse.csr_array((data, matrix.indices, matrix.indptr), shape=shape)
        for data in (high, matrix.data - high)
    ]


def measure(
    dataset: Dataset,
    labels: RowLabels,
    n_clusters: int,
    names: Sequence[str],
    *,
    metric: str = "euclidean",
    sample_size: int | None = SAMPLE_SIZE,
    random_state: Any = None,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    totals_of: Callable[[str], PassTotals | None] = lambda name: None,
) -> dict[str, float]:
    """Return measures by name.

    Parameters
    ----------
    dataset : Dataset
    labels : RowLabels
        Labels of all rows.
    n_clusters : int
        Labels are less than this; clusters without rows are ignored.
    names : sequence of str
        Names of `daskcluster.parameters.algorithm.MEASURES`.
    metric : {"euclidean", "cosine"}
        Metric of the silhouettes. The other measures are Euclidean.
    sample_size, random_state
        See `daskcluster.metrics.silhouette`.
    engine : see `daskcluster.KMeans`
    callbacks : sequence of callables
        Called with the events of passes.
    totals_of : callable (name) -> PassTotals or None
        Returns where long passes keep their totals: those over the rows, and over rows of length one.

    Notes
    -----
    Cost: one pass for sums, one for distances if a measure needs them, one for a sample. With
    ``metric="cosine"``, the simplified silhouette takes two passes of its own.
    """
    wanted = check_measures(names)
    angular = "simplified-silhouette" if metric == "cosine" else None
    found, chosen = {}, choose_engine(engine, dataset)
    plain = [name for name in wanted if name != angular]
    if plain:
        with chosen.place(dataset, callbacks=callbacks) as placement:
            placement.totals = totals_of("measures")
            compare = "simplified-silhouette" in plain
            clusters = Clusters(ScaledPlacement(placement), labels, n_clusters, compare=compare)
            for name in plain:
                if name == "silhouette":
                    found[name] = sampled_silhouette(
                        placement, labels, metric, sample_size, random_state
                    )
                else:  # the method of that name
                    found[name] = getattr(clusters, name.replace("-", "_"))()
    if angular in wanted:
        with chosen.place(dataset.normalized(), callbacks=callbacks) as placement:
            placement.totals = totals_of("normalized")
            clusters = Clusters(ScaledPlacement(placement), labels, n_clusters)
            found[angular] = clusters.simplified_silhouette()
    return {name: found[name] for name in wanted}
