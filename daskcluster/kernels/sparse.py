"""CSR rows: checks, data statistics, exact sums, nearest centres and distances.

In `CsrRows`: `data` (m,), `indices` (m,) int32, `indptr` (n + 1,) int64; row i has the values
``indptr[i] - indptr[0]`` to ``indptr[i + 1] - indptr[0]``. Values that are not stored are zero, and do not
change a sum on a grid. The canonical score is one chain of FMAs, in column order.

With S the stored columns of a row, |x - c|^2 is the sum over S of (x - c)^2, plus the part of |c|^2 outside
of S, which is |c|^2 minus its part in S. Both parts are summed in feature order, in float64. Since no term
can lower such a sum, rounded or not, the difference is never negative, and it is exactly zero if the row
stores all non-zeros of the centre; so a row is at distance zero from itself. The error is below 2 (m + 2) u
|c|^2 for m non-zeros of the centre and u = 2^-53. This is not the small relative error of direct
differences, but it avoids the cancellation of |x|^2 - 2 x.c + |c|^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.jit import aligned_zeros, kernel, read_only, tile_name
from daskcluster.kernels.panels import fill_panels, vector_width
from daskcluster.kernels.register_tile import Winner, insert_winner
from daskcluster.kernels.sum_grid import rounded


class CsrRows(NamedTuple):
    """The arrays of CSR rows, read only."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray


@kernel
def _raise_largest(data, indices, max_abs):  # type: ignore[no-untyped-def]
    for s in range(data.shape[0]):
        value = abs(np.float64(data[s]))
        if value > max_abs[indices[s]]:
            max_abs[indices[s]] = value


@kernel
def _first_fault(indices, indptr, d):  # type: ignore[no-untyped-def]
    disordered = -1
    for i in range(indptr.shape[0] - 1):
        last = -1
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            t = indices[s]
            if t < 0 or t >= d:
                return i, np.int64(t), disordered
            if t <= last and disordered < 0:
                disordered = i
            last = t
    return -1, -1, disordered


def raise_max_abs(rows: CsrRows, max_abs: np.ndarray) -> tuple[int, bool]:
    """Update `max_abs`, and find NaN and infinity, as `daskcluster.kernels.data_statistics` does.

    Examples
    --------
    >>> import numpy as np
    >>> rows = CsrRows(np.array([1.0, np.inf]), np.array([0, 0], np.int32), np.array([0, 1, 1, 2]))
    >>> raise_max_abs(rows, np.zeros(1))
    (2, False)
    """
    # One reduction suffices for data without bad values, the usual case.
    if rows.data.size and not np.isfinite(np.abs(rows.data).max()):
        starts, bad = rows.indptr - rows.indptr[0], int(np.isfinite(rows.data).argmin())
        row = int(np.searchsorted(starts, bad, side="right")) - 1
        return row, bool(np.isnan(rows.data[starts[row] : starts[row + 1]]).any())
    _raise_largest(rows.data, rows.indices, max_abs)
    return -1, False


def first_fault(indices: np.ndarray, indptr: np.ndarray, d: int) -> tuple[int, int, int]:
    """Find columns that are out of range or out of order.

    Parameters
    ----------
    indices : ndarray of shape (m,), any integers
    indptr : ndarray of shape (n + 1,), int64
    d : int

    Returns
    -------
    row, column : int
        The first row with a column outside 0 to d - 1, and that column; -1 if there is none.
    disordered : int
        The first row (before that one) whose columns do not ascend strictly; -1 if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> first_fault(np.array([0, 2, 1, 1]), np.array([0, 2, 4]), 3)
    (-1, -1, 1)
    >>> first_fault(np.array([0, 3]), np.array([0, 2]), 3)
    (0, 3, -1)
    """
    row, column, disordered = _first_fault(read_only(indices), read_only(indptr), d)
    return int(row), int(column), int(disordered)


_PREFETCH_DISTANCE = 16
"""Prefetch distance in entries; the best one measured."""
_LINE = 64


def _best_of_lanes(builder: Any, kept: list[Winner]) -> list[Winner]:
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
            insert_winner(builder, low, (score, number), in_order=False)
        kept = [(score, number) for score, number in low]
    zero = ir.Constant(emit.I32, 0)
    return [(builder.extract_element(a, zero), builder.extract_element(b, zero)) for a, b in kept]


@emit.vector_intrinsic(literals="vectors width keep", int32="number")
def score_entries(  # type: ignore[no-untyped-def]
    builder,
    data,
    indices,
    first,
    stop,
    panel,
    panel_at,
    number,
    best,
    index,
    at,
    vectors,
    width,
    keep,
    entries,
):
    """Score centres, numbered from `number`, for the row of entries `first` to `stop`.

    The panel from `panel_at` on holds the first terms of ``vectors * width`` centres, then their
    coordinates, feature by feature. ``best[at:at + keep]`` and ``index[at:at + keep]``, the row's winners
    among lower centres, best first, are updated. `entries` is the number of entries of all rows: the kernel
    prefetches the centres' features for the next ones.
    """
    lanes, count, kind = width, vectors, data.type.pointee
    align = emit.bits(kind) // 8
    values, columns = builder.gep(data, [first]), builder.gep(indices, [first])
    start = builder.gep(panel, [panel_at])
    coordinates = emit.step(builder, start, count * lanes)
    stride = ir.Constant(emit.I64, count * lanes)
    left = builder.sub(entries, builder.add(first, ir.Constant(emit.I64, 1)))

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
        pairs = zip(vectors_at(column(s)), sums, strict=True)
        return [emit.fma(builder, value, centre, total) for centre, total in pairs]

    scores = emit.loop(builder, builder.sub(stop, first), 1, vectors_at(start), entry)
    base = emit.splat(builder, number, lanes)
    wide = scores[0].type
    nothing = ir.Constant(wide, [float("-inf")] * lanes), ir.Constant(base.type, [-1] * lanes)
    kept: list[Winner] = [nothing] * keep
    for v, score in enumerate(scores):
        lane_numbers = ir.Constant(base.type, list(range(v * lanes, (v + 1) * lanes)))
        insert_winner(builder, kept, (score, builder.add(base, lane_numbers)), in_order=True)
    found = _best_of_lanes(builder, kept)
    _update(builder, builder.gep(best, [at]), builder.gep(index, [at]), found)


def _update(builder: Any, best: Any, index: Any, found: list[Winner]) -> None:
    """Insert the found entries into the sorted winners in memory."""
    places = [
        (emit.step(builder, best, r), emit.step(builder, index, r)) for r in range(len(found))
    ]
    kept: list[Winner] = [(builder.load(score), builder.load(number)) for score, number in places]
    for entry in found:
        insert_winner(builder, kept, entry, in_order=True)
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
    size = -(-k // height), (d + 1) * height
    data = aligned_zeros(*size, dtype=centres.dtype) if room is None else room
    norms = fill_panels(centres, np.zeros(d, centres.dtype), data, height)
    return SparsePanels(data, norms, k, d, vectors, width)


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
    rows: CsrRows,
    panels: SparsePanels,
    labels: np.ndarray,
    second: np.ndarray | None = None,
    scores: np.ndarray | None = None,
    listed: np.ndarray = _ALL,
) -> None:
    """Label every row, or every listed row, with its nearest centre, or its nearest two.

    Parameters
    ----------
    rows : CsrRows
        Columns are strictly ascending within a row and below d: not checked.
    panels : SparsePanels
    labels, second, scores
        OUT. The same as `daskcluster.kernels.tile.nearest` for the dense rows with an offset of zero.
    listed : ndarray of shape (n,), int64, optional
        Indices of the rows to label: not checked.

    Examples
    --------
    >>> import numpy as np
    >>> panels, labels = pack_sparse(np.array([[0.0, 0.0], [3.0, 1.0]])), np.empty(3, np.int32)
    >>> indices, indptr = np.array([0, 0, 1], np.int32), np.array([0, 1, 3, 3])
    >>> nearest_sparse(CsrRows(np.array([1.0, 2.0, 1.0]), indices, indptr), panels, labels)
    >>> labels
    array([0, 1, 0], dtype=int32)
    """
    search = sparse_search_kernel(panels.vectors, panels.width, 1 if second is None else 2)
    more = (
        _NO_LABELS if second is None else second,
        np.empty((0, 2), panels.dtype) if scores is None else scores,
    )
    search(*rows, listed, read_only(panels.data), labels, *more)


@kernel
def row_distance(data, indices, first, stop, centre, norm):  # type: ignore[no-untyped-def]
    """Return the squared distance of a row's entries `first` to `stop` to a centre; norm is |c|^2."""
    near, inside = 0.0, 0.0
    for s in range(first, stop):
        c = np.float64(centre[indices[s]])
        gap = np.float64(data[s]) - c
        near += gap * gap
        inside += c * c
    return near + (norm - inside)


@kernel
def sqdist_to_assigned_sparse(data, indices, indptr, centres, norms, labels, out):  # type: ignore[no-untyped-def]
    """Compute the squared distance of every CSR row to the centre that it is assigned to.

    Parameters
    ----------
    data, indices, indptr : ndarray
        Those of `CsrRows`.
    centres : ndarray of shape (k, d), C-contiguous, float32 or float64, read-only
    norms : ndarray of shape (k,), float64
        From `squared_norms`.
    labels : ndarray of shape (n,), int32
        In ``[0, k)``: not checked.
    out : ndarray of shape (n,), float64
        OUT.

    Examples
    --------
    >>> import numpy as np
    >>> centres, out = np.array([[3.0, 4.0], [1.0, 0.0]]), np.empty(2)
    >>> rows = CsrRows(np.array([1.0]), np.array([0], np.int32), np.array([0, 1, 1]))
    >>> labels = np.array([1, 0], np.int32)
    >>> sqdist_to_assigned_sparse(*rows, read_only(centres), squared_norms(centres), labels, out)
    >>> out
    array([ 0., 25.])
    """
    for i in range(out.shape[0]):
        j, first, stop = labels[i], indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        out[i] = row_distance(data, indices, first, stop, centres[j], norms[j])


@kernel
def measure_sparse(data, indices, indptr, origin, norm, shift, sums, spread):  # type: ignore[no-untyped-def]
    """Compute squared distances to `origin`, and sum all CSR rows on a grid, in one sweep.

    Parameters
    ----------
    data, indices, indptr : ndarray
        Those of `CsrRows`.
    origin : ndarray of shape (d,), read-only
    norm : float
        |origin|^2, from `squared_norms`.
    shift : ndarray of shape (d,), float64, read-only
    sums : ndarray of shape (d,), float64
        IN/OUT.
    spread : ndarray of shape (n,), float64
        OUT.
    """
    for i in range(spread.shape[0]):
        first, stop = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        spread[i] = row_distance(data, indices, first, stop, origin, norm)
        for s in range(first, stop):
            t = indices[s]
            sums[t] += rounded(np.float64(data[s]), shift[t])


@kernel
def lower_sparse(data, indices, indptr, centre, norm, mind2):  # type: ignore[no-untyped-def]
    """Set squared minimum distances (n,), IN/OUT, to those to a new centre where it is nearer."""
    for i in range(mind2.shape[0]):
        first, stop = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        mind2[i] = min(mind2[i], row_distance(data, indices, first, stop, centre, norm))


@kernel
def _distances(data, indices, first, stop, flat, panel_at, norms, near, inside):  # type: ignore[no-untyped-def]
    # The sums of `row_distance`, for the centres of a panel in the lanes. OUT: near.
    height = near.shape[0]
    near[:] = 0.0
    inside[:] = 0.0
    for s in range(first, stop):
        x = np.float64(data[s])
        at = panel_at + (np.int64(indices[s]) + 1) * height
        centres = flat[at : at + height]
        for lane in range(height):
            c = np.float64(centres[lane])
            gap = x - c
            near[lane] += gap * gap
            inside[lane] += c * c
    for lane in range(norms.shape[0]):
        near[lane] += norms[lane] - inside[lane]


@kernel
def _every(data, indices, indptr, panels, height, norms, out):  # type: ignore[no-untyped-def]
    flat, stride, k = panels.reshape(panels.size), panels.shape[1], norms.shape[0]
    near, inside = np.empty(height), np.empty(height)
    for i in range(out.shape[0]):
        first, stop = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        for p in range(panels.shape[0]):
            low, high = p * height, min((p + 1) * height, k)
            part = norms[low:high]
            _distances(data, indices, first, stop, flat, p * stride, part, near, inside)
            for j in range(low, high):
                out[i, j] = near[j - low]


def sqdist_all_sparse(rows: CsrRows, panels: SparsePanels, out: np.ndarray) -> None:
    """Compute the squared distances of every row to all centres; same bits as `sqdist_to_assigned_sparse`.

    Parameters
    ----------
    rows : CsrRows
        CSR rows.
    panels : SparsePanels
    out : ndarray of shape (n, k), float64
        OUT.
    """
    _every(*rows, read_only(panels.data), panels.height, panels.norms, out)
