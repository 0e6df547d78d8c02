"""Mini-batch k-means of a stream: each leaf is cut into batches, and each batch moves the centres once.

Batches are those of Sculley (WWW 2010), with the learning rates of `MiniBatchKMeans`. Rows of a stream are
seldom in random order, so the rows of a leaf are shuffled first, with a random key of the leaf. Only the
rows of the open leaf are kept.

Difference from the paper: after each leaf, a local search moves single centres (`swap_remembered`). It
replaces the random reassignment of `daskcluster.methods.minibatch.algorithm`, which ignores how much a move
lowers the cost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.engine.local import default_threads
from daskcluster.events import Callback, StopReason, publish
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.methods.minibatch.algorithm import LabelledLeaf, swap_remembered
from daskcluster.methods.minibatch.chunkwise import Batch, MiniBatchStepper, MovingCentres
from daskcluster.methods.minibatch.sample import centres_of_sample
from daskcluster.methods.streaming.fold import StreamFold
from daskcluster.methods.streaming.refit import StreamCentres, births_after
from daskcluster.methods.streaming.tree.node import Node
from daskcluster.methods.streaming.tree.tree import Carried
from daskcluster.randomness import Key
from daskcluster.sparse_rows import Rows

LEAF_BATCHES = 16
"""Minimum number of batches per leaf, the range of the shuffle and the interval of drift and labels."""

_LEAF_ROWS_A_CLUSTER = 10
_RANDOM_INITS = 3


def leaf_rows_for(batch_size: int, n_clusters: int) -> int:
    """Return the number of rows of a leaf: whole batches, and enough rows to seed the centres from.

    Examples
    --------
    >>> leaf_rows_for(1024, 8), leaf_rows_for(100, 500)
    (16384, 5000)
    """
    batches = max(LEAF_BATCHES, -(-_LEAF_ROWS_A_CLUSTER * n_clusters // batch_size))
    return batches * batch_size


@dataclass(frozen=True)
class MovedCentres(StreamCentres):
    """Centres moved by batches.

    `weights` are the weights of the rows that each has seen, `costs` those of the rows when they arrived.

    Attributes
    ----------
    exact : ndarray of shape (k, d), float64
        `centres` before rounding to the rows' dtype.
    weight : float
        Weight of all rows.
    tick : float
        Clock of the stream at these centres.
    """

    exact: np.ndarray
    weight: float
    tick: float

    def aged(self, left: float) -> MovedCentres:
        """Return the same centres with all weights and costs multiplied by `left`."""
        return replace(
            self,
            weights=self.weights * left,
            costs=self.costs * left,
            weight=self.weight * left,
        )


@dataclass(frozen=True)
class MiniBatchSteps:
    """Moves centres by the batches of some rows; depends only on the previous centres and the rows.

    Attributes
    ----------
    n_clusters : int
    init : object
    n_init : int or "auto"
    batch_size : int
    learning_rate : str
    reassignment_ratio : float or "auto"
    chain_length : int
    seed : int
    """

    n_clusters: int
    init: Any
    n_init: Any
    batch_size: int
    learning_rate: str
    reassignment_ratio: float | str
    chain_length: int
    seed: int

    @property
    def finds(self) -> type[MovedCentres]:
        return MovedCentres

    def seek(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        *,
        fresh: bool = False,
        grow: bool = False,
    ) -> MovedCentres | None:
        """Return the centres after all batches of the rows; None if there are too few rows to seed from.

        `fresh` and `grow` have no effect: `swap_remembered` decides by itself whether to move centres.

        Notes
        -----
        Cost: b k distances per batch, one more visit of the rows with the final centres, and
        `swap_remembered`.
        """
        assert before is None or isinstance(before, MovedCentres)
        if before is None:
            if rows.n_rows < self.n_clusters:
                return None
            state, n_steps = self._initial(rows, n_rows), 0
        else:
            exact, dtype = before.exact.copy(), before.centres.dtype
            state = MovingCentres(
                exact, exact.astype(dtype), before.weights.copy(), before.costs.copy()
            )
            n_steps = before.n_iter
        stepper = MiniBatchStepper(state, self.learning_rate, default_threads())
        with stepper.threads():
            for batch in self._batches(rows, n_rows):
                n_steps += 1
                stepper.step(batch)
        return self._evaluated(state, rows, before, n_rows, n_steps)

    def _initial(self, rows: Chunk, n_rows: int) -> MovingCentres:
        restarts = self.n_init
        if restarts == "auto":
            restarts = _RANDOM_INITS if self.method == "random" else 1
        sample = Batch(rows.rows, np.arange(rows.n_rows), rows.weights, rows.normalize)
        seed = Key(self.seed, "centres of a stream", n_rows).derived_seed()
        return MovingCentres.start(centres_of_sample(sample, self, seed, int(restarts)))

    @property
    def method(self) -> str:
        return method_for(self.init, in_memory=True)

    def _batches(self, rows: Chunk, n_rows: int) -> Iterator[Batch]:
        order = Key(self.seed, "batches of a leaf", n_rows).generator().permutation(rows.n_rows)
        for first in range(0, len(order), self.batch_size):
            listed = order[first : first + self.batch_size]
            yield Batch(rows.rows, listed, rows.weights, rows.normalize)

    def _evaluated(
        self,
        state: MovingCentres,
        rows: Chunk,
        before: MovedCentres | None,
        n_rows: int,
        n_steps: int,
    ) -> MovedCentres:
        leaf, k = LabelledLeaf.of(rows, state.centres), self.n_clusters
        costs, weight = leaf.costs(k), float(leaf.weights.sum())
        if before is not None:
            costs += before.costs
            weight += before.weight
        given = self.reassignment_ratio
        low = 0.0 if given == "auto" else float(given)
        if given != 0.0:
            seed = Key(self.seed, "swaps of a leaf", n_rows).derived_seed()
            after = swap_remembered(state, leaf, costs, seed, low=low)
            if after is not None:
                costs = after
                leaf = LabelledLeaf.of(rows, state.centres)
        return MovedCentres(
            state.centres,
            births_after(before, state.centres, n_rows),
            state.seen,
            costs,
            leaf.sizes(k),
            n_rows,
            n_steps,
            str(StopReason.MAX_ITER),
            self.method,
            state.exact,
            weight,
            0.0,
        )


@dataclass
class MiniBatchFold(StreamFold):
    """The state of a stream whose centres are moved by batches; its search is a `MiniBatchSteps`.

    Centres are updated at every full leaf, whose rows are then dropped.
    """

    most_found: ClassVar[int] = sys.maxsize

    def _push(self, leaves: Iterable[tuple[Node, Carried]], callbacks: Sequence[Callback]) -> None:
        for node, _ in leaves:
            became_high = self._measure(node)
            opening = self._opening()
            self.tree.closed()  # drops the rows; no node is added
            if became_high:
                publish(callbacks, self._event())
            forgetting, now = self.settings.leaf.forgetting, self.tree.now
            found = self._after(node.rows, node.weights_at(forgetting, now), opening)
            if found is not None:
                self._take_over(found)
        self._current = None

    def current(self) -> StreamCentres | None:
        """Return the centres after all rows, including the open leaf; None if there are too few rows."""
        if self._current is None:
            no_more = self.fitted is not None and self.fitted.n_rows == self.n_rows
            if no_more or not self.tree.kept_rows:
                self._current = self.fitted
            else:
                self._current = self._after(*self.tree.summary(), self._opening())
        return self._current

    @property
    def remembered(self) -> float:
        """Weight of all rows after forgetting."""
        before = self._aged()
        return self.tree.weight + (0.0 if before is None else before.weight)

    def _aged(self) -> MovedCentres | None:
        before = self.fitted
        if before is None:
            return None
        assert isinstance(before, MovedCentres)
        forgetting = self.settings.leaf.forgetting
        return before.aged(float(forgetting.left(before.tick, now=self.tree.now)))

    def _after(self, rows: Rows, weights: np.ndarray, opening: Rows | None) -> MovedCentres | None:
        """Return the centres after more rows; `weights` are current."""
        before = self._aged()
        if not len(rows):
            return before
        chunk = self.settings.leaf.chunk(rows, weights)
        found = self.settings.refit.seek(chunk, before, self.n_rows)
        found = self._numbered(found, opening, rows)
        assert found is None or isinstance(found, MovedCentres)
        return None if found is None else replace(found, tick=self.tree.now)
