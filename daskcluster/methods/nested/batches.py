"""Places of nested batches: small ones in this process, larger ones on the engine, then all rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.engine.engine import Engine, Placement
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.events import Callback, Notice, PassEnded, PassStarted, publish
from daskcluster.methods.nested.gathered import GatheredBatches, NestedOrder
from daskcluster.methods.nested.stored import NestedBatchDataset

HOME_BYTES = 256 << 20
"""Batches up to this size are gathered into this process: a round trip to workers takes longer."""


class Batches(Protocol):
    """Batches of rows, each of which holds those before it; the last one is the whole dataset.

    Attributes
    ----------
    number : int
        Of the batch, from 0.
    size : int
        Rows of the batch.
    rows : ScaledPlacement
        Its rows, ready for passes.
    labels : ndarray of shape (size,), int32, or None
        Room for labels, if they are kept in this process.
    bytes_read : int
        All bytes that were read for batches so far.
    """

    number: int
    size: int
    rows: ScaledPlacement
    labels: np.ndarray | None

    @property
    def bytes_read(self) -> int: ...
    @property
    def is_whole(self) -> bool: ...
    def double(self, *, standing: bool = False) -> np.ndarray | None:
        """Double the batch, up to all rows.

        Parameters
        ----------
        standing : bool
            Return the earlier positions of the rows.

        Returns
        -------
        ndarray of shape (size,), int64, or None
            Position of each row in the previous batch, -1 for new rows; None if that is unknown, or not
            requested.
        """
        ...


class NestedBatches:
    """Nested batches of a dataset; the first has `size` rows.

    Parameters
    ----------
    placement : Placement
        Of the dataset, on the engine.
    engine : Engine
        Places batches that are too large for this process.
    order : NestedOrder
    size : int
    labels : ndarray of shape (n,), int32, optional
        Room for the labels of all rows.
    footprint : Footprint
    callbacks : sequence of callables
    home_bytes : int
        Batches up to this size are gathered in this process.
    number : int
        Of the batch to begin with, from 0.

    Attributes
    ----------
    gathers : int
        Passes over all rows that were made to gather batches.

    Notes
    -----
    Cost: rows in memory are copied ahead, those of the next batch while this one is computed; rows in
    stored order are read as they are needed. From a store, a few random rows touch every chunk, so
    one pass gathers all batches that will be at home.
    """

    def __init__(
        self,
        placement: Placement,
        engine: Engine,
        order: NestedOrder,
        size: int,
        *,
        labels: np.ndarray | None = None,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
        home_bytes: int = HOME_BYTES,
        number: int = 0,
    ) -> None:
        assert isinstance(placement.dataset, RowDataset)
        self._whole, self._dataset = placement, placement.dataset
        self._engine, self._order = engine, order
        self._home = home_engine(engine)
        self._all_labels, self._footprint, self._callbacks = labels, footprint, callbacks
        self._sizes = _sizes(size, self._dataset.n_rows)
        at_home = [b for b in self._sizes[:-1] if b * self._dataset.row_bytes <= home_bytes]
        self._n_at_home = len(at_home)
        gathers = number < self._n_at_home
        self._gathered = GatheredBatches(self._dataset, order, at_home) if gathers else None
        self.number = number - 1
        self._placed: Placement | None = None
        self._bytes_gathered = self._bytes_before = self.gathers = 0
        self.size = 0
        self.labels: np.ndarray | None = None
        self.rows: ScaledPlacement
        self.double()

    @property
    def is_whole(self) -> bool:
        return self.number == len(self._sizes) - 1

    @property
    def bytes_read(self) -> int:
        placed = 0 if self._placed is None else self._placed.traffic.bytes_read
        return self._bytes_gathered + self._bytes_before + placed + self._whole.traffic.bytes_read

    @property
    def held(self) -> RowDataset | None:
        """All rows that this process has by now; None if batches stay where they are stored."""
        if self._dataset.in_memory:
            return self._dataset
        return None if self._gathered is None else self._gathered.batch(self._gathered.n_gathered)

    def double(self, *, standing: bool = False) -> np.ndarray | None:
        """Double the batch, up to all rows; the previous batch is freed."""
        self.close()
        before, n_before = self._gathered, self.size
        self.number += 1
        self.size = self._sizes[self.number]
        if self.is_whole:
            self._gathered = None
            self.rows, self.labels = ScaledPlacement(self._whole), self._all_labels
        else:
            self._placed = self._place()
            self.labels = np.empty(self.size, np.int32) if self._placed.shares_memory else None
            self.rows = ScaledPlacement(self._placed)
        if not standing or before is None:
            return None
        if self.is_whole:
            return _standing(before.index(self.number), self.size)
        return None if self._gathered is None else _standing(np.arange(n_before), self.size)

    def close(self) -> None:
        """Free the batch."""
        if self._gathered is not None:
            self._gathered.wait()
        if self._placed is not None:
            self._bytes_before += self._placed.traffic.bytes_read
            self._placed.close()
            self._placed = None

    def _place(self) -> Placement:
        if self.number < self._n_at_home and self._gathered is not None:
            self._gather(self._gathered)
            if self._dataset.in_memory and self.number + 1 < self._n_at_home:
                self._gathered.gather_ahead(self.number + 2)
            batch = self._gathered.batch(self.number + 1)
            return self._home.place(batch, callbacks=self._callbacks)
        self._gathered = None
        self._advise()
        high = self._order.limit(self.size)
        batch = NestedBatchDataset(self._dataset, self._order, 0, high)
        return self._engine.place(batch, footprint=self._footprint, callbacks=self._callbacks)

    def _advise(self) -> None:
        """Say once what random rows cost if they stay in their store."""
        if self.number > self._n_at_home or self._order.key is None or self._dataset.in_memory:
            return
        text = (
            f"batches of {self.size} rows and more stay in their store, and every round reads the chunks "
            "that do not fit into memory, for random rows are in all of them; shuffle the rows once "
            "(daskcluster shuffle) and pass shuffle=False to read the beginning only."
        )
        publish(self._callbacks, Notice(text))

    def _gather(self, gathered: GatheredBatches) -> None:
        scattered = self._order.key is not None and not self._dataset.in_memory
        upto = self._n_at_home if scattered else self.number + 1
        if upto <= gathered.n_gathered:
            return
        began, before = time.perf_counter(), self._bytes_gathered
        publish(self._callbacks, PassStarted("gather a sample", self._sizes[upto - 1]))
        gathered.gather(upto, on_read=self._count)
        self.gathers += int(scattered)
        read = self._bytes_gathered - before
        publish(self._callbacks, PassEnded("gather a sample", time.perf_counter() - began, read))

    def _count(self, n_bytes: int) -> None:
        self._bytes_gathered += n_bytes


def _standing(known: np.ndarray, n_rows: int) -> np.ndarray:
    """Return for each of `n_rows` its position in `known`; -1 for others.

    Examples
    --------
    >>> import numpy as np
    >>> _standing(np.array([3, 1]), 5)
    array([-1,  1, -1,  0, -1])
    """
    places = np.full(n_rows, -1, np.int64)
    places[known] = np.arange(len(known))
    return places


def _sizes(size: int, n_rows: int) -> list[int]:
    """Return the sizes of all batches.

    Examples
    --------
    >>> _sizes(100, 500)
    [100, 200, 400, 500]
    """
    sizes = [min(size, n_rows)]
    while sizes[-1] < n_rows:
        sizes.append(min(2 * sizes[-1], n_rows))
    return sizes
