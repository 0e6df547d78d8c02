"""Nodes of a merge-and-reduce tree: coresets of consecutive rows, with their time spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import ArrayDataset, MemorySparseDataset
from daskcluster.data.weighted import array_weights
from daskcluster.engine.local import InlinePlacement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.methods.coreset.algorithm import lightweight_coreset, united
from daskcluster.methods.streaming.tree.stream_rows import Forgetting, StreamRows
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows


@dataclass(frozen=True)
class LeafSettings:
    """Settings of leaves and merges; sent to workers.

    Attributes
    ----------
    size : int
        m, the number of rows of a coreset.
    leaf_rows : int
        Number of rows of the stream per leaf.
    seed : int
    dtype : str
        Dtype in which rows are stored.
    normalize : bool
        Compare rows at length one (cosine metric). They are stored without normalization.
    forgetting : Forgetting
    """

    size: int
    leaf_rows: int
    seed: int
    dtype: str
    normalize: bool = False
    forgetting: Forgetting = field(default_factory=Forgetting)

    @property
    def keeps_all(self) -> bool:
        """Whether leaves keep all of their rows, without sampling or merges."""
        return self.size >= self.leaf_rows

    def chunk(self, rows: Rows, weights: np.ndarray | None = None) -> Chunk:
        """Return rows of the stream as a chunk, normalized if needed."""
        return Chunk(rows, 0, weights, self.normalize)


@dataclass(frozen=True)
class Node:
    """A coreset of consecutive leaves.

    Attributes
    ----------
    level : int
        Number of merges above a leaf; a leaf has level 0.
    first, stop : int
        Range of the numbers of its leaves.
    rows : Rows, shape (m, d)
    weights : ndarray of shape (m,), float64
        Weights at time `newest`; their sum is the exact weight of the rows that the node represents.
    oldest, newest : float
        Time span of these rows, on the clock of the stream.
    """

    level: int
    first: int
    stop: int
    rows: Rows
    weights: np.ndarray
    oldest: float
    newest: float

    @cached_property
    def weight(self) -> float:
        """Sum of the weights; cached, because every leaf needs it for all nodes."""
        return float(self.weights.sum())

    def weights_at(self, forgetting: Forgetting, now: float) -> np.ndarray:
        """Return the weights of the rows at `now`."""
        return self.weights * forgetting.left_of_span(self.oldest, self.newest, now=now)

    def weight_at(self, forgetting: Forgetting, now: float) -> float:
        """Return the total weight of the rows at `now`."""
        left = forgetting.left_of_span(self.oldest, self.newest, now=now)
        return self.weight if left == 1.0 else float((self.weights * left).sum())


def leaf(rows: StreamRows, number: int, settings: LeafSettings) -> Node:
    """Return leaf `number`: the coreset of its rows.

    Notes
    -----
    Cost: two visits of the rows, or three if they have weights or a half-life.
    """
    ticks = rows.ticks
    oldest, newest = (0.0, 0.0) if ticks is None else (float(ticks.min()), float(ticks.max()))
    weights = rows.weights
    if settings.forgetting.half_life is not None:
        weights = rows.weights_at(settings.forgetting, newest)
    key = Key(settings.seed, "leaf of a stream", number)
    kept, found = _drawn(rows.rows, weights, key, settings)
    return Node(0, number, number + 1, kept, found, oldest, newest)


def merged(nodes: Sequence[Node], settings: LeafSettings) -> Node:
    """Return the node that replaces consecutive nodes: their union, sampled again if it is too large."""
    newest = max(node.newest for node in nodes)
    parts = [(node.rows, node.weights * _aged(node, settings.forgetting, newest)) for node in nodes]
    rows, weights = united(parts)
    first, stop = nodes[0].first, nodes[-1].stop
    level = max(node.level for node in nodes) + 1
    key = Key(settings.seed, f"merge {level}", stop)
    if len(rows) > settings.size:
        rows, weights = _drawn(rows, weights, key, settings)
    oldest = min(node.oldest for node in nodes)
    return Node(level, first, stop, rows, weights, oldest, newest)


def _aged(node: Node, forgetting: Forgetting, now: float) -> float:
    # With a window, weights do not decay; a node loses weight as its span leaves the window.
    return 1.0 if forgetting.half_life is None else float(forgetting.left(node.newest, now=now))


def _drawn(
    rows: Rows, weights: np.ndarray | None, key: Key, settings: LeafSettings
) -> tuple[Rows, np.ndarray]:
    total = float(len(rows)) if weights is None else float(weights.sum())
    if not total > 0.0:
        return rows[:0], np.empty(0)
    dataset = _dataset(rows, weights)
    with InlinePlacement(dataset.normalized() if settings.normalize else dataset) as placement:
        found = lightweight_coreset(ScaledPlacement(placement), settings.size, key.derived_seed())
    # The total weight is known exactly; without this, its error would grow with each level.
    return found.rows, found.weights * (total / float(found.weights.sum()))


def _dataset(rows: Rows, weights: np.ndarray | None) -> RowDataset:
    dataset: RowDataset
    if isinstance(rows, SparseRows):
        dataset = MemorySparseDataset(rows)
    else:
        dataset = ArrayDataset(rows)
    if weights is not None:
        dataset = dataset.with_weights(array_weights(weights, len(rows)))
    return dataset


def retimed(node: Node, shift: float) -> Node:
    """Return the node with its time span moved by `shift`."""
    return replace(node, oldest=node.oldest + shift, newest=node.newest + shift)
