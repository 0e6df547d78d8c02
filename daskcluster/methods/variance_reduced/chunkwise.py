"""The inner loop of variance reduced k-means on one partition: single random rows move the centres.

Zhao et al., "Large-scale k-means clustering via variance reduction" (Neurocomputing 2018), Algorithm 4,
lines 6 to 12. Let a be the nearest centre of row x now, b the one that it had in the full pass of the
epoch, and c~ the snapshot:

    a = b:   c_b <- c_b - eta (c_b - c~_b)
    a != b:  c_a <- c_a - eta (c_a - x),  c_b <- c_b + eta (c~_b - x)

What differs: with row weights, rows are drawn in proportion to them. What several partitions did is added
up: each of them starts from the snapshot and takes its share of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.statistics import Reduction
from daskcluster.kernels.sum_grid import grid_shift, round_to_grid
from daskcluster.methods.minibatch.chunkwise import Batch, DriftingCentres, label_batch
from daskcluster.randomness import Key
from daskcluster.sparse_rows import SparseRows

_RUN_BYTES = 16 << 20
"""Drawn rows are converted, where they must be, in runs of about this many bytes."""
_LEAST_RUN = 256


@dataclass(frozen=True)
class StepParams:
    """Starting point of the steps of an epoch.

    Attributes
    ----------
    before : ndarray of shape (k, d)
        Centres of the full pass: they say which centre a row had.
    snapshot : ndarray of shape (k, d)
        Centres after the position correction.
    learning_rate : float
    n_steps, n_rows : int
        Numbers of all partitions together.
    n_partitions : int
    limit : float
        How far a centre may drift; a longer way means that the steps diverge.
    key : Key
        Key of the draws of this epoch.
    mean_weight : float
        Mean weight of all rows.
    labels : ndarray of shape (n,), int32, or None
        Labels under `before`, where they were kept in this process.
    """

    before: np.ndarray
    snapshot: np.ndarray
    learning_rate: float
    n_steps: int
    n_rows: int
    n_partitions: int
    limit: float
    key: Key
    mean_weight: float = 1.0
    labels: np.ndarray | None = None


@dataclass
class StepsTaken:
    """Sums over the steps of some partitions.

    Attributes
    ----------
    drift : ndarray of shape (k, d), float64
        How far centres went, on a grid: sums are exact, in any order.
    n_steps, n_switched : int
        All steps, and those whose row had changed centres.
    lost : bool
        A centre went farther than the limit, and the rest of the steps was not taken.
    """

    drift: np.ndarray
    n_steps: int = 0
    n_switched: int = 0
    lost: bool = False

    def combine(self, other: StepsTaken) -> StepsTaken:
        self.drift += other.drift
        self.n_steps += other.n_steps
        self.n_switched += other.n_switched
        self.lost = self.lost or other.lost
        return self


@dataclass(frozen=True)
class _Prepared:
    params: StepParams
    before: PreparedCentres
    shift: float


def _prepare(params: StepParams) -> _Prepared:
    shift = float(grid_shift(params.limit, params.n_partitions))
    return _Prepared(params, PreparedCentres(params.before), shift)


def _zero(prepared: _Prepared) -> StepsTaken:
    return StepsTaken(np.zeros(prepared.params.snapshot.shape))


def step_partition(chunk: Chunk, prepared: _Prepared, into: StepsTaken) -> None:
    """Take the steps of one partition, which `chunk` holds as a whole, and add their sums.

    Which steps of the epoch are the partition's follows from its place among the rows; step t draws by
    the random number of t in any partition.
    """
    params = prepared.params
    first = params.n_steps * chunk.start // params.n_rows
    last = params.n_steps * chunk.stop // params.n_rows
    listed, share = _draw(chunk, params.key.uniforms(first, last), params.mean_weight)
    if not len(listed):
        return
    is_sparse = isinstance(chunk.rows, SparseRows)
    centres = DriftingCentres(params.snapshot, limit=params.limit, sparse=is_sparse)
    panels = prepared.before.sparse_panels if is_sparse else prepared.before.panels
    row_bytes = max(1, chunk.rows.nbytes // max(1, chunk.n_rows))
    size = max(_LEAST_RUN, _RUN_BYTES // row_bytes)
    for at in range(0, len(listed), size):
        run = listed[at : at + size]
        if params.labels is not None:
            table = params.labels[chunk.start + run]
        batch = Batch(chunk.rows, run, normalize=chunk.normalize).ready(params.snapshot.dtype)
        if params.labels is None:
            table = label_batch(batch, panels)
        centres.run_steps(batch, table, params.learning_rate * share)
        if centres.lost:
            into.lost = True
            return
    into.drift += round_to_grid(centres.drift(), prepared.shift)
    into.n_steps += len(listed)
    into.n_switched += centres.n_switched


def _draw(chunk: Chunk, uniforms: np.ndarray, mean_weight: float) -> tuple[np.ndarray, float]:
    """Return rows of the chunk drawn with replacement, and the factor of their steps.

    Rows come in proportion to their weights. Partitions share the steps in proportion to their rows, so
    where weights are larger than on average steps are as much longer.
    """
    n = chunk.n_rows
    if chunk.weights is None or not n:
        # A uniform number has 53 bits: its product with n may round up to n.
        return np.minimum((uniforms * n).astype(np.int64), n - 1), 1.0
    ends = np.cumsum(chunk.weights)
    if not ends[-1] > 0.0:
        return np.empty(0, np.int64), 0.0
    listed = np.searchsorted(ends, uniforms * ends[-1], side="right")
    last = np.flatnonzero(chunk.weights)[-1]
    return np.minimum(listed, last), float(ends[-1] / n / mean_weight)


STEPS = Reduction(
    name="steps",
    prepare=_prepare,
    zero=_zero,
    chunk=step_partition,
)
"""`StepParams` -> `StepsTaken`, over a dataset whose chunks are the partitions of the inner loop."""
