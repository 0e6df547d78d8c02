"""Pieces of a stream: datasets cut into tasks, summarised by the processes that read them, and folded here.

A summary has coresets of full leaves, and the other rows.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, count
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.errors import DatasetNotFoundError, InvalidDataError, InvalidParameterError
from daskcluster.events import Callback, PassEnded, PassProgress, PassStarted, publish
from daskcluster.methods.streaming.tree.tree import (
    FAN_IN,
    Carried,
    Clock,
    CoresetTree,
    Forgetting,
    LeafSettings,
    Node,
    StreamRows,
    carried_ahead,
    joined_rows,
    leaf,
    stream_rows,
)
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
        leaf_rows, position = self.settings.leaf_rows, self.position
        # The first rows may belong to a leaf that the driver makes: an open leaf, or the first one.
        has_head = position.tail_rows > 0 or position.n_leaves == 0
        numbers = count(position.n_leaves + has_head)
        lead = leaf_rows - position.tail_rows if has_head else 0
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


if TYPE_CHECKING:
    from daskcluster.methods.streaming.fold import StreamFold


T = TypeVar("T")


def check_timestamp(forgetting: Forgetting, timestamp: float | None) -> None:
    """Refuse a missing timestamp if ages are times, and a timestamp that has no effect."""
    if forgetting.by_time and timestamp is None:
        raise InvalidParameterError(
            "half_life or window is a time, so rows need a timestamp: pass timestamp= to partial_fit, in "
            "seconds."
        )
    if timestamp is not None and not forgetting.by_time:
        raise InvalidParameterError(
            f"timestamp={timestamp!r} has no effect where neither half_life nor window is a time; omit it, "
            "or set one of them to a time such as '6h'."
        )


def fold_dataset(
    fold: StreamFold,
    dataset: Dataset,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
    timestamp: float | None = None,
    span: Range | None = None,
) -> StreamFold:
    """Return a copy of `fold` with the rows of a dataset folded in; `fold` itself does not change.

    Parameters
    ----------
    fold : StreamFold
    dataset : Dataset
    engine : Engine
    callbacks : sequence of callables
    timestamp : float, optional
        Timestamp of all rows.
    span : (start, stop), optional
        Range of rows; None: all.

    Notes
    -----
    Cost: one pass. Memory: a few pieces, which are prefetched and summarised; a summary has an eighth of
    the rows of its piece.
    """
    twin = fold.twin()
    parts = [OpenPart(dataset, span or (0, dataset.n_rows), timestamp)]
    tasks = cut_pieces(parts, twin.position(), twin.settings.leaf)
    runner = engine if engine.can_read(dataset) else LocalEngine()
    if len(tasks) == 1:  # not worth sending to workers
        runner = LocalEngine(1)
    with closing(runner.run_ahead(tasks)) as pieces:
        for piece in as_pass(pieces, tasks, parts, callbacks):
            twin.add_piece(piece, callbacks)
    return twin


def as_pass(
    found: Iterable[T],
    tasks: Sequence[SumUp],
    parts: Sequence[OpenPart],
    callbacks: Sequence[Callback],
) -> Generator[T]:
    """Yield the results of tasks, with events to callbacks as for one pass over `parts`.

    Parameters
    ----------
    found : iterable
        A result per task; progress is reported when the next one is requested.
    tasks : sequence of SumUp
    parts : sequence of OpenPart
    callbacks : sequence of callables
    """
    began = time.perf_counter()
    publish(callbacks, PassStarted("coresets", sum(task.n_rows for task in tasks)))
    for task, each in zip(tasks, found, strict=True):
        yield each
        publish(callbacks, PassProgress(task.n_rows))
    read = (part for part in parts if not part.dataset.in_memory)
    n_bytes = sum(part.dataset.bytes_of(part.span) for part in read)
    publish(callbacks, PassEnded("coresets", time.perf_counter() - began, n_bytes))


UNREADABLE = (InvalidDataError, InvalidParameterError, DatasetNotFoundError)
"""Errors of a single object, which is then rejected; other errors end the cycle."""


@dataclass(frozen=True)
class Bad:
    """A part that cannot be read: its number, and the reason."""

    number: int
    why: str


class _Attempt:
    """A task that returns an error as its result, so that one bad object does not lose the others."""

    def __init__(self, task: SumUp) -> None:
        self.task = task

    def __call__(self) -> Piece | Bad:
        try:
            return self.task()
        except UNREADABLE as error:
            if len(self.task.parts) == 1:
                return Bad(0, str(error))
            # Find the part that raises the error, by reading the parts one by one.
            for number, part in enumerate(self.task.parts):
                try:
                    SumUp((part,), self.task.position, self.task.settings)()
                except UNREADABLE as found:
                    return Bad(number, str(found))
            raise


def sum_up(
    parts: Sequence[OpenPart],
    fold: StreamFold,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
) -> Generator[Piece | Bad]:
    """Summarise the next parts of a stream; yield the results in order while later parts are being read.

    Parameters
    ----------
    parts : sequence of OpenPart
    fold : StreamFold
        The state that the parts follow. Not changed.
    engine : Engine
    callbacks : sequence of callables
        Called with the events of one pass.

    Yields
    ------
    Piece or Bad
        Pieces after a `Bad` part are invalid, because their positions in the stream are wrong.
    """
    tasks = cut_pieces(parts, fold.position(), fold.settings.leaf)
    found = engine.run_ahead([_Attempt(task) for task in tasks])
    with closing(found):
        totals = as_pass(found, tasks, parts, callbacks)
        for names, each in zip(_numbered(tasks, parts), totals, strict=True):
            yield Bad(names[each.number], each.why) if isinstance(each, Bad) else each


def _numbered(tasks: Sequence[SumUp], parts: Sequence[OpenPart]) -> list[list[int]]:
    """Return, for every task, the positions in `parts` of its own parts."""
    ends = list(accumulate(part.span[1] - part.span[0] for part in parts))
    found, row, number = [], 0, 0
    for task in tasks:
        names = []
        for part in task.parts:
            while ends[number] <= row:
                number += 1
            names.append(number)
            row += part.n_rows
        found.append(names)
    return found
