"""Nearest centres of CSR rows. The canonical score is one chain of FMAs, in column order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from daskcluster.kernels import emit
from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel, tile_name
from daskcluster.kernels.panels import fill_panels, vector_width

_PREFETCH_DISTANCE = 16
"""Prefetch distance in entries; the best one measured."""
_LINE = 64

_Entry = tuple[Any, Any]
"""Scores and numbers of centres, as vectors or as scalars."""


def _insert(builder: Any, kept: list[_Entry], entry: _Entry, *, in_order: bool) -> None:
    """Insert an entry into `kept`, best first; among equal scores, the lowest number is better.

    With `in_order`, the number is larger than all numbers in `kept`. NaN is never inserted.
    """
    wins = None
    for rank, old in enumerate(kept):
        better = builder.fcmp_ordered(">", entry[0], old[0])
        if not in_order:
            tie = builder.fcmp_ordered("==", entry[0], old[0])
            lower = builder.icmp_signed("<", entry[1], old[1])
            better = builder.or_(better, builder.and_(tie, lower))
        # A displaced entry stays ahead of the next in rank.
        wins = better if wins is None else builder.or_(wins, better)
        pairs = list(zip(entry, old, strict=True))
        score, number = (builder.select(wins, new, was) for new, was in pairs)
        kept[rank] = (score, number)
        score, number = (builder.select(wins, was, new) for new, was in pairs)
        entry = (score, number)


def _best_of_lanes(builder: Any, kept: list[_Entry]) -> list[_Entry]:
    """Merge the lanes of winners, halves onto halves, into scalars."""
    while (lanes := kept[0][0].type.count) > 1:
        low, high = (
            [
                tuple(
                    emit.shuffle(builder, part, part, range(first, first + lanes // 2))
                    for part in e
                )
                for e in kept
            ]
            for first in (0, lanes // 2)
        )
        for score, number in high:
            _insert(builder, low, (score, number), in_order=False)
        kept = [(score, number) for score, number in low]
    zero = ir.Constant(emit.I32, 0)
    return [(builder.extract_element(a, zero), builder.extract_element(b, zero)) for a, b in kept]


@emit.vector_intrinsic
def score_entries(
    typingctx: Any,
    data: Any,
    indices: Any,
    first: Any,
    stop: Any,
    panel: Any,
    panel_at: Any,
    number: Any,
    best: Any,
    index: Any,
    at: Any,
    vectors: Any,
    width: Any,
    keep: Any,
    entries: Any,
) -> Any:
    """Score centres, numbered from `number`, for the row of entries `first` to `stop`.

    The panel from `panel_at` on holds the first terms of ``vectors * width`` centres, then their
    coordinates, feature by feature. ``best[at:at + keep]`` and ``index[at:at + keep]``, the row's winners
    among lower centres, best first, are updated. `entries` is the number of entries of all rows: the kernel
    prefetches the centres' features for the next ones.
    """
    if not emit.literals(vectors, width, keep):
        return None
    lanes, count = width.literal_value, vectors.literal_value
    signature = types.void(
        data, indices, types.intp, types.intp, panel, types.intp, types.int32, best, index,
        types.intp, vectors, width, keep, types.intp,
    )  # fmt: skip

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = emit.element(data)
        align = emit.bits(kind) // 8
        values = emit.pointer(context, builder, data, args[0], args[2])
        columns = emit.pointer(context, builder, indices, args[1], args[2])
        start = emit.pointer(context, builder, panel, args[4], args[5])
        coordinates = emit.step(builder, start, count * lanes)
        stride = ir.Constant(emit.I64, count * lanes)
        left = builder.sub(args[13], builder.add(args[2], ir.Constant(emit.I64, 1)))

        def vectors_at(place: Any) -> list[Any]:
            places = [emit.step(builder, place, v * lanes) for v in range(count)]
            return [emit.load(builder, place, kind, lanes, align) for place in places]

        def column(s: Any) -> Any:
            number = builder.sext(builder.load(builder.gep(columns, [s])), emit.I64)
            return builder.gep(coordinates, [builder.mul(number, stride)])

        def fetch(s: Any) -> None:
            # Columns are far apart, so no CPU predicts the next one; the next entries name it.
            prefetch = builder.add(s, ir.Constant(emit.I64, _PREFETCH_DISTANCE))
            prefetch = builder.select(builder.icmp_signed("<", prefetch, left), prefetch, left)
            place = column(prefetch)
            for line in range(0, count * lanes * align, _LINE):
                emit.prefetch(builder, emit.step(builder, place, line // align))

        def entry(s: Any, sums: list[Any]) -> list[Any]:
            fetch(s)
            value = emit.splat(builder, builder.load(builder.gep(values, [s])), lanes)
            centres = vectors_at(column(s))
            return [
                emit.fma(builder, value, centre, total)
                for centre, total in zip(centres, sums, strict=True)
            ]

        scores = emit.loop(builder, builder.sub(args[3], args[2]), 1, vectors_at(start), entry)
        base = emit.splat(builder, args[6], lanes)
        wide = scores[0].type
        nothing = ir.Constant(wide, [float("-inf")] * lanes), ir.Constant(base.type, [-1] * lanes)
        kept: list[_Entry] = [nothing] * keep.literal_value
        for v, score in enumerate(scores):
            lane_numbers = ir.Constant(base.type, list(range(v * lanes, (v + 1) * lanes)))
            _insert(builder, kept, (score, builder.add(base, lane_numbers)), in_order=True)
        _update(
            builder,
            emit.pointer(context, builder, best, args[7], args[9]),
            emit.pointer(context, builder, index, args[8], args[9]),
            _best_of_lanes(builder, kept),
        )
        return context.get_dummy_value()

    return signature, codegen


def _update(builder: Any, best: Any, index: Any, found: list[_Entry]) -> None:
    """Insert the found entries into the sorted winners in memory."""
    places = [
        (emit.step(builder, best, r), emit.step(builder, index, r)) for r in range(len(found))
    ]
    kept: list[_Entry] = [(builder.load(score), builder.load(number)) for score, number in places]
    for entry in found:
        _insert(builder, kept, entry, in_order=True)
    for (score, number), (score_place, number_place) in zip(kept, places, strict=True):
        builder.store(score, score_place)
        builder.store(number, number_place)


_VECTORS = (8, 6, 4, 3, 2, 1)
"""Possible numbers of vectors per panel; eight sums hide the latency of an FMA, and fit any CPU."""
_PANEL_COST = 2.0
"""Cost of reading a row once more, in vectors."""
_ROWS = 256
"""Rows scored against one panel at a time, while their common features are in the cache."""


@dataclass(frozen=True)
class SparsePanels:
    """Centres packed for CSR rows, in this process.

    Attributes
    ----------
    data : ndarray of shape (n_panels, (d + 1) * height)
        A panel is the `height` terms -|c|^2 / 2, then `height` coordinates for each feature. Lanes
        beyond k have the first term -inf, which never wins.
    norms : ndarray of shape (k,), float64
        |c|^2, added up in feature order.
    k, d : int
    vectors, width : int
        A panel's height is their product.
    """

    data: np.ndarray
    norms: np.ndarray
    k: int
    d: int
    vectors: int
    width: int

    @property
    def height(self) -> int:
        return self.vectors * self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype


def pack_sparse(centres: np.ndarray, room: np.ndarray | None = None) -> SparsePanels:
    """Pack centres for the kernels of CSR rows.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    room : ndarray, optional
        OUT. Memory to reuse: ``data`` of earlier panels with the same number of centres.

    Returns
    -------
    SparsePanels
        With about k (d + 1) elements, k rounded up to whole vectors.
    """
    centres = np.ascontiguousarray(centres)
    k, d = centres.shape
    width = vector_width(centres.dtype, tile_name())
    needed = -(-k // width)
    vectors = min(_VECTORS, key=lambda v: -(-needed // v) * (v + _PANEL_COST))
    height = vectors * width
    data = _at_line(-(-k // height), (d + 1) * height, centres.dtype) if room is None else room
    norms = fill_panels(centres, np.zeros(d, centres.dtype), data, height)
    return SparsePanels(data, norms, k, d, vectors, width)


def _at_line(rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return uninitialised memory aligned to a cache line, so that no vector straddles two lines."""
    room = np.empty(rows * columns + _LINE // dtype.itemsize, dtype)
    skip = -room.ctypes.data % _LINE // dtype.itemsize
    return room[skip : skip + rows * columns].reshape(rows, columns)


def squared_norms(centres: np.ndarray) -> np.ndarray:
    """Return |c|^2 of every centre, float64, summed in feature order."""
    out = np.empty(len(centres))
    _square(read_only(np.ascontiguousarray(centres)), out)
    return out


@kernel
def _square(centres, out):  # type: ignore[no-untyped-def]
    for j in range(centres.shape[0]):
        total = 0.0
        for t in range(centres.shape[1]):
            c = np.float64(centres[j, t])
            total += c * c
        out[j] = total


@cache
def sparse_search_kernel(vectors: int, width: int, keep: int) -> Any:
    """Build the search of CSR rows that keeps the `keep` best.

    The kernel is ``search(data, indices, indptr, listed, panels, labels, second, scores)``, for all rows if
    none is listed. OUT: labels (n,), and with keep = 2 second (n,) and, unless empty, scores (n, 2).
    """
    return _build(vectors, width, keep)


def _build(vectors: int, width: int, keep: int) -> Any:
    height = vectors * width

    def search(data, indices, indptr, listed, panels, labels, second, scores):  # type: ignore[no-untyped-def]
        n, origin = labels.shape[0], indptr[0]
        flat, stride = panels.reshape(panels.size), panels.shape[1]
        best = np.empty(_ROWS * keep, panels.dtype)
        index = np.empty(_ROWS * keep, np.int32)
        for start in range(0, n, _ROWS):
            stop = min(start + _ROWS, n)
            best[:] = -np.inf
            index[:] = -1
            for p in range(panels.shape[0]):
                for r in range(start, stop):
                    i = listed[r] if listed.shape[0] else r
                    score_entries(
                        data, indices, indptr[i] - origin, indptr[i + 1] - origin,
                        flat, p * stride, np.int32(p * height), best, index, (r - start) * keep,
                        vectors, width, keep, data.shape[0],
                    )  # fmt: skip
            for i in range(start, stop):
                at = (i - start) * keep
                labels[i] = max(index[at], 0)  # NaN rows have no winner: centre 0
                if keep == 2:
                    second[i] = index[at + 1]
                    if scores.shape[0]:
                        scores[i, 0], scores[i, 1] = best[at], best[at + 1]

    return kernel(search)


_NO_LABELS, _ALL = np.empty(0, np.int32), np.empty(0, np.int64)


def nearest_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    panels: SparsePanels,
    labels: np.ndarray,
    listed: np.ndarray | None = None,
) -> None:
    """Label every row, or every listed row, with its nearest centre.

    Parameters
    ----------
    data : ndarray of shape (m,), dtype of the panels
        Stored values, row after row.
    indices : ndarray of shape (m,), int32
        Their columns, strictly ascending within a row and below d: not checked.
    indptr : ndarray of shape (n + 1,), int64
        Row i has the values ``indptr[i] - indptr[0]`` to ``indptr[i + 1] - indptr[0]``.
    panels : SparsePanels
    labels : ndarray of shape (n,), int32
        OUT. The same as `daskcluster.kernels.tile.nearest` for the dense rows with an offset of zero.
    listed : ndarray of shape (n,), int64, optional
        Indices of the rows to label: not checked.

    Examples
    --------
    >>> import numpy as np
    >>> panels, labels = pack_sparse(np.array([[0.0, 0.0], [3.0, 1.0]])), np.empty(3, np.int32)
    >>> indices, indptr = np.array([0, 0, 1], np.int32), np.array([0, 1, 3, 3])
    >>> nearest_sparse(np.array([1.0, 2.0, 1.0]), indices, indptr, panels, labels)
    >>> labels
    array([0, 1, 0], dtype=int32)
    """
    search = sparse_search_kernel(panels.vectors, panels.width, 1)
    scores = np.empty((0, 2), panels.dtype)
    rows = (read_only(data), read_only(indices), read_only(indptr))
    listed = _ALL if listed is None else listed
    search(*rows, listed, read_only(panels.data), labels, _NO_LABELS, scores)


def nearest_two_sparse(
    data: np.ndarray,
    indices: np.ndarray,
    indptr: np.ndarray,
    panels: SparsePanels,
    labels: np.ndarray,
    second: np.ndarray,
    scores: np.ndarray | None = None,
    listed: np.ndarray | None = None,
) -> None:
    """Label every row, or every listed row, with its nearest and its second nearest centre.

    Parameters
    ----------
    data, indices, indptr, panels, labels, listed
        As in `nearest_sparse`.
    second : ndarray of shape (n,), int32
        OUT. The runner-up, lowest index on ties; -1 where there is none (k = 1).
    scores : ndarray of shape (n, 2), dtype of the panels, optional
        OUT. The scores x.c - |c|^2 / 2 of both, -inf for no runner-up.
    """
    search = sparse_search_kernel(panels.vectors, panels.width, 2)
    out = np.empty((0, 2), panels.dtype) if scores is None else scores
    rows = (read_only(data), read_only(indices), read_only(indptr))
    listed = _ALL if listed is None else listed
    search(*rows, listed, read_only(panels.data), labels, second, out)
