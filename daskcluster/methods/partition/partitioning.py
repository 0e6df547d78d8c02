"""`partition`: balanced cells of an index, and their plan from metadata alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.data.csr import csr_of
from daskcluster.data.features import refuse_partial
from daskcluster.data.shuffle_passes import reading_bytes
from daskcluster.data.writer import ArraySink
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine, home_engine
from daskcluster.engine.memory import BASELINE_BYTES, ONE_PASS, check_limit
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.estimators.checkpoints import data_identity
from daskcluster.estimators.opening import open_dataset
from daskcluster.events import Callback
from daskcluster.methods.partition.chunkwise import PartitionParams, partition_rows, prepare_cells
from daskcluster.methods.partition.parameters import PARTITION
from daskcluster.methods.partition.partitions import Partitions
from daskcluster.methods.partition.training import (
    FEW_CELLS,
    GROUP_ROWS,
    NEIGHBOURS,
    TASK_ROWS,
    BalancedKMeans,
    Trained,
    neighbours_of,
)
from daskcluster.parameters.checks import check_value
from daskcluster.randomness import Key, as_seed
from daskcluster.seeding.methods import draw_rows
from daskcluster.storage.checkpoint import CheckpointFolder, noting_stored_state
from daskcluster.storage.document import Document
from daskcluster.storage.location import locate
from daskcluster.typing import Dataset

_SAMPLE, _LEAST_SAMPLE = 128, 32
"""Rows of the sample for each cell, and as many as it has at least where it is bounded."""
_SAMPLE_BYTES = 2 << 30
_SAMPLE_ROW_BYTES = 72
"""Numbers of a row of the sample: cell, second, gap, and orders."""
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class PartitionPlan:
    """Plan of `partition`.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : str
    n_partitions : int
        Partitions before any is split.
    sample_rows : int
        Rows on which the cells are trained: 128 a cell, fewer if they exceed 2 GiB, but 32 at least.
    passes : int
        Passes if no partition is too large: the sample, and one over all rows.
    bytes_read : int
    memory_driver, memory_task : int
        Bytes of the process that calls, and of each thread of a pass, at most.
    """

    n_rows: int
    n_features: int
    dtype: str
    n_partitions: int
    sample_rows: int
    passes: int
    bytes_read: int
    memory_driver: int
    memory_task: int

    @classmethod
    def of(cls, dataset: Dataset, target_size: int, spill: int = 0) -> PartitionPlan:
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
        read = 0 if dataset.in_memory else dataset.bytes_of((0, n))
        # Centres in float64 while they are moved, as stored and lifted; lists of neighbours.
        centres = k * (d * (8 + 4 * item) + 8 * NEIGHBOURS)
        # Rows are gathered from the blocks that are read.
        lists = 4 * k * (sample // GROUP_ROWS + 1) if k > FEW_CELLS else 0
        trained = sample * (2 * row + _SAMPLE_ROW_BYTES) + lists + centres
        driver = BASELINE_BYTES + reading_bytes(dataset, row) + max(trained, centres)
        driver += n * (4 * (1 + spill) + 16)
        task = 2 * TASK_ROWS * d * item + max(64 * 16 * k, 2 * k * (d + 8) * item) + _BLOCK_BYTES
        return cls(n, d, str(dataset.dtype), k, sample, 2, 2 * read, driver, task)

    def memory(self, n_threads: int) -> int:
        """Return the bytes of one process with so many threads, at most."""
        return self.memory_driver + n_threads * self.memory_task

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return dict(vars(self))


_ROUNDS = 3
"""Passes after which partitions that are still too large are divided by row numbers."""
_SPLIT_ROWS = 256
KIND = "partitions"


def partition(
    source: Any,
    target_size: int = 1000,
    *,
    max_size: int | None = None,
    spill: int = 0,
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
    target_size : int >= 1
        Mean number of rows of a partition.
    max_size : int >= target_size, optional
        Largest number of rows of a partition, copies left out; twice `target_size` by default.
    spill : int in [0, 4]
        Number of further partitions in which a row may have a copy, where that pays.
    metric : {"euclidean", "cosine"}
        cosine: rows are scaled to length one.
    random_state : int, RandomState, Generator or None
    engine : see `KMeans`
    callbacks : sequence of callable
        Hear `PassStarted`, `PassProgress` and `PassEnded`.
    checkpoint : str, optional
        Folder or URL for the trained centres, so that a killed call need not train again. Its content is
        removed at the end.
    resume : bool
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
    4 (1 + `spill`) bytes a row for the result, and what `daskcluster partition --dry-run` shows.

    Rows belong to the partition with the least sum of squared distance and penalty. Penalties grow with
    sizes in a sample, as in balanced k-means. Partitions above `max_size` are split, and all rows are
    assigned anew. Equal rows that no split can separate are divided by row numbers.

    Copies are chosen as in Sun et al., "SOAR: Improved Indexing for Approximate Nearest Neighbor Search"
    (2024), arXiv 2404.00774, Theorem 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> import daskcluster as dc
    >>> X = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    >>> found = dc.partition(X, target_size=100)
    >>> found.n_partitions >= 10, int(found.sizes.sum()), int(found.sizes.max()) <= 200
    (True, 1000, True)
    """
    with partitioning(
        source, target_size, max_size=max_size, spill=spill, metric=metric,
        random_state=random_state, engine=engine, callbacks=callbacks, checkpoint=checkpoint,
        resume=resume, storage_options=storage_options,
    ) as found:  # fmt: skip
        return found


@contextmanager
def partitioning(
    source: Any,
    target_size: int,
    *,
    max_size: int | None,
    spill: int,
    metric: str,
    random_state: Any,
    engine: Any,
    callbacks: Sequence[Callback],
    checkpoint: Any,
    resume: bool,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[Partitions]:
    """Yield what `partition` returns; the state at `checkpoint` stays if the block raises or dies."""
    started = time.monotonic()
    limit = _checked(target_size, max_size, spill, metric, random_state)
    dataset = _opened(source, storage_options)
    refuse_partial(dataset, "partition")
    rows: Dataset = dataset.normalized() if metric == "cosine" else dataset
    plan, chosen = PartitionPlan.of(dataset, target_size, spill), choose_engine(engine, dataset)
    if isinstance(chosen, LocalEngine):
        check_limit("Partitions take", plan.memory(chosen.n_threads), chosen.memory_limit)
    seed = as_seed(random_state)
    job = _Partitioning(rows, plan, chosen, callbacks, seed, target_size, limit, spill)
    place = None if checkpoint is None else locate(checkpoint, storage_options)
    facts = {"data": data_identity(rows), "metric": metric, "target_size": target_size}
    facts |= {"max_size": limit, "spill": spill, "random_state": seed}
    stored = None if place is None else CheckpointFolder(place, facts)
    # A job says itself where its state is.
    with noting_stored_state(None if place is checkpoint else place, "the partitions"):
        job.train(stored, resume=resume)
        found = job.assign(stored)
        sizes = np.bincount(found[:, 0], minlength=len(job.means))
        yield Partitions(
            job.means, found[:, 0].copy(), found[:, 1:], sizes, job.trained, metric, seed, job.passes,
            job.bytes_read, time.monotonic() - started, dataset,
        )  # fmt: skip
        if stored is not None:
            stored.clear()


@dataclass
class _Partitioning:
    dataset: Dataset
    plan: PartitionPlan
    engine: Engine
    callbacks: Sequence[Callback]
    seed: int
    target_size: int
    max_size: int
    spill: int
    passes: int = 0
    bytes_read: int = 0
    round: int = 0
    trained: Trained = field(init=False)
    means: np.ndarray = field(init=False)

    def train(self, stored: CheckpointFolder | None, *, resume: bool) -> None:
        """Train cells on a sample, unless an earlier run has."""
        state = stored.latest() if stored is not None and resume else None
        if state is not None:
            arrays = state.arrays
            self.trained = Trained(arrays["centres"], arrays["penalties"])
            self.means, self.round = arrays["means"], int(state.body["round"])
            return
        if stored is not None:
            stored.clear()
        key = Key(self.seed, "partitions")
        drawn = np.sort(draw_rows(self.dataset, self.plan.sample_rows, key, fewer=True))
        self.trained, self.means = self._fit(drawn, self.plan.n_partitions, key)
        self._commit(stored)

    def _fit(self, which: np.ndarray, cells: int, key: Key) -> tuple[Trained, np.ndarray]:
        rows = Chunk(self.dataset.take(which), normalize=self.dataset.normalize)
        for block in rows.cache_blocks():
            refuse_bad(block)
        fit = BalancedKMeans(rows, min(cells, len(which)), home_engine(self.engine), key)
        fit.fit()
        return fit.trained, fit.means

    def _commit(self, stored: CheckpointFolder | None) -> None:
        self.passes += 1
        if not self.dataset.in_memory:
            self.bytes_read += self.plan.bytes_read // 2
        if stored is not None:
            arrays = {"centres": self.trained.centres, "penalties": self.trained.penalties}
            arrays["means"] = self.means
            stored.commit(Document(KIND, {"round": self.round}, arrays))

    def assign(self, stored: CheckpointFolder | None) -> np.ndarray:
        """Return the partition of every row, and those of its copies, int32 (n, 1 + spill)."""
        while True:
            found = self._pass()
            sizes = np.bincount(found[:, 0], minlength=len(self.means))
            large = np.flatnonzero(sizes > self.max_size)
            if not len(large):
                return found
            if self.round == _ROUNDS:
                return self._cut(found, large, sizes)
            self.round += 1
            self._split(found[:, 0], large, sizes)
            self._commit(stored)

    def _pass(self) -> np.ndarray:
        neighbours = None
        if self.spill:
            neighbours = neighbours_of(self.trained, home_engine(self.engine))
        params = PartitionParams(self.trained.lifted(), self.spill, neighbours)
        shape = (self.dataset.n_rows, 1 + self.spill) if self.spill else (self.dataset.n_rows,)
        sink = ArraySink(np.empty(shape, np.int32))
        with self.engine.place(
            self.dataset, footprint=ONE_PASS, callbacks=self.callbacks
        ) as placement:
            placement.map_rows(
                partition_rows, sink, params, prepare=prepare_cells, name="partitions"
            )
            self.passes += 1
            self.bytes_read += placement.traffic.bytes_read
        return sink.array if self.spill else sink.array[:, None]

    def _split(self, labels: np.ndarray, large: np.ndarray, sizes: np.ndarray) -> None:
        """Replace the centre of each large partition by those of parts of it."""
        order = np.argsort(labels, kind="stable")
        starts = np.searchsorted(labels[order], large)
        centres, penalties, means = (
            [each]
            for each in (self.trained.centres.copy(), self.trained.penalties, self.means.copy())
        )
        for cell, start in zip(large.tolist(), starts.tolist(), strict=True):
            parts = max(2, round(int(sizes[cell]) / self.target_size))
            which = order[start : start + sizes[cell]]
            which = which[:: max(1, len(which) // (_SPLIT_ROWS * parts))]
            key = Key(self.seed, f"split {cell}", self.round)
            fitted, own = self._fit(which, parts, key)
            new = fitted.penalties - fitted.penalties.min() + self.trained.penalties[cell]
            centres[0][cell], penalties[0][cell], means[0][cell] = fitted.centres[0], new[0], own[0]
            centres.append(fitted.centres[1:])
            penalties.append(new[1:])
            means.append(own[1:])
        self.trained = Trained(np.concatenate(centres), np.concatenate(penalties))
        self.means = np.concatenate(means)

    def _cut(self, found: np.ndarray, large: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Divide partitions by row numbers; their parts have the same centre."""
        more = -(-sizes[large] // self.max_size) - 1
        first = len(self.means)
        for cell, parts in zip(large.tolist(), more.tolist(), strict=True):
            which = np.flatnonzero(found[:, 0] == cell)
            numbers = np.concatenate([[cell], np.arange(first, first + parts)])
            for number, part in zip(numbers, np.array_split(which, parts + 1), strict=True):
                found[part, 0] = number
            first += parts
        copied = np.repeat(large, more)
        kept = self.trained
        self.trained = Trained(
            np.concatenate([kept.centres, kept.centres[copied]]),
            np.concatenate([kept.penalties, kept.penalties[copied]]),
        )
        self.means = np.concatenate([self.means, self.means[copied]])
        return found


def _checked(target_size: Any, max_size: Any, spill: Any, metric: Any, random_state: Any) -> int:
    """Check the parameters; return the largest size."""
    given = (target_size, max_size, spill, metric, random_state)
    for parameter, value in zip(PARTITION, given, strict=True):
        if parameter.name != "random_state":
            check_value("partition", parameter, value)
    limit = 2 * int(target_size) if max_size is None else int(max_size)
    if limit < target_size:
        raise InvalidParameterError(
            f"max_size={max_size} should be >= target_size={target_size}, the mean size; raise it."
        )
    return limit


def _opened(source: Any, storage_options: Mapping[str, Any] | None) -> Dataset:
    is_dataset = isinstance(source, Dataset)
    dataset: Dataset = (
        source if is_dataset else open_dataset(source, storage_options=storage_options)
    )
    if csr_of(dataset) is not None:
        raise InvalidDataError(
            "Partitions are of dense rows, but these are sparse; reduce them to a few hundred dimensions "
            "first, e.g. with scikit-learn's TruncatedSVD."
        )
    return dataset
