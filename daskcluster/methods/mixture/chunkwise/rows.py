"""Labels, posteriors and log-densities of rows under a fitted mixture, by full search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.data_statistics import refuse_bad
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import ExactScalar, Reduction
from daskcluster.kernels.accumulate import sum_on_grid
from daskcluster.kernels.arrays import NO_WEIGHTS, read_only
from daskcluster.kernels.sum_grid import SumGrid
from daskcluster.methods.mixture.chunkwise.statistics import Gaussians, MixtureGrids
from daskcluster.methods.mixture.kernels.all import all_kernel
from daskcluster.methods.mixture.kernels.sums import MomentGrids, Moments

POSTERIOR = np.dtype([("components", np.int32), ("probabilities", np.float64)])
STORED_POSTERIOR = np.dtype([("components", np.int32), ("probabilities", np.float32)])
"""Posteriors as they are stored. float32 suffices: distances of float32 rows have fewer correct digits."""
_NONE, _NO_SECONDS = np.empty(0), np.empty((2, 0))


def prepare_labels(gaussians: Gaussians) -> tuple[Gaussians, PreparedCentres]:
    """Prepare the means, once per task."""
    return gaussians, PreparedCentres(gaussians.means)


def label_by_density(chunk: Chunk, prepared: tuple[Gaussians, PreparedCentres]) -> np.ndarray:
    """Return the cluster with the largest posterior of every row, int32 (n,)."""
    gaussians, centres = prepared
    labels = np.empty(chunk.n_rows, np.int32)
    for block in chunk.cache_blocks(least=gaussians.means.dtype):
        refuse_bad(block)
        out = labels[block.start - chunk.start : block.stop - chunk.start]
        if gaussians.shared:
            centres.nearest(block.rows, out)
        else:
            out[:] = _visit(block.rows, gaussians, 1, every=False)[0][:, 0]
    return labels


def posterior_rows(chunk: Chunk, params: tuple[Gaussians, int]) -> np.ndarray:
    """Return the clusters with the largest posteriors of every row, (n, most) of `POSTERIOR`.

    `params` are the mixture and `most`. Largest first; the posteriors of a row sum to one.
    """
    gaussians, most = params
    found = np.empty((chunk.n_rows, most), POSTERIOR)
    for block in chunk.cache_blocks(least=gaussians.means.dtype):
        refuse_bad(block)
        index, posteriors, _ = _visit(block.rows, gaussians, most, every=False)
        out = found[block.start - chunk.start : block.stop - chunk.start]
        out["components"], out["probabilities"] = index, posteriors
    return found


def stored_posteriors(chunk: Chunk, params: tuple[Gaussians, int]) -> np.ndarray:
    """Return `posterior_rows` in the stored dtype, (n, most) of `STORED_POSTERIOR`."""
    return posterior_rows(chunk, params).astype(STORED_POSTERIOR)


def density_rows(chunk: Chunk, gaussians: Gaussians) -> np.ndarray:
    """Return the log-density of every row under the whole mixture, float64 (n,)."""
    found = np.empty(chunk.n_rows)
    for block in chunk.cache_blocks(least=gaussians.means.dtype):
        refuse_bad(block)
        bounds = _visit(block.rows, gaussians, 1, every=True)[2]
        out = found[block.start - chunk.start : block.stop - chunk.start]
        out[:] = bounds + gaussians.log_constant
    return found


def _visit(
    rows: np.ndarray, gaussians: Gaussians, most: int, *, every: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = len(rows)
    index, bounds = np.empty((n, most), np.int32), np.empty(n)
    posteriors = np.empty((n, 0 if every else most))
    none = SumGrid(_NONE, _NONE)
    grids, moments = MomentGrids(none, none, none), Moments(_NONE, _NONE, _NO_SECONDS, _NONE)
    visit = all_kernel(gaussians.means.dtype, scaled=gaussians.scaled)
    visit(
        (read_only(rows), read_only(NO_WEIGHTS)),
        gaussians.costs,
        (gaussians.sharpness, 0.0),
        every,
        (grids, moments),
        index,
        posteriors,
        bounds,
    )
    return index, posteriors, bounds


# -- the log-likelihood of a dataset --------------------------------------------------------------


@dataclass(frozen=True)
class LikelihoodParams:
    """A mixture and the scale of the rows."""

    gaussians: Gaussians
    scale: Scale


@dataclass
class Likelihood:
    """Weighted sum of log-densities without the common `log_constant`, and the total row weight."""

    bounds: ExactScalar
    weight: ExactScalar

    def combine(self, other: Likelihood) -> Likelihood:
        self.bounds.combine(other.bounds)
        self.weight.combine(other.weight)
        return self


class _Ready:
    def __init__(self, params: LikelihoodParams) -> None:
        self.gaussians = params.gaussians
        self.bounds = MixtureGrids.of(params.scale, params.gaussians, rooted=False).bounds
        self.weights = params.scale.weights


def _zero(prepared: _Ready) -> Likelihood:
    return Likelihood(ExactScalar(), ExactScalar())


def _likelihood_chunk(chunk: Chunk, prepared: _Ready, into: Likelihood) -> None:
    for block in chunk.cache_blocks(least=prepared.gaussians.means.dtype):
        bounds = _visit(block.rows, prepared.gaussians, 1, every=True)[2]
        weights = np.ones(block.n_rows) if block.weights is None else block.weights
        into.weight.add(*sum_on_grid(weights, prepared.weights))
        into.bounds.add(*sum_on_grid(bounds * weights, prepared.bounds))


LIKELIHOOD = Reduction(
    name="log-likelihood",
    prepare=_Ready,
    zero=_zero,
    chunk=_likelihood_chunk,
    combine=Likelihood.combine,
)
"""`LikelihoodParams` -> `Likelihood`, under the whole mixture."""
