"""Pieces of a stream, summarised by the processes that read them: coresets of full leaves, other rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.methods.streaming.tree.node import LeafSettings, Node, leaf
from daskcluster.methods.streaming.tree.stream_rows import (
    Clock,
    StreamRows,
    joined_rows,
    stream_rows,
)
from daskcluster.methods.streaming.tree.tree import FAN_IN, Carried, CoresetTree, carried_ahead
from daskcluster.storage.process_local import ProcessLocal
from daskcluster.typing import Dataset, Range, Recipe


@dataclass(frozen=True)
class Position:
    """A position in a stream, at which a piece begins.

    Attributes
    ----------
    n_leaves : int
        Number of full leaves before it.
    tail_rows : int
        Number of rows in the open leaf.
    clock : float
        Clock of the stream, if it counts rows.
    """

    n_leaves: int
    tail_rows: int
    clock: float

    def after(self, n_rows: int, leaf_rows: int) -> Position:
        """Return the position after the next `n_rows` rows."""
        rows = self.tail_rows + n_rows
        return Position(self.n_leaves + rows // leaf_rows, rows % leaf_rows, self.clock + n_rows)


@dataclass(frozen=True)
class Piece:
    """The summary of consecutive rows.

    Attributes
    ----------
    head : StreamRows or None
        Rows that complete the open leaf, or that form the first leaf, whose row order numbers the initial
        centres.
    leaves : tuple of Node
    carried : tuple of sequences of Node
        For each of `leaves`, the merges that it completes.
    tail : StreamRows or None
        Rows of a leaf that stays open.
    leaf_rows : int
        Number of rows per leaf.
    """

    head: StreamRows | None
    leaves: tuple[Node, ...]
    carried: tuple[Carried, ...]
    tail: StreamRows | None
    leaf_rows: int

    def leaves_into(self, tree: CoresetTree) -> Iterator[tuple[Node, Carried]]:
        """Add the piece to a tree; yield every full leaf, which the caller has to push before the next."""
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
        The open dataset, in the process that has opened it.
    span : (start, stop)
    stamp : float or None
        Timestamp of all rows.
    """

    recipe: Recipe
    opened: ProcessLocal[Dataset]
    span: Range
    stamp: float | None = None

    def dataset(self) -> Dataset:
        """Return the dataset; other processes open it by its recipe."""
        found = self.opened.value
        return self.recipe.open() if found is None else found

    @property
    def n_rows(self) -> int:
        return self.span[1] - self.span[0]


@dataclass(frozen=True)
class SumUp:
    """A task that summarises consecutive rows of a stream, in any process that can open their datasets.

    Attributes
    ----------
    parts : tuple of Part
    position : Position
        Position of the first row.
    settings : LeafSettings
    """

    parts: tuple[Part, ...]
    position: Position
    settings: LeafSettings

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    def __call__(self) -> Piece:
        """Read the rows once and return their summary.

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
        """Whether the first rows belong to a leaf that the driver makes: an open leaf, or the first one."""
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


PIECE_BYTES = 32 << 20
"""Bytes of rows per task: several chunks, because chunks at its edges are read by two tasks."""

_BYTES_IN_MEMORY = 4 << 20
_PIECES_IN_MEMORY = 16
"""Rows in memory are cut into this many pieces, within limits, to keep several threads busy."""

_FINE_PIECES = 2
"""This many last pieces are cut into four each, so that threads finish at about the same time."""


@dataclass(frozen=True)
class OpenPart:
    """An open dataset, and the range of its rows that comes next."""

    dataset: Dataset
    span: Range
    stamp: float | None = None


def cut_pieces(
    parts: Sequence[OpenPart], position: Position, settings: LeafSettings
) -> list[SumUp]:
    """Return the tasks that summarise rows, in order. Where possible, they end at the ends of leaves.

    Parameters
    ----------
    parts : sequence of OpenPart
        In the order of the stream.
    position : Position
        Position of the first row.
    settings : LeafSettings
    """
    tasks, current = list[SumUp](), list[Part]()
    for part, cuts in zip(parts, _cuts(parts, position, settings), strict=True):
        recipe, dataset = part.dataset.recipe(), part.dataset
        if isinstance(dataset, RowDataset):
            dataset = dataset.sharing([span for span, _ in cuts])
        opened = ProcessLocal(dataset, "dataset")
        for span, is_last in cuts:
            current.append(Part(recipe, opened, span, part.stamp))
            if is_last:
                tasks.append(SumUp(tuple(current), position, settings))
                position, current = position.after(tasks[-1].n_rows, settings.leaf_rows), []
    return [*tasks, SumUp(tuple(current), position, settings)] if current else tasks


def _cuts(
    parts: Sequence[OpenPart], position: Position, settings: LeafSettings
) -> list[list[tuple[Range, bool]]]:
    """Return, for each part, its ranges of rows by piece, and whether each range ends its piece."""
    most, found = _most_leaves(parts, settings), list[list[tuple[Range, bool]]]()
    n_rows = sum(part.span[1] - part.span[0] for part in parts)
    coarse = n_rows - _FINE_PIECES * most * settings.leaf_rows
    # These small pieces still end where merges do.
    fine = most // FAN_IN if coarse > 0 and most >= FAN_IN**2 else most
    wanted = size = _rows_to(most if coarse > 0 else fine, position, settings)
    for part in parts:
        found.append([])
        start, stop = part.span
        while start < stop:
            last = min(stop, start + wanted)
            wanted -= last - start
            found[-1].append(((start, last), not wanted))
            start = last
            if not wanted:
                position = position.after(size, settings.leaf_rows)
                coarse -= size
                wanted = size = _rows_to(most if coarse > 0 else fine, position, settings)
    return found


def _most_leaves(parts: Sequence[OpenPart], settings: LeafSettings) -> int:
    """Return the number of leaves per piece, such that pieces end where merges do and can make them."""
    present = [part for part in parts if part.span[1] > part.span[0]]
    if not present:
        return 1
    sizes = [part.dataset.bytes_of(part.span) for part in present]
    row_bytes = max(1, sizes[0] // (present[0].span[1] - present[0].span[0]))
    n_bytes = PIECE_BYTES
    if present[0].dataset.in_memory:
        n_bytes = min(PIECE_BYTES, max(_BYTES_IN_MEMORY, sum(sizes) // _PIECES_IN_MEMORY))
    leaves = max(1, n_bytes // (row_bytes * settings.leaf_rows))
    return leaves // _merging(leaves) * _merging(leaves)


def _merging(leaves: int) -> int:
    """Return the largest power of `FAN_IN` up to `leaves`: the leaves of one merged node."""
    found = 1
    while found * FAN_IN <= leaves:
        found *= FAN_IN
    return found


def _rows_to(most: int, position: Position, settings: LeafSettings) -> int:
    """Return the number of rows from `position` to the end of a piece of at most `most` leaves."""
    leaves = most - position.n_leaves % _merging(most)
    return leaves * settings.leaf_rows - position.tail_rows
