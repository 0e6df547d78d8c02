"""One search for near-duplicates: its plan, centres, a pass that sorts rows by cell, blocks, and pairs.

Blocks of rows are on a scratch folder, sorted by cell; equal rows are stored once.

A pair of rows x, y within r of each other, x in cell a and y in cell b, is near the bisector of the two
centres: ``(|x - b|^2 - |x - a|^2) / (2 |a - b|) <= r``, and so is y. With u = x - a and v = y - b,

    |x - y|^2 = |x - b|^2 + |y - a|^2 - |a - b|^2 - 2 u.v,

so bounds of u.v from 8-bit integers rule nearly all pairs of these rows out: first from coordinates on a
few axes, then from all features. The others are measured.
"""

from __future__ import annotations

import json
import math
import mmap
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from daskcluster import __version__
from daskcluster.chunk import Chunk, compute_dtype, row_dtype
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.data.partitions import READ_BYTES
from daskcluster.data.shuffle_passes import (
    LEAST_BLOCK_BYTES,
    MOST_BLOCK_BYTES,
    Buckets,
    ScatteredRows,
    kept_scratch,
    one_pass,
    reading_bytes,
    scratch_of,
)
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import BASELINE_BYTES
from daskcluster.errors import CheckpointError, DataNotReachableError
from daskcluster.estimators.plan import WorkPlan
from daskcluster.estimators.work import Work
from daskcluster.events import Callback
from daskcluster.host import format_bytes
from daskcluster.methods.duplicates.chunkwise import (
    DESCRIBED,
    MOST_ROWS,
    ROUNDING,
    Block,
    Cells,
    Rule,
    choose_axes,
    computed_list,
    describe_rows,
    least_gaps,
    prepare_block,
)
from daskcluster.methods.duplicates.kernels import (
    BlockLevels,
    Meeting,
    bias,
    integer_candidates,
    integer_tile,
    meet,
    unconnected,
    verify,
)
from daskcluster.methods.hierarchical.cells import CellParameters, fit_centres
from daskcluster.randomness import Key
from daskcluster.seeding.methods import draw_rows
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import Document
from daskcluster.storage.files import list_names, read_file, write_file
from daskcluster.storage.location import Location, locate
from daskcluster.storage.process_local import open_once
from daskcluster.typing import Dataset, Visibility

_ALIGN = 64


@dataclass(frozen=True)
class Scratch:
    """A folder of arrays; picklable, without credentials.

    Attributes
    ----------
    place : Location
    durable : bool
        Files survive a power failure.

    Examples
    --------
    >>> from daskcluster.storage.location import locate
    >>> scratch = Scratch(locate("memory://scratch-example"))
    >>> scratch.write("pairs", 7, np.arange(3))
    >>> scratch.read("pairs", 7)[0].tolist(), scratch.finished("pairs")
    ([0, 1, 2], frozenset({7}))
    """

    place: Location
    durable: bool = False

    @property
    def visibility(self) -> Visibility:
        """The processes that can read and write there."""
        return self.place.visibility

    def write(self, kind: str, number: int, *arrays: np.ndarray) -> None:
        """Write arrays to file `number` of a kind."""
        table = json.dumps([[array.dtype.str, list(array.shape)] for array in arrays]).encode()
        parts: list[Any] = [len(table).to_bytes(_ALIGN, "little"), table]
        parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays]
        # One copy: the parts, each padded.
        content = b"".join(each for part in parts for each in (part, bytes(-len(part) % _ALIGN)))
        write_file(self.place, _name(kind, number), content, durable=self.durable)

    def read(self, kind: str, number: int) -> list[np.ndarray]:
        """Return the arrays of a file, which are read-only.

        Raises
        ------
        CheckpointError
            The file is gone or damaged.
        """
        name = _name(kind, number)
        content: Any = None
        try:
            if self.place.is_local:  # of files on disk, only what is used is read
                with suppress(FileNotFoundError), open(f"{self.place.url}/{name}", "rb") as file:
                    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            else:
                content = read_file(self.place, name)
            if content is not None:
                return list(_arrays(memoryview(content)))
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"The file {name} in {self.place.url!r} is damaged; start again without resume."
            ) from error
        raise CheckpointError(
            f"The file {name} is missing from {self.place.url!r}; was the folder cleaned up? Start again "
            "without resume."
        )

    def finished(self, kind: str) -> frozenset[int]:
        """Return the numbers of the files of a kind."""
        names = list_names(self.place.child(kind))
        return frozenset(int(name[:-5]) for name in names if name[:-5].isdecimal())


def _name(kind: str, number: int) -> str:
    return f"{kind}/{number:09d}.rows"


def _arrays(content: memoryview) -> Iterator[np.ndarray]:
    size = int.from_bytes(content[:_ALIGN], "little")
    at = _ALIGN + size + -size % _ALIGN
    for kind, shape in json.loads(bytes(content[_ALIGN : _ALIGN + size])):
        dtype, count = np.dtype(kind), math.prod(shape)
        yield np.frombuffer(content, dtype, count, at).reshape(shape)
        at += dtype.itemsize * count + -dtype.itemsize * count % _ALIGN


ROWS, INDEX = "rows", "index"
"""Kinds of files on scratch: rows of a block with their numbers; what is known of all rows."""

BUCKET_BYTES = 32 << 20
_COMPARED_ROWS = 4096

Piece = tuple[np.ndarray, np.ndarray]
"""Numbers (m,) and values (m, d) of rows."""


@dataclass(frozen=True)
class SortedRows:
    """The places of all rows after sorting.

    Attributes
    ----------
    cells, sizes : ndarray of shape (b,), int64
        Cell and number of rows of each block.
    leaders : ndarray of shape (n,), int64
        The first row that equals each row: itself for rows that are in a block.
    places : ndarray of shape (n,), int64
        Block and position, ``block * block_rows + position``; -1 for rows that equal an earlier one.
    distances : ndarray of shape (n,), float64
        To the centre of the cell.
    """

    cells: np.ndarray
    sizes: np.ndarray
    leaders: np.ndarray
    places: np.ndarray
    distances: np.ndarray


class _Writer:
    """Receives rows in sorted order, and writes blocks of those that equal no earlier one."""

    def __init__(self, described: np.ndarray, scratch: Scratch, block_rows: int) -> None:
        self.described, self.scratch, self.block_rows = described, scratch, block_rows
        self.leaders, self.places = np.arange(len(described)), np.full(len(described), -1)
        self.table: list[tuple[int, int]] = []
        self._pending: Piece | None = None
        self._last: Piece | None = None
        counts = np.bincount(described["cell"])
        # Blocks of a cell have about the same number of rows.
        blocks = np.maximum(1, -(-counts // self.block_rows))
        self._most = np.maximum(1, -(-counts // blocks))

    def add(self, numbers: np.ndarray, values: np.ndarray) -> None:
        """Add rows (m, d) with these numbers; they follow all earlier ones in the order."""
        earlier = 0 if self._last is None else len(self._last[0])
        if self._last is not None:
            numbers = np.concatenate([self._last[0], numbers])
            values = np.concatenate([self._last[1], values])
        known = self.described[numbers]
        alike = np.zeros(len(numbers), bool)
        alike[1:] = known[1:] == known[:-1]
        leaders = np.maximum.accumulate(np.where(alike, 0, np.arange(len(numbers))))
        which = np.flatnonzero(alike)
        equal = np.empty(len(which), bool)
        for first in range(0, len(which), _COMPARED_ROWS):
            part = which[first : first + _COMPARED_ROWS]
            same = values[part] == values[leaders[part]]
            equal[first : first + _COMPARED_ROWS] = same.all(axis=1)
        alike[which[~equal]] = False  # other values with the same hash
        self.leaders[numbers[which[equal]]] = numbers[leaders[which[equal]]]
        last = leaders[-1:]
        self._last = numbers[last], values[last].copy()
        kept = np.flatnonzero(~alike[earlier:]) + earlier
        self._extend(numbers[kept], values[kept])

    def _extend(self, numbers: np.ndarray, values: np.ndarray) -> None:
        if self._pending is not None:
            numbers = np.concatenate([self._pending[0], numbers])
            values = np.concatenate([self._pending[1], values])
        start = 0
        while start < len(numbers):
            cell = int(self.described["cell"][numbers[start]])
            stop = start + int(self._most[cell])
            same = self.described["cell"][numbers[start:stop]] == cell
            if same.all() and stop > len(numbers):
                break  # more rows of the cell may follow
            stop = start + int(same.sum())
            self._write(cell, numbers[start:stop], values[start:stop])
            start = stop
        self._pending = numbers[start:].copy(), values[start:].copy()

    def _write(self, cell: int, numbers: np.ndarray, values: np.ndarray) -> None:
        block = len(self.table)
        self.scratch.write(ROWS, block, np.ascontiguousarray(values), numbers)
        self.places[numbers] = block * self.block_rows + np.arange(len(numbers))
        self.table.append((cell, len(numbers)))

    def found(self) -> SortedRows:
        """Return where the rows are, after the last block is written."""
        if self._pending is not None and len(self._pending[0]):
            numbers, values = self._pending
            self._write(int(self.described["cell"][numbers[0]]), numbers, values)
        cells, sizes = np.array(self.table, np.int64).reshape(-1, 2).T
        return SortedRows(
            cells.copy(), sizes.copy(), self.leaders, self.places,
            np.ascontiguousarray(self.described["distance"]),
        )  # fmt: skip


def sort_rows(
    dataset: Dataset,
    described: np.ndarray,
    scratch: Scratch,
    *,
    block_rows: int,
    folder: str,
    callbacks: Sequence[Callback] = (),
    kept: CheckpointFolder | None = None,
) -> tuple[SortedRows, int]:
    """Write the rows to `scratch`, cell by cell, by the distance to the centre; return the bytes read, too.

    Parameters
    ----------
    dataset : Dataset
    described : ndarray of shape (n,), `daskcluster.methods.duplicates.chunkwise.DESCRIBED`
    scratch : Scratch
    block_rows : int
        Most rows of a block.
    folder : str
        Local folder for rows on their way.
    callbacks : sequence of callables
    kept : CheckpointFolder, optional
        Folder in which rows on their way stay for a later process, and where those of an earlier one are.

    Notes
    -----
    Cost: one pass; rows that are not in memory are written to local files and read back once on the way.
    Memory: a bucket of 32 MB or more, a few pieces of 8 MB and blocks, and 48 bytes a row.
    """
    # Stable: of equal rows, the first one leads.
    order = np.lexsort((described["hash"], described["distance"], described["cell"]))
    writer = _Writer(described, scratch, block_rows)
    with one_pass("sort", dataset.n_rows, callbacks) as running:
        if dataset.in_memory:
            pieces = _taken(dataset, order)
        else:
            pieces = _scattered(dataset, order, folder, running.read, kept)
        for numbers, values in pieces:
            writer.add(numbers, values)
            running.advance(len(numbers))
        found = writer.found()
    return found, running.bytes_read


def bucket_rows(dataset: Dataset) -> int:
    """Return the number of rows that are sorted at a time."""
    row = dataset.n_features * row_dtype(dataset.dtype).itemsize + 8
    # A block for each bucket has to fit as well, hence the root.
    least = math.isqrt(dataset.n_rows * row * LEAST_BLOCK_BYTES)
    return max(1, max(BUCKET_BYTES, least) // row)


def _taken(dataset: Dataset, order: np.ndarray) -> Iterator[Piece]:
    dtype = row_dtype(dataset.dtype)
    step = _piece_rows(dataset.n_features * dtype.itemsize)
    for first in range(0, len(order), step):
        numbers = order[first : first + step]
        yield numbers, dataset.take(numbers).astype(dtype, copy=False)


def _scattered(
    dataset: Dataset,
    order: np.ndarray,
    folder: str,
    on_read: Callable[[int], None],
    kept: CheckpointFolder | None,
) -> Iterator[Piece]:
    step, dtype = bucket_rows(dataset), row_dtype(dataset.dtype)
    record = np.dtype([("row", np.int64), ("values", dtype, (dataset.n_features,))])
    n_buckets, part = -(-len(order) // step), _piece_rows(record.itemsize)
    home = np.empty(len(order), np.min_scalar_type(max(1, n_buckets - 1)))
    home[order] = np.arange(len(order)) // step
    held = min(MOST_BLOCK_BYTES, BUCKET_BYTES // n_buckets)
    sizes: dict[str, Any] = {"n_buckets": n_buckets, "block_rows": max(1, held // record.itemsize)}
    sizes |= {"folder": folder} if kept is None else {"folder": kept.url, "kept": "rows"}
    with Buckets(record, **sizes) as buckets:
        scattered = ScatteredRows(kept, buckets)
        for chunk in dataset.chunks(scattered.left(dataset), on_read=on_read):
            for first in range(0, chunk.n_rows, part):
                piece = chunk.slice(first, min(first + part, chunk.n_rows))
                records = np.empty(piece.n_rows, record)
                records["row"] = np.arange(piece.start, piece.stop)
                records["values"] = piece.rows
                buckets.append(records, home[piece.start : piece.stop])
                scattered.keep(piece.stop)
        scattered.end(len(order))
        for bucket in range(n_buckets):
            records = buckets.load(bucket)
            numbers = order[bucket * step : (bucket + 1) * step]
            # A bucket has its rows in the order of the dataset.
            at = np.searchsorted(records["row"], numbers)
            for first in range(0, len(numbers), part):
                here = slice(first, first + part)
                yield numbers[here], records["values"][at[here]]
            del records  # before the next one is read


def _piece_rows(row_bytes: int) -> int:
    """Return how many rows are copied at a time."""
    return max(1, READ_BYTES // row_bytes)


BLOCKS, CENTRES, PAIRS = "blocks", "centres", "pairs"
"""Kinds of files on scratch: prepared blocks, the centres, the pairs of a task."""

_SLICE_ROWS = 512
_MOST_INTEGER = 2.0**29
_MOST_FEATURES = 30_000
"""With more, sums of products of levels might overflow."""


@dataclass(frozen=True)
class PairSearch:
    """The parameters that all tasks of a search share; small and picklable.

    Attributes
    ----------
    scratch : Scratch
    rule : Rule
    forest : bool
        Pairs need only connect the same rows as all pairs do.
    """

    scratch: Scratch
    rule: Rule
    forest: bool

    def cells(self) -> Cells:
        """Return the cells; they are read once in each process."""
        place = self.scratch.place
        return open_once((CENTRES, place.url), lambda: Cells.of(*self.scratch.read(CENTRES, 0)))


@dataclass(frozen=True)
class Side:
    """A block in a comparison, which is read as far as it is needed.

    Attributes
    ----------
    scratch : Scratch
    number, cell : int
    """

    scratch: Scratch
    number: int
    cell: int

    @cached_property
    def block(self) -> Block:
        """The prepared block."""
        return Block(*self.scratch.read(BLOCKS, self.number))

    @cached_property
    def stored(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows as they are stored, (n, d), and their numbers."""
        rows, numbers = self.scratch.read(ROWS, self.number)
        return rows, numbers

    @cached_property
    def as_rows(self) -> BlockLevels:
        """Levels of the rows."""
        block = self.block
        return BlockLevels.of(block.heads, block.levels, block.described[7:], bias())


class Gap(NamedTuple):
    """Bounds of the distances between rows of two blocks, by their cells.

    Attributes
    ----------
    between : float
        Distance of their centres.
    half : float
        Half of the largest squared distance of close rows and of that of the centres.
    error : float
        What half of squared distances may be off by.
    slack : float
        Sum of the distances to the bisector of two close rows, at most; in one cell, the difference of
        their distances to its centre.
    own, same : bool
        The two are in one cell; they are one block.
    """

    between: float
    half: float
    error: float
    slack: float
    own: bool
    same: bool


def _meeting(a: Side, b: Side, between: float, rule: Rule) -> tuple[Meeting, float]:
    """Return the rows of `a` and points of `b` to compare, and the largest of the first limits and terms.

    The limits are of the products u.v of rows and points that reach each other's cells: a pair is a
    candidate if ``scale * (levels . levels) >= limits[row] - firsts[point]``, with the bounds of heads and
    with those of all features.
    """
    (i, to_b), (j, to_a) = a.block.reaching(b.cell), b.block.reaching(a.cell)
    ours, theirs = a.block.numbers, b.block.numbers
    error = float(ours[2] + theirs[2])
    half = 0.5 * (between * between + rule.radius * rule.radius * ROUNDING)
    slack = 1e-5 * max(float(ours[4]), float(theirs[4])) + rule.radius
    own, same = a.cell == b.cell, a is b
    if not own and between > 0.0:
        # Keys err by the rounding of squared distances, and of lengths that are rounded up.
        lengths = float(ours[4] + theirs[4])
        slack = (2.0 * error + 1e-5 * lengths * lengths) / between + rule.radius * ROUNDING
    windows = np.empty((2, len(i)), np.int64)
    limits, firsts = np.empty((2, len(i))), np.empty((2, len(j)))
    n, m, most = meet(
        (i, to_b, a.block.described), (j, to_a, b.block.described),
        Gap(between, half, error, slack, own, same), windows, limits, firsts,
    )  # fmt: skip
    # Those with the largest keys may meet nothing.
    scales = float(ours[0] * theirs[0]), float(ours[1] * theirs[1])
    return Meeting((i[:n], j[:m]), windows, limits, firsts, scales, same), most


def _candidates(a: Side, b: Side, between: float, rule: Rule) -> Iterator[np.ndarray]:
    """Yield candidates as pairs (m, 2) of positions in `Meeting.which`, and these rows and points."""
    meeting, most = _meeting(a, b, between, rule)
    rows, points = meeting.which
    if not len(rows):
        return
    is_small = most < _MOST_INTEGER * meeting.scales[0]
    found = _by_products(a.block, b.block, meeting)
    if integer_tile()[1] and is_small and a.block.levels.shape[1] < _MOST_FEATURES:
        its = BlockLevels.of(b.block.heads, b.block.levels, b.block.described[7:], 0)
        found = integer_candidates(a.as_rows, its, meeting)
    for pairs in found:
        if len(pairs):
            yield np.stack([rows[pairs[:, 0]], points[pairs[:, 1]]], axis=1)


def _by_products(a: Block, b: Block, meeting: Meeting) -> Iterator[np.ndarray]:
    # Bounds of all features in float32: sums of products of levels err by their number, relatively.
    sides = zip((a, b), meeting.which, strict=True)
    ours, theirs = (side.levels[which].astype(np.float32) for side, which in sides)
    lengths = [math.sqrt(float(np.square(each).sum(axis=1).max())) for each in (ours, theirs)]
    slack = ours.shape[1] * 2.0**-22 * lengths[0] * lengths[1]
    scale, limits = meeting.scales[1], meeting.limits[1, : len(ours)]
    firsts = meeting.firsts[1, : len(theirs)]
    for first in range(0, len(ours), _SLICE_ROWS):
        part = slice(first, first + _SLICE_ROWS)
        bounds = scale * ((ours[part] @ theirs.T).astype(np.float64) + slack) + firsts
        pairs = np.argwhere(bounds >= limits[part, None]).astype(np.int32)
        pairs[:, 0] += first
        yield pairs[pairs[:, 1] < pairs[:, 0]] if meeting.triangular else pairs


def close_pairs(a: Side, b: Side, between: float, rule: Rule, *, forest: bool) -> np.ndarray:
    """Return the pairs of a row of `a` and a row of `b` that are near-duplicates, int64 (m, 2).

    Parameters
    ----------
    a, b : Side
        If they are the same object, each pair is returned once.
    between : float
        Distance of the centres of their cells.
    rule : Rule
    forest : bool
        Return at most ``n_a + n_b`` pairs that connect the same rows.

    Notes
    -----
    Cost: an integer product for each pair of rows that reach each other's cells, and the values of the
    candidates. Memory: about four times the rows of the two blocks.
    """
    found = [np.empty((0, 2), np.int64)]
    if not (a.block.reach[b.cell] and b.block.reach[a.cell]):
        return found[0]
    base = 0 if a is b else a.block.n_rows
    parent = np.arange(base + b.block.n_rows)
    for pairs in _candidates(a, b, between, rule):
        if forest:
            pairs = pairs[unconnected(parent, pairs, base)]
        rows, i = computed_list(a.stored[0], pairs[:, 0])
        points, j = computed_list(b.stored[0], pairs[:, 1])
        values = verify(
            rows, points, np.stack([i, j], axis=1).astype(np.int32),
            cosine=rule.cosine, threshold=rule.threshold,
        )  # fmt: skip
        close = pairs[~np.isnan(values)].astype(np.int64)
        found.append(close[unconnected(parent, close, base, connect=True)] if forest else close)
    return np.concatenate(found)


# -- tasks: each reads blocks from scratch, and writes its result there -------------------------------


def prepare(
    search: PairSearch, number: int, cell: int, *, finished: bool
) -> tuple[np.ndarray, float, float]:
    """Prepare a block, unless an earlier run has.

    Returns
    -------
    gaps : ndarray of shape (k,), float32
        See `daskcluster.methods.duplicates.chunkwise.least_gaps`.
    least, most : float
        Distances to the own centre.
    """
    side = Side(search.scratch, number, cell)
    if finished:
        block = side.block
    else:
        block = prepare_block(side.stored[0], cell, search.cells(), search.rule)
        search.scratch.write(BLOCKS, number, *vars(block).values())
    gaps = least_gaps(block, cell, search.cells()).astype(np.float32)
    return gaps, float(block.numbers[3]), float(block.numbers[4])


@dataclass(frozen=True)
class Unit:
    """A block, and some of the blocks that it meets.

    Attributes
    ----------
    block, cell : int
    others : ndarray of shape (m, 2), int64
        Number and cell of each other block; the first may be the block itself.
    """

    block: int
    cell: int
    others: np.ndarray


def find_pairs(search: PairSearch, number: int, unit: Unit) -> int:
    """Write the pairs of rows of a unit to scratch, (m, 2) int64; return how many there are."""
    side = Side(search.scratch, unit.block, unit.cell)
    between, found = search.cells().between(unit.cell), [np.empty((0, 2), np.int64)]
    for other, cell in unit.others.tolist():
        its = side if other == unit.block else Side(search.scratch, other, cell)
        pairs = close_pairs(side, its, float(between[cell]), search.rule, forest=search.forest)
        if len(pairs):
            ours, theirs = side.stored[1], its.stored[1]
            found.append(np.stack([ours[pairs[:, 0]], theirs[pairs[:, 1]]], axis=1))
    pairs = np.concatenate(found)
    search.scratch.write(PAIRS, number, pairs)
    return len(pairs)


def measure(
    search: PairSearch, block: int, positions: np.ndarray, others: np.ndarray
) -> np.ndarray:
    """Return the similarity or distance of rows of a block to one other row each, float64 (m,).

    Parameters
    ----------
    search : PairSearch
    block : int
    positions : ndarray of shape (m,), int64
        Positions of the rows in the block.
    others : ndarray of shape (m, 2), int64
        Block of the other row, and its position there.
    """
    found = np.empty(len(positions))
    far = -2.0 if search.rule.cosine else np.inf  # all pairs, however far
    for other in np.unique(others[:, 0]).tolist():
        which = np.flatnonzero(others[:, 0] == other)
        (rows, i), (points, j) = (
            computed_list(search.scratch.read(ROWS, number)[0], listed[which])
            for number, listed in ((block, positions), (other, others[:, 1]))
        )
        pairs = np.stack([i, j], axis=1).astype(np.int32)
        found[which] = verify(rows, points, pairs, cosine=search.rule.cosine, threshold=far)
    return found


_MOST_CELLS, _MOST_BLOCK_ROWS, _LEAST_BLOCK_ROWS = 4096, 8192, 64
_BLOCK_BYTES = 24 << 20
_SAMPLE = 64
"""Rows of the sample for each cell."""
_TASK_BYTES = 48 << 20
"""Candidates, bounds of a block, and squared distances to all centres of a slice of it."""
_DRIVER_ROW_BYTES = 112
"""Per row in the driver, at most: cell, distance, hash, order and place while rows are sorted; group, kept
row and similarity afterwards."""


@dataclass(frozen=True, kw_only=True)
class DuplicatesPlan(WorkPlan):
    """Plan of a search. The pairs do not depend on it.

    Attributes
    ----------
    n_cells : int
        Centres of cells, about a third of the root of the number of rows.
    sample_rows : int
        Rows whose k-means the centres are.
    block_rows : int
        Most rows of a block.
    bytes_sorted, bytes_scratch : int
        Bytes of rows on their way through local files, and of the blocks on scratch.
    """

    what: ClassVar[str] = "The search takes"

    n_cells: int
    sample_rows: int
    block_rows: int
    bytes_sorted: int
    bytes_scratch: int

    @classmethod
    def of(cls, dataset: Dataset) -> DuplicatesPlan:
        """Plan the search of a dataset.

        Examples
        --------
        >>> import numpy as np
        >>> from daskcluster.data.open import open_source
        >>> plan = DuplicatesPlan.of(open_source(np.zeros((1_000_000, 8), np.float16)))
        >>> plan.n_cells, plan.block_rows
        (333, 8192)
        """
        n, d = dataset.n_rows, dataset.n_features
        item, stored = compute_dtype(dataset.dtype).itemsize, row_dtype(dataset.dtype).itemsize
        cells = max(1, min(_MOST_CELLS, math.isqrt(n) // 3))
        block = max(_LEAST_BLOCK_ROWS, min(_MOST_BLOCK_ROWS, _BLOCK_BYTES // (d * item)))
        sample = min(n, _SAMPLE * cells)
        bucket = bucket_rows(dataset) * (d * stored + 8)
        # The sample as stored and computed, and matrices of features; or rows on their way to blocks.
        centres = sample * d * (stored + 2 * item) + min(sample, MOST_ROWS) * d * item + 32 * d * d
        sorting = 2 * bucket + 4 * (max(READ_BYTES, d * stored) + block * d * stored)
        driver = BASELINE_BYTES + reading_bytes(dataset, d * stored) + max(centres, sorting)
        # Rows as stored and computed, levels, and all cells, which rows reach at most.
        alone = d * (stored + 6 * item + 2) + 96 * cells
        # One block has its levels a second time, as rows of products.
        pair = 2 * (d * (2 * stored + item + 4) + (8 + item) * cells + 64)
        return cls(
            **cls.of_passes(dataset, 3),
            n_cells=cells,
            sample_rows=sample,
            block_rows=block,
            bytes_sorted=n * (d * stored + 8),
            bytes_scratch=n * (d * (stored + 1) + 60 + 12 * min(cells, 32)),
            memory_driver=driver + _DRIVER_ROW_BYTES * n,
            memory_task=block * max(alone, pair) + _TASK_BYTES,
        )

    def lines(self) -> list[tuple[str, str]]:
        """Return what is specific to the search as lines of text."""
        scratch = format_bytes(self.bytes_scratch + self.bytes_sorted)
        cells = f"{self.n_cells:,}, blocks of at most {self.block_rows:,} rows"
        return [("cells", cells), ("scratch", scratch)]


_ITERATIONS = 5
"""Iterations of k-means: better centres rule out more pairs, but change none."""
_UNIT_ROWS = 1 << 17
"""Rows of the blocks that one task compares a block with, at most: a task takes seconds."""
KIND = "near-duplicates"


class DuplicateSearch:
    """A search for all pairs of near-duplicates.

    Parameters
    ----------
    work : Work
    rule : Rule
    forest : bool
        Pairs need only connect the same rows as all pairs do.
    """

    def __init__(self, work: Work, rule: Rule, forest: bool) -> None:
        self.work, self.rule, self.forest = work, rule, forest

    @contextmanager
    def on_scratch(self, folder: str, name: str = "") -> Iterator[None]:
        """Sort rows into blocks, in the folder of a checkpoint or a temporary one below `folder`.

        An earlier run that has a checkpoint is resumed, with the rows that it has left in `folder` on their
        way, under `name`. The folder is removed at the end of the block; that of a checkpoint stays if the
        block raises.
        """
        checkpoint = self.work.stored
        with threadpool_limits(1, user_api="blas"):
            if checkpoint is not None:
                self._resume(checkpoint, folder, name)
                yield
                checkpoint.clear()
                return
            given: dict[str, Any] = {"prefix": "daskcluster-duplicates-", "dir": folder}
            with tempfile.TemporaryDirectory(**given, ignore_cleanup_errors=True) as below:
                self._begin(Scratch(locate(below)), folder)
                yield

    def _resume(self, checkpoint: CheckpointFolder, folder: str, name: str) -> None:
        state = self.work.state()
        if state is None:
            shutil.rmtree(scratch_of(folder, name), ignore_errors=True)
            body: dict[str, Any] = {"attached": {"blocks": checkpoint.new_attachment("blocks")}}
            # Its files show how far the search has come.
            state = Document(KIND, body, {})
            checkpoint.commit(state)
        scratch = Scratch(checkpoint.attachment(state.body["attached"]["blocks"]), durable=True)
        if scratch.finished(INDEX):
            self._use(scratch)
            self.sorted = SortedRows(*scratch.read(INDEX, 0))
        else:
            self._begin(scratch, folder, name)

    def _use(self, scratch: Scratch) -> None:
        if not self.work.engine.can_read(scratch):
            raise DataNotReachableError(
                f"The workers cannot reach the scratch folder {scratch.place.url!r}; give checkpoint= a "
                "URL that all of them can read and write, such as s3://bucket/scratch."
            )
        self.search = PairSearch(scratch, self.rule, self.forest)

    def _begin(self, scratch: Scratch, folder: str, name: str = "") -> None:
        self._use(scratch)
        if not scratch.finished(CENTRES):
            scratch.write(CENTRES, 0, *self._centres())
        centres = scratch.read(CENTRES, 0)[0]
        described = self.work.results(describe_rows, centres, PreparedCentres, DESCRIBED, "cells")
        facts = {"blocks": scratch.place.url, "daskcluster": __version__}
        keeps = scratch.durable and not self.work.rows.in_memory
        with kept_scratch(folder, name, facts, kept=keeps) as kept:
            self.sorted, n_bytes = sort_rows(
                self.work.rows, described, scratch,
                block_rows=self.work.plan.block_rows, folder=folder, callbacks=self.work.callbacks,
                kept=kept,
            )  # fmt: skip
            self.work.passes += 1
            self.work.bytes_read += n_bytes
            scratch.write(INDEX, 0, *vars(self.sorted).values())

    def _centres(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the centres of the cells, k-means of a sample of rows, and axes."""
        dataset, plan, key = self.work.rows, self.work.plan, Key(self.work.seed, "near-duplicates")
        drawn = np.sort(draw_rows(dataset, plan.sample_rows, key, fewer=True))
        rows = Chunk(dataset.take(drawn), normalize=dataset.normalize)
        self.work.passes += 1
        parameters = CellParameters("random", 1, _ITERATIONS, 0.0, self.work.seed)
        k, engine = min(plan.n_cells, len(drawn)), home_engine(self.work.engine)
        centres = fit_centres(engine, rows, k, key, parameters)
        return centres, choose_axes(np.asarray(rows.computed()), centres, self.rule)

    # -- pairs ------------------------------------------------------------------------------------

    def pairs(self) -> np.ndarray:
        """Return the pairs of near-duplicates among rows that equal no earlier row, int64 (m, 2)."""
        finished, cells = self.search.scratch.finished(BLOCKS), self.sorted.cells.tolist()
        blocks = [
            partial(prepare, self.search, number, cell, finished=number in finished)
            for number, cell in enumerate(cells)
        ]
        units = self._units(self._run("blocks", blocks, self.sorted.sizes.tolist()))
        finished = self.search.scratch.finished(PAIRS)
        tasks = [
            partial(find_pairs, self.search, number, unit) for number, unit in enumerate(units)
        ]
        self._run("pairs", tasks, [self._work(unit) for unit in units], finished)
        parts = [self.search.scratch.read(PAIRS, number)[0] for number in range(len(units))]
        return np.concatenate([np.empty((0, 2), np.int64), *parts])

    def _units(self, reaches: list[Any]) -> list[Unit]:
        """Return the blocks that have to meet, the most work first."""
        cells = self.sorted.cells
        gaps, least, most = (np.array(each) for each in zip(*reaches, strict=True))
        units = []
        for block, cell in enumerate(cells.tolist()):
            # The distances of two rows to the bisector add up to no more than that between them.
            radius = self.rule.radius * ROUNDING  # gaps are rounded to float32
            meets = gaps[block, cells] + gaps[:, cell] <= radius
            far = (least > most[block] + radius) | (most < least[block] - radius)
            meets &= ~((cells == cell) & far)
            meets[:block] = False
            others = np.flatnonzero(meets)
            turns = np.cumsum(self.sorted.sizes[others]) // _UNIT_ROWS
            for part in np.split(others, np.flatnonzero(np.diff(turns)) + 1):
                units.append(Unit(block, cell, np.stack([part, cells[part]], axis=1)))
        return sorted(units, key=self._work, reverse=True)

    def _work(self, unit: Unit) -> int:
        """Return how many pairs of rows the blocks of a unit have."""
        sizes = self.sorted.sizes
        return int(sizes[unit.block] * sizes[unit.others[:, 0]].sum())

    def measured(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the similarity or distance of pairs of rows, float64 (m,)."""
        at = self.sorted.leaders[rows], self.sorted.leaders[others]
        places = [np.divmod(self.sorted.places[each], self.work.plan.block_rows) for each in at]
        found = np.full(len(rows), 1.0 if self.rule.cosine else 0.0)
        differ = np.flatnonzero(at[0] != at[1])
        order = differ[np.argsort(places[0][0][differ], kind="stable")]
        blocks = places[0][0][order]
        parts = [part for part in np.split(order, np.flatnonzero(np.diff(blocks)) + 1) if len(part)]
        tasks = [
            partial(
                measure, self.search, int(places[0][0][part[0]]), places[0][1][part],
                np.stack([each[part] for each in places[1]], axis=1),
            )
            for part in parts
        ]  # fmt: skip
        values = self._run("kept rows", tasks, [len(part) for part in parts])
        for part, value in zip(parts, values, strict=True):
            found[part] = value
        return found

    def _run(
        self,
        name: str,
        tasks: Sequence[Callable[[], Any]],
        costs: Sequence[Any],
        finished: frozenset[int] = frozenset(),
    ) -> list[Any]:
        """Run tasks but those that are finished; progress counts rows, by their cost."""
        n, found = self.work.rows.n_rows, []
        shares = np.cumsum(np.asarray(costs, np.float64)) if len(costs) else np.ones(1)
        rows = np.diff(np.floor(shares / max(1.0, shares[-1]) * n), prepend=0.0).astype(np.int64)
        left = [number for number in range(len(tasks)) if number not in finished]
        with one_pass(name, n, self.work.callbacks) as running:
            running.advance(n - int(rows[left].sum()) if len(tasks) else n)
            for number, value in zip(
                left, self.work.engine.run_ahead([tasks[number] for number in left]), strict=True
            ):
                found.append(value)
                running.advance(int(rows[number]))
        return found
