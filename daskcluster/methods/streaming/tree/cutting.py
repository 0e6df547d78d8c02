"""Where a stream is cut into pieces: where leaves are merged, so that merges are made with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daskcluster.data.dataset import RowDataset
from daskcluster.methods.streaming.tree.node import LeafSettings
from daskcluster.methods.streaming.tree.pieces import Part, Position, SumUp
from daskcluster.methods.streaming.tree.tree import FAN_IN
from daskcluster.storage.process_local import ProcessLocal
from daskcluster.typing import Dataset, Range

PIECE_BYTES = 32 << 20
"""Rows that one task sums up: several chunks, for those at its edges are read once in each process that
has a share of them."""

_BYTES_IN_MEMORY = 4 << 20
_PIECES_IN_MEMORY = 16
"""Rows that need not be read are cut finer, so that few of them keep several threads busy."""

_FINE_PIECES = 2
"""The last pieces are cut into four each: else the last thread is alone for half a piece."""


@dataclass(frozen=True)
class OpenPart:
    """A dataset that was opened, and which of its rows come next."""

    dataset: Dataset
    span: Range
    stamp: float | None = None


def cut_pieces(
    parts: Sequence[OpenPart], position: Position, settings: LeafSettings
) -> list[SumUp]:
    """Return the tasks that sum up rows, in order; they end where leaves do, as far as they can.

    Parameters
    ----------
    parts : sequence of OpenPart
        In the order of the stream.
    position : Position
        Of the first row.
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
    """Return for each part what pieces have of it, and whether it is the last of its piece."""
    most, found = _most_leaves(parts, settings), list[list[tuple[Range, bool]]]()
    n_rows = sum(part.span[1] - part.span[0] for part in parts)
    coarse = n_rows - _FINE_PIECES * most * settings.leaf_rows
    # Such small ones still end where merges do.
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
    """Return the leaves of a piece that ends where a merge does, so that it is made with them."""
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
    """Return the most leaves, of at most so many, that are merged into one node."""
    found = 1
    while found * FAN_IN <= leaves:
        found *= FAN_IN
    return found


def _rows_to(most: int, position: Position, settings: LeafSettings) -> int:
    """Return the rows from `position` to the end of a piece of at most so many leaves."""
    leaves = most - position.n_leaves % _merging(most)
    return leaves * settings.leaf_rows - position.tail_rows
