"""One node of a merge-and-reduce tree: a coreset of consecutive rows, and their time span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.array import ArrayDataset
from daskcluster.data.dataset import RowDataset
from daskcluster.data.memory import MemorySparseDataset
from daskcluster.data.weighted import array_weights
from daskcluster.engine.local import InlinePlacement
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.methods.coreset.algorithm import lightweight_coreset
from daskcluster.methods.coreset.merged import united
from daskcluster.methods.streaming.tree.stream_rows import Forgetting, StreamRows
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows, SparseRows


@dataclass(frozen=True)
class LeafSettings:
    """Settings for making a leaf: small, and sent to workers.

    Attributes
    ----------
    size : int
        m, rows of a coreset.
    leaf_rows : int
        Rows of the stream that a leaf stands for.
    seed : int
    dtype : str
        In which rows are kept.
    normalize : bool
        Rows are compared at length one (cosine metric), and kept as they are.
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
        """True if a leaf keeps all of its rows: nothing is drawn or merged then."""
        return self.size >= self.leaf_rows

    def chunk(self, rows: Rows, weights: np.ndarray | None = None) -> Chunk:
        """Return rows of the stream as they are compared."""
        return Chunk(rows, 0, weights, self.normalize)


@dataclass(frozen=True)
class Node:
    """A coreset of consecutive leaves.

    Attributes
    ----------
    level : int
        How often it was merged: a leaf has level 0.
    first, stop : int
        Its leaves, by number.
    rows : Rows, shape (m, d)
    weights : ndarray of shape (m,), float64
        What they weigh at `newest`; their sum is the exact weight of the rows that they stand for.
    oldest, newest : float
        On the clock of the stream.
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
        """Their sum; asked for at every leaf, of every node."""
        return float(self.weights.sum())

    def weights_at(self, forgetting: Forgetting, now: float) -> np.ndarray:
        """Return what the rows weigh at `now`."""
        return self.weights * forgetting.left_of_span(self.oldest, self.newest, now=now)

    def weight_at(self, forgetting: Forgetting, now: float) -> float:
        """Return what the rows weigh together at `now`."""
        left = forgetting.left_of_span(self.oldest, self.newest, now=now)
        return self.weight if left == 1.0 else float((self.weights * left).sum())


def leaf(rows: StreamRows, number: int, settings: LeafSettings) -> Node:
    """Return the leaf of that number: the coreset of its rows.

    Notes
    -----
    Cost: two visits of the rows, three where they have weights or a half-life.
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
    """Return one node in place of two neighbours: their union, drawn from once more if it is large."""
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
    # What leaves a window does so as the node that it is in then, not before.
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
    # The weight is known exactly: without this it would wander, a little more with each level.
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
    """Return the node on a clock that shows `shift` more."""
    return replace(node, oldest=node.oldest + shift, newest=node.newest + shift)
