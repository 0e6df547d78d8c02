"""`partition`: balanced cells of an index, their plan, their files and their saved form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype, for_rows
from daskcluster.chunkwise.assign import RowFunction
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.data.csr import csr_of
from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.features import FeatureSpec
from daskcluster.data.shuffle_passes import reading_bytes
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.errors import (
    InvalidDataError,
    InvalidParameterError,
    MissingExtraError,
    ModelFormatError,
)
from daskcluster.estimators.opening import open_dataset
from daskcluster.estimators.plan import WorkPlan
from daskcluster.estimators.work import RowResults, Work, check_work
from daskcluster.events import Callback
from daskcluster.extras import import_pyarrow, install_command
from daskcluster.invariance import DRAWN, varies_with
from daskcluster.methods.kmeans.estimator import KMeans
from daskcluster.methods.partition.parameters import PARTITION
from daskcluster.methods.partition.training import (
    FEW_CELLS,
    GROUP_ROWS,
    TASK_ROWS,
    BalancedKMeans,
    PartitionParams,
    Trained,
    partition_rows,
)
from daskcluster.models.balance import Balance
from daskcluster.models.fitted import KMeansModel, check_per_cluster, created_with, save_model
from daskcluster.randomness import Key
from daskcluster.seeding.methods import draw_rows
from daskcluster.storage.document import Document, read_text
from daskcluster.storage.files import new_file
from daskcluster.storage.location import locate
from daskcluster.storage.staging import check_free
from daskcluster.typing import Dataset


@dataclass(frozen=True, eq=False)
class PartitionModel(KMeansModel):
    """Partitions without their rows: new rows go where they would have gone.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        Means of the partitions, which searches compare with queries. Nearest centres and scores are about
        these.
    assigning : ndarray of shape (k, d), dtype of `centres`
    penalties : ndarray of shape (k,), float64
        At least 0. A row belongs to the partition with the least sum of the squared distance to these
        centres and the penalty.
    weights, sizes, metric
        As in `daskcluster.models.fitted.KMeansModel`. Costs and inertia are not known.

    Raises
    ------
    ModelFormatError
        The arrays do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> given = {"assigning": np.eye(3), "penalties": np.zeros(3)}
    >>> PartitionModel(np.eye(3), np.ones(3), **given).n_clusters
    3
    """

    kind: ClassVar[str] = "partitions"

    assigning: np.ndarray = field(kw_only=True)
    penalties: np.ndarray = field(kw_only=True)
    estimator: str = field(default="partition", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_per_cluster("penalties", self.penalties, self.n_clusters)
        found, expected = self.assigning, self.centres
        if found.shape != expected.shape or found.dtype != expected.dtype:
            raise ModelFormatError(
                f"the assigning centres of shape {found.shape} and dtype {found.dtype} should be as the "
                f"centres, of shape {expected.shape} and dtype {expected.dtype}."
            )
        if not np.isfinite(found).all():
            raise ModelFormatError("assigning centres should be finite; one holds NaN or infinity.")

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save, by name."""
        penalties = np.asarray(self.penalties, np.float64)
        return super().arrays() | {"assigning": self.assigning, "penalties": penalties}

    def own(self) -> dict[str, Any]:
        """Return the entries of `body` that are specific to this kind of model."""
        return {"metric": self.metric}

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        shown = {"metric": self.metric, "dtype": str(self.centres.dtype)}
        return shown | {"balance": str(Balance.of(self.sizes)) if self.sizes.any() else None}

    @classmethod
    def from_parts(
        cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> PartitionModel:
        """Return the model that `body` and `arrays` describe; see `ModelFormatError`."""
        return cls(metric=read_text(body, "metric"), **cls.shared_parts(body, arrays))

    def save(
        self,
        url: str,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Save the model for ``daskcluster predict`` and `daskcluster.load_model`.

        Parameters
        ----------
        url : str
        overwrite : bool
            Replace an existing model.
        storage_options : mapping, optional

        Raises
        ------
        OutputExistsError
        """
        save_model(self, url, overwrite=overwrite, storage_options=storage_options)

    def predict(
        self, X: Any, *, engine: Any = None, callbacks: Sequence[Callback] = ()
    ) -> np.ndarray:
        """Return the partition of each row, int32 (n,), as `daskcluster.partition` would assign it.

        Parameters
        ----------
        X : Dataset, or anything `open_dataset` takes, of shape (n, d)
        engine, callbacks : see `daskcluster.partition`

        Raises
        ------
        InvalidDataError
            Sparse rows, rows with NaN or infinity, or with another number of features.

        Notes
        -----
        Cost: one pass. Equal rows that had to be divided by their numbers go to the first of their
        partitions, and sizes are not bounded: partition all rows again where new rows make them uneven.
        """
        dataset: Any = X if isinstance(X, Dataset) else open_dataset(X)
        found = PartitionRows.from_model(self).set_params(engine=engine)
        labels: np.ndarray = found.map_rows(dataset, found.label_function, callbacks=callbacks)
        return labels


class PartitionRows(KMeans):
    """Rows under a `PartitionModel`, without a fit; nearest centres and scores are about the means."""

    owner = "the model"

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """Return what has results for rows under `model`."""
        self = super().from_model(model)
        self._model = model
        return self

    def known_rows(self, X: Any, sample_weight: Any = None, *, complete: bool = False) -> Dataset:
        """Return `X` as a dataset of dense rows with the features of the model; see `fit_dataset`."""
        dataset = super().known_rows(X, sample_weight, complete=complete)
        if csr_of(dataset) is not None:
            raise InvalidDataError("Partitions are of dense rows, but these are sparse.")
        return dataset

    def label_function(self, dtype: Any) -> RowFunction:
        """Return the function that finds the partition of rows of `dtype`."""
        trained = Trained(for_rows(self._model.assigning, dtype), self._model.penalties)
        params, cosine = PartitionParams(trained.lifted()), self.metric == "cosine"
        return RowFunction(partition_rows, params, PartitionParams.prepare, normalize=cosine)


def _write_faiss(found: Partitions, out: BinaryIO) -> None:
    out.write(_import_faiss().serialize_index(found.to_faiss(fill=False)).tobytes())


def _write_parquet(found: Partitions, out: BinaryIO) -> None:
    import_pyarrow()
    from pyarrow import parquet

    parquet.write_table(found.to_vectorchord(), out)


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(
            f"Faiss is not installed; install it with: {install_command('faiss')}."
        ) from error
    return faiss


_FILES: dict[str, tuple[Callable[[], Any], Callable[[Partitions, BinaryIO], None]]] = {
    ".npy": (lambda: None, lambda found, out: np.save(out, found.centres)),
    ".faiss": (_import_faiss, _write_faiss),
    ".parquet": (import_pyarrow, _write_parquet),
}
"""By ending: what imports the library of a file of centres, and what writes it."""


def centres_writer(url: str) -> Callable[[Partitions, BinaryIO], None]:
    """Return what writes centres to a file with the ending of `url`.

    Raises
    ------
    InvalidParameterError
        There is no such format.
    MissingExtraError
        Its library is not installed.
    """
    ending = PurePosixPath(url).suffix
    if ending not in _FILES:
        raise InvalidParameterError(
            f"Centres are written to {', '.join(_FILES)} files, but the URL is {url!r}; give it such an "
            "ending."
        )
    load, write = _FILES[ending]
    load()
    return write


@dataclass(frozen=True, eq=False)
class Partitions(RowResults):
    """Partitions of an index.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        Means of the partitions in the sample, which searches compare with queries.
    partition : ndarray of shape (n,), int32
        The partition of each row.
    sizes : ndarray of shape (k,), int64
        Rows of the partitions.
    assigning : Trained
        Centres and penalties by which rows are assigned.
    metric : str
    seed, passes, bytes_read : int
    seconds : float
    """

    centres: np.ndarray
    partition: np.ndarray
    sizes: np.ndarray
    assigning: Trained
    metric: str
    seed: int
    passes: int
    bytes_read: int
    seconds: float
    dataset: Dataset = field(repr=False)

    @property
    def n_partitions(self) -> int:
        return len(self.sizes)

    @property
    def balance(self) -> Balance:
        """How even the sizes are: number, mean, largest, variation (standard deviation over mean)."""
        return Balance.of(self.sizes)

    @property
    def largest_over_mean(self) -> float:
        return float(self.sizes.max() / self.sizes.mean())

    def __repr__(self) -> str:
        found = self.balance
        return f"Partitions({found.n_clusters:,} of {found.smallest:,} to {found.largest:,} rows)"

    def rows_of(self, number: int) -> np.ndarray:
        """Return the numbers of the rows of a partition, int64 (m,)."""
        return np.flatnonzero(self.partition == number)

    def columns(self) -> dict[str, np.ndarray]:
        """Return the partition of every row."""
        return {"partition": self.partition}

    def to_model(self) -> PartitionModel:
        """Return the partitions without rows.

        Its ``predict`` assigns new rows as these were, and its ``save`` writes it for
        ``daskcluster predict`` and `daskcluster.load_model`.
        """
        known = FeatureSpec.of(self.dataset)
        return PartitionModel(
            self.centres, self.sizes.astype(np.float64), self.sizes, metric=self.metric,
            assigning=self.assigning.centres, penalties=self.assigning.penalties,
            feature_names=known.names, decoded=known.decoded, missing=known.missing,
            n_rows=len(self.partition), passes=self.passes, bytes_read=self.bytes_read,
            parameters={"metric": self.metric, "random_state": self.seed},
            created_with=created_with(),
        )  # fmt: skip

    def save_centres(
        self,
        url: Any,
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the centres to a file; it appears whole.

        Parameters
        ----------
        url : str
            A file whose ending says what is in it: ``.npy`` the array (k, d), ``.faiss`` the empty index of
            ``to_faiss(fill=False)``, ``.parquet`` the table of `to_vectorchord`.
        overwrite : bool
            Replace a file that exists.
        storage_options : dict, optional

        Raises
        ------
        OutputExistsError, InvalidParameterError, MissingExtraError
        """
        place, write = locate(url, storage_options), centres_writer(str(url))
        refuse_replacing(self.dataset, output=place)
        check_free(url, kinds=("file",), overwrite=overwrite, storage_options=storage_options)
        with new_file(place, overwrite=overwrite) as out:
            write(self, out)

    def to_faiss(self, *, fill: bool = True) -> Any:
        """Return a Faiss ``IndexIVFFlat`` with these partitions.

        Parameters
        ----------
        fill : bool
            Add the rows, with their numbers as ids, to their partitions. Otherwise the index is empty and
            trained: rows that are added go to the nearest centre, which is not always the balanced one.

        Raises
        ------
        MissingExtraError

        Notes
        -----
        Cost: with `fill`, a pass over the rows in this process, and 4 d + 8 bytes for each row.
        """
        faiss = _import_faiss()
        centres = np.ascontiguousarray(self.centres, np.float32)
        k, d = centres.shape
        cosine = self.metric == "cosine"
        # Rows were assigned by distances, also with cosine, since means are not of length one.
        quantizer: Any = faiss.IndexFlatL2(d)
        quantizer.add(centres)
        measure = faiss.METRIC_INNER_PRODUCT if cosine else faiss.METRIC_L2
        index = faiss.IndexIVFFlat(quantizer, d, k, measure)
        index.own_fields = True
        quantizer.this.disown()
        index.is_trained = True
        if fill:
            for chunk in self.dataset.chunks(self.dataset.partitions):
                for block in Chunk(chunk.rows, chunk.start, normalize=cosine).blocks():
                    added = [
                        np.ascontiguousarray(block.rows, np.float32),
                        np.arange(block.start, block.stop),
                        self.partition[block.start : block.stop].astype(np.int64),
                    ]
                    index.add_core(block.n_rows, *map(faiss.swig_ptr, added))
        return index

    def to_lance(self) -> Any:
        """Return the centres as an Arrow array of fixed-size lists, for ``ivf_centroids`` of Lance.

        Raises
        ------
        MissingExtraError
        """
        pa = import_pyarrow()
        values = pa.array(np.ascontiguousarray(self.centres, np.float32).ravel())
        return pa.FixedSizeListArray.from_arrays(values, self.centres.shape[1])

    def to_vectorchord(self) -> Any:
        """Return the centres as an Arrow table for ``[build.external]`` of VectorChord.

        Its columns are ``id`` (int32), ``parent`` (int32, all null: one level) and ``vector``.

        Raises
        ------
        MissingExtraError
        """
        pa = import_pyarrow()
        k = len(self.centres)
        columns = {
            "id": pa.array(np.arange(k, dtype=np.int32)),
            "parent": pa.nulls(k, pa.int32()),
            "vector": self.to_lance(),
        }
        return pa.table(columns)


_SAMPLE, _LEAST_SAMPLE = 128, 32
"""Rows of the sample for each cell, and as many as it has at least where it is bounded."""
_SAMPLE_BYTES = 2 << 30
_SAMPLE_ROW_BYTES = 72
"""Numbers of a row of the sample: cell, second, gap, and orders."""
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class PartitionPlan(WorkPlan):
    """Plan of `partition`. Its passes are those if no partition is too large: the sample, and all rows.

    Attributes
    ----------
    n_partitions : int
        Partitions before any is split.
    sample_rows : int
        Rows on which the cells are trained: 128 a cell, fewer if they exceed 2 GiB, but 32 at least.
    """

    what: ClassVar[str] = "Partitions take"
    note: ClassVar[str] = "; more if any is split"

    n_partitions: int
    sample_rows: int

    @classmethod
    def of(cls, dataset: Dataset, target_size: int) -> PartitionPlan:
        """Plan the partitions of a dataset.

        Examples
        --------
        >>> import numpy as np
        >>> from daskcluster.data.open import open_source
        >>> plan = PartitionPlan.of(open_source(np.zeros((1_000_000, 8), np.float16)), 1000)
        >>> plan.n_partitions, plan.sample_rows
        (1000, 128000)
        """
        n, d = dataset.n_rows, dataset.n_features
        k, row = -(-n // target_size), d * dataset.dtype.itemsize
        item = compute_dtype(dataset.dtype).itemsize
        sample = min(n, max(min(_SAMPLE * k, _SAMPLE_BYTES // row), _LEAST_SAMPLE * k))
        # Centres in float64 while they are moved, as stored and lifted.
        centres = k * d * (8 + 4 * item)
        # Rows are gathered from the blocks that are read.
        lists = 4 * k * (sample // GROUP_ROWS + 1) if k > FEW_CELLS else 0
        trained = sample * (2 * row + _SAMPLE_ROW_BYTES) + lists + centres
        driver = BASELINE_BYTES + reading_bytes(dataset, row) + max(trained, centres)
        driver += n * 20
        task = 2 * TASK_ROWS * d * item + max(64 * 16 * k, 2 * k * (d + 8) * item) + _BLOCK_BYTES
        return cls(
            **cls.of_passes(dataset, 2),
            n_partitions=k,
            sample_rows=sample,
            memory_driver=driver,
            memory_task=task,
        )

    def lines(self) -> list[tuple[str, str]]:
        """Return what is specific to partitions as lines of text."""
        return [("partitions", f"{self.n_partitions:,}, trained on {self.sample_rows:,} rows")]


_ROUNDS = 3
"""Passes after which partitions that are still too large are divided by row numbers."""
_SPLIT_ROWS = 256
KIND = "partitions"


@varies_with(order=DRAWN)
def partition(
    source: Any,
    target_size: int = 1000,
    *,
    max_size: int | None = None,
    metric: str = "euclidean",
    random_state: Any = 0,
    engine: Any = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Any = None,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Partitions:
    """Divide rows into partitions of nearly equal sizes, as an index for nearest neighbours needs them.

    Parameters
    ----------
    source : Dataset, or anything `open_dataset` takes
        Dense rows (n, d).
    target_size : int >= 1, default 1000
        Mean number of rows of a partition.
    max_size : int >= target_size, optional
        Largest number of rows of a partition; twice `target_size` by default.
    metric : {"euclidean", "cosine"}, default "euclidean"
        cosine: rows are scaled to length one.
    random_state : int, RandomState, Generator, default 0
    engine : Engine, dask.distributed.Client, "local" or address, optional
    callbacks : sequence of callables, default ()
        Called with `PassStarted`, `PassProgress` and `PassEnded`.
    checkpoint : str, optional
        Folder or URL for the trained centres, so that a killed call need not train again. Its content is
        removed at the end.
    resume : bool, default False
        Resume from `checkpoint`, if there is a state.
    storage_options : dict, optional
        For all URLs.

    Returns
    -------
    Partitions
        The same for any chunks, threads and workers.

    Raises
    ------
    InvalidParameterError, WrongTypeError
        A parameter is out of range.
    InvalidDataError
        Sparse rows, or rows with NaN or infinity.
    CheckpointError
        The checkpoint is of another call, or damaged.
    MemoryLimitError
        The limit of a `LocalEngine` is too small.

    Notes
    -----
    Cost: a pass that takes a sample of 128 rows a partition (at most 2 GiB, but 32 rows a partition), and a
    pass with k distances a row; for partitions above `max_size`, which are split, up to three times another
    two. Training computes at most 16 times k distances for each row of the sample. Memory: the sample,
    4 bytes a row for the result, and what `daskcluster partition --dry-run` shows.

    Rows belong to the partition with the least sum of squared distance and penalty. Penalties grow with
    sizes in a sample, as in balanced k-means. Partitions above `max_size` are split, and all rows are
    assigned anew. Equal rows that no split can separate are divided by row numbers.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    >>> found = dc.partition(X, target_size=100)
    >>> found.n_partitions >= 10, int(found.sizes.sum()), int(found.sizes.max()) <= 200
    (True, 1000, True)
    """
    with partitioning(source, locals()) as found:
        return found


def plan_partitions(dataset: Dataset, given: Mapping[str, Any]) -> PartitionPlan:
    """Return the plan of partitions, by the arguments of `partition`.

    Raises
    ------
    DaskClusterError
        What `partition` would raise before its first pass, but for the memory of its engine.
    """
    check_work("partition", PARTITION, given, dataset, "Partitions are of")
    target_size, max_size = given["target_size"], given["max_size"]
    if max_size is not None and max_size < target_size:
        raise InvalidParameterError(
            f"max_size={max_size} should be >= target_size={target_size}, the mean size; raise it."
        )
    if given.get("centroids") is not None:  # a job writes them
        centres_writer(given["centroids"])
    return PartitionPlan.of(dataset, target_size)


@contextmanager
def partitioning(source: Any, given: Mapping[str, Any]) -> Iterator[Partitions]:
    """Yield what `partition` returns for its arguments.

    The state at its ``checkpoint`` stays if the block raises or dies.
    """
    target_size, max_size = given["target_size"], given["max_size"]

    def facts() -> dict[str, Any]:
        limit = 2 * int(target_size) if max_size is None else int(max_size)
        # States were made with `spill`, a number of copies of each row.
        return {"target_size": target_size, "max_size": limit, "spill": 0}

    with Work.begin(source, given, plan_partitions, "the partitions", facts) as work:
        job = _Partitioning(work, target_size, facts()["max_size"])
        job.train()
        found = job.assign()
        sizes = np.bincount(found, minlength=len(job.means))
        yield Partitions(
            job.means, found, sizes, job.trained, given["metric"], work.seed,
            dataset=work.dataset, **work.spent(),
        )  # fmt: skip
        if work.stored is not None:
            work.stored.clear()


class _Partitioning:
    def __init__(self, work: Work, target_size: int, max_size: int) -> None:
        self.work, self.target_size, self.max_size = work, target_size, max_size
        self.round = 0

    def train(self) -> None:
        """Train cells on a sample, unless an earlier run has."""
        state = self.work.state()
        if state is not None:
            arrays = state.arrays
            self.trained = Trained(arrays["centres"], arrays["penalties"])
            self.means, self.round = arrays["means"], int(state.body["round"])
            return
        plan, key = self.work.plan, Key(self.work.seed, "partitions")
        drawn = np.sort(draw_rows(self.work.rows, plan.sample_rows, key, fewer=True))
        self.trained, self.means = self._fit(drawn, plan.n_partitions, key)
        self._commit()

    def _fit(self, which: np.ndarray, cells: int, key: Key) -> tuple[Trained, np.ndarray]:
        dataset = self.work.rows
        rows = Chunk(dataset.take(which), normalize=dataset.normalize)
        for block in rows.cache_blocks():
            refuse_bad(block)
        engine = home_engine(self.work.engine)
        return BalancedKMeans(rows, min(cells, len(which)), engine, key).fit()

    def _commit(self) -> None:
        self.work.passes += 1
        if not self.work.rows.in_memory:
            self.work.bytes_read += self.work.plan.bytes_read // 2
        if self.work.stored is not None:
            arrays = {**vars(self.trained), "means": self.means}
            self.work.stored.commit(Document(KIND, {"round": self.round}, arrays))

    def assign(self) -> np.ndarray:
        """Return the partition of every row, int32 (n,)."""
        while True:
            found = self.work.results(
                partition_rows,
                self.trained.lifted(),
                PreparedCentres,
                np.dtype(np.int32),
                "partitions",
            )
            sizes = np.bincount(found, minlength=len(self.means))
            large = np.flatnonzero(sizes > self.max_size)
            if not len(large):
                return found
            if self.round == _ROUNDS:
                return self._cut(found, large, sizes)
            self.round += 1
            self._split(found, large, sizes)
            self._commit()

    def _split(self, labels: np.ndarray, large: np.ndarray, sizes: np.ndarray) -> None:
        """Replace the centre of each large partition by those of parts of it."""
        order = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[order], large)
        kept = self.trained = Trained(self.trained.centres.copy(), self.trained.penalties.copy())
        self.means = self.means.copy()
        centres, penalties, means = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for cell, start in zip(large.tolist(), starts.tolist(), strict=True):
            parts = max(2, round(int(sizes[cell]) / self.target_size))
            which = order[start : start + sizes[cell]]
            which = which[:: max(1, len(which) // (_SPLIT_ROWS * parts))]
            key = Key(self.work.seed, f"split {cell}", self.round)
            fitted, own = self._fit(which, parts, key)
            new = fitted.penalties - fitted.penalties.min() + kept.penalties[cell]
            kept.centres[cell], kept.penalties[cell] = fitted.centres[0], new[0]
            self.means[cell] = own[0]
            centres.append(fitted.centres[1:])
            penalties.append(new[1:])
            means.append(own[1:])
        self._extend(*map(np.concatenate, (centres, penalties, means)))

    def _extend(self, centres: np.ndarray, penalties: np.ndarray, means: np.ndarray) -> None:
        """Add partitions after the others."""
        kept = self.trained
        self.trained = Trained(
            np.concatenate([kept.centres, centres]), np.concatenate([kept.penalties, penalties])
        )
        self.means = np.concatenate([self.means, means])

    def _cut(self, found: np.ndarray, large: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Divide partitions by row numbers; their parts have the same centre."""
        more = -(-sizes[large] // self.max_size) - 1
        first = len(self.means)
        for cell, parts in zip(large.tolist(), more.tolist(), strict=True):
            which = np.flatnonzero(found == cell)
            numbers = np.concatenate([[cell], np.arange(first, first + parts)])
            for number, part in zip(numbers, np.array_split(which, parts + 1), strict=True):
                found[part] = number
            first += parts
        copied = np.repeat(large, more)
        kept = self.trained
        self._extend(kept.centres[copied], kept.penalties[copied], self.means[copied])
        return found
