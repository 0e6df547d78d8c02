"""A piece of a stream, summed up where it can be read: whole leaves as coresets, the rest as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskcluster.methods.streaming.tree.node import LeafSettings, Node, leaf
from daskcluster.methods.streaming.tree.stream_rows import (
    Clock,
    StreamRows,
    joined_rows,
    stream_rows,
)
from daskcluster.methods.streaming.tree.tree import Carried, CoresetTree, carried_ahead
from daskcluster.storage.process_local import ProcessLocal
from daskcluster.typing import Dataset, Range, Recipe


@dataclass(frozen=True)
class Position:
    """Where a piece begins in its stream.

    Attributes
    ----------
    n_leaves : int
        Leaves that are full.
    tail_rows : int
        Rows in the leaf that is not.
    clock : float
        What the clock of the stream shows, where it counts rows.
    """

    n_leaves: int
    tail_rows: int
    clock: float

    def after(self, n_rows: int, leaf_rows: int) -> Position:
        """Return where the rows after the next `n_rows` begin."""
        rows = self.tail_rows + n_rows
        return Position(self.n_leaves + rows // leaf_rows, rows % leaf_rows, self.clock + n_rows)


@dataclass(frozen=True)
class Piece:
    """What is left of the rows of a piece.

    Attributes
    ----------
    head : StreamRows or None
        Rows that go into the leaf that was open, or into the first one: the first centres are numbered by
        the order of its rows.
    leaves : tuple of Node
    carried : tuple of sequences of Node
        For each of `leaves` the merges that it leads to.
    tail : StreamRows or None
        Rows of a leaf that stays open.
    leaf_rows : int
        Rows that each of `leaves` stands for.
    """

    head: StreamRows | None
    leaves: tuple[Node, ...]
    carried: tuple[Carried, ...]
    tail: StreamRows | None
    leaf_rows: int

    def leaves_into(self, tree: CoresetTree) -> Iterator[tuple[Node, Carried]]:
        """Bring the piece into a tree; yield every full leaf, for the caller to push before the next."""
        if self.head is not None:
            yield from ((node, ()) for node in tree.fill(self.head))
        for node, carried in zip(self.leaves, self.carried, strict=True):
            tree.take(node, self.leaf_rows)
            yield node, carried
        if self.tail is not None:
            yield from ((node, ()) for node in tree.fill(self.tail))


@dataclass(frozen=True)
class Part:
    """Rows of one dataset within a piece.

    Attributes
    ----------
    recipe : Recipe
    opened : ProcessLocal of Dataset
        What the recipe opens, where that was done before.
    span : (start, stop)
    stamp : float or None
        Time stamp of all of them.
    """

    recipe: Recipe
    opened: ProcessLocal[Dataset]
    span: Range
    stamp: float | None = None

    def dataset(self) -> Dataset:
        """Return the dataset; another process opens it."""
        found = self.opened.value
        return self.recipe.open() if found is None else found

    @property
    def n_rows(self) -> int:
        return self.span[1] - self.span[0]


@dataclass(frozen=True)
class SumUp:
    """A task: sums up consecutive rows of a stream, on any process that can open their datasets.

    Attributes
    ----------
    parts : tuple of Part
    position : Position
        Of the first row.
    settings : LeafSettings
    """

    parts: tuple[Part, ...]
    position: Position
    settings: LeafSettings

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    def __call__(self) -> Piece:
        """Read the rows once.

        Raises
        ------
        InvalidDataError
            A chunk cannot be read, or a row is not finite.
        """
        leaf_rows, numbers = self.settings.leaf_rows, self._numbers()
        lead = leaf_rows - self.position.tail_rows if self._has_head else 0
        head, leaves, open_rows = None, list[Node](), list[StreamRows]()
        wanted = lead or leaf_rows
        for rows in self._rows():
            at = 0
            while at < len(rows):
                part = rows.slice(at, min(len(rows), at + wanted))
                at += len(part)
                wanted -= len(part)
                open_rows.append(part)
                if wanted:
                    continue
                full, open_rows, wanted = joined_rows(open_rows), [], leaf_rows
                if head is None and lead:
                    head = full.owned()
                else:
                    leaves.append(leaf(full, next(numbers), self.settings))
        tail = joined_rows(open_rows).owned() if open_rows else None
        carried = tuple(carried_ahead(leaves, self.settings))
        return Piece(head, tuple(leaves), carried, tail, leaf_rows)

    @property
    def _has_head(self) -> bool:
        """Whether the first rows go into a leaf that is closed elsewhere, where all of its rows are."""
        return self.position.tail_rows > 0 or self.position.n_leaves == 0

    def _numbers(self) -> Iterator[int]:
        number = self.position.n_leaves + self._has_head
        while True:
            yield number
            number += 1

    def _rows(self) -> Iterator[StreamRows]:
        settings, first = self.settings, self.position.clock
        for part in self.parts:
            clock = Clock(first, part.stamp)
            for chunk in part.dataset().chunks([part.span]):
                yield stream_rows(
                    chunk, np.dtype(settings.dtype), clock, settings.forgetting, part.span[0]
                )
            first += part.n_rows
