"""Passes within bounds as an engine makes them: one unit in storage chunks, centres that wander."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.exact_sum import Scale
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.methods.kmeans.bounds import BOUNDS
from daskcluster.methods.kmeans.chunkwise.bounded import BoundedParams, BoundState, Changes
from daskcluster.methods.kmeans.chunkwise.grouped import balanced_groups
from daskcluster.methods.kmeans.chunkwise.kind import Drift, Gaps

KINDS = ["hamerly", "yinyang", "elkan"]
N_CHUNKS = 8
K = 24


@dataclass(frozen=True)
class Problem:
    """Rows of a unit in even storage chunks."""

    chunk: Chunk

    @property
    def edges(self) -> np.ndarray:
        return np.linspace(0, self.chunk.n_rows, N_CHUNKS + 1).astype(int)

    def scale(self) -> Scale:
        rows, weights = self.chunk.rows.astype(np.float64), self.chunk.weights
        most = 1.0 if weights is None else float(weights.max())
        wide = compute_dtype(self.chunk.rows.dtype) == np.float64
        return Scale(len(rows), np.abs(rows).max(axis=0), most, weights is not None, wide)


def problem(name: str, n: int = 4000, d: int = 6) -> Problem:
    """Return rows in no order: overlapping clusters, of a dtype, weighted or not."""
    rng = np.random.default_rng(1)
    centres = 4 * rng.standard_normal((30, d))
    rows = centres[rng.integers(0, 30, n)] + rng.standard_normal((n, d))
    weights = rng.lognormal(size=n) if "weighted" in name else None
    dtype = next(word for word in name.split() if word[-1].isdigit())
    if dtype == "uint8":
        rows = np.clip(10 * rows + 128, 0, 255)
    return Problem(Chunk(rows.astype(dtype), 500, weights, normalize="cosine" in name))


def wandering(task: Problem, kind: str) -> Iterator[tuple[Any, Any]]:
    """Yield reduction and parameters for centres whose steps become smaller and smaller."""
    rng = np.random.default_rng(2)
    rows = task.chunk.slice(0, K).computed()
    centres, previous = rows.copy(), None
    size = float(centres.std())
    groups = balanced_groups(centres, 10) if kind == "yinyang" else BOUNDS[kind].groups(centres)
    drift = Drift(centres, groups)
    for step in 10.0 ** -np.arange(1.0, 7.0, 0.5):
        bounded = BoundedParams(centres, previous, drift.table(Gaps()), task.scale())
        yield BOUNDS[kind].step(bounded, drift, Gaps())
        previous = centres
        centres = (centres + size * step * rng.standard_normal(centres.shape)).astype(rows.dtype)
        drift.move(centres)


def whole(task: Problem, reduction: StatefulReduction, prepared: Any, state: Any) -> Changes:
    """Make a pass over the whole unit in one chunk."""
    found = reduction.zero(prepared)
    reduction.chunk(task.chunk, prepared, found, state)
    return found


def partly(
    task: Problem, reduction: StatefulReduction, prepared: Any, state: Any
) -> tuple[Changes, np.ndarray]:
    """Make a pass over the chunks that hold a wanted row; return which those were as well."""
    found = reduction.zero(prepared)
    mask = reduction.filter_rows(prepared, found, state)
    assert mask is not None
    read = np.logical_or.reduceat(mask, task.edges[:-1])
    for number in np.flatnonzero(read):
        first, last = task.edges[number : number + 2]
        part = task.chunk.slice(first, last)
        reduction.chunk(part, prepared, found, state.rows(first, last))
    return found, read


def same(kind: str, one: Changes, other: Changes) -> bool:
    """Whether two passes found the same, to the bit, and with the same work.

    Bounds of groups are set together for rows that stand together, so there the work may differ.
    """
    ours, theirs = vars(one.moved), vars(other.moved)
    counts = ["n_moved"] if kind == "yinyang" else ["n_moved", "n_touched", "n_distances"]
    return all(np.array_equal(ours[name], theirs[name]) for name in ours) and all(
        getattr(one, name) == getattr(other, name) for name in counts
    )


def same_state(kind: str, one: BoundState, other: BoundState) -> bool:
    """Whether labels and, but for those of groups, bounds are the same, to the bit."""
    parts = 1 if kind == "yinyang" else 3
    pairs = zip(one.arrays[:parts], other.arrays[:parts], strict=True)
    return all(np.array_equal(ours, theirs) for ours, theirs in pairs)
