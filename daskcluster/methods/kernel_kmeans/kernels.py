"""Tile of Gram functions: weighted sums of values of a block of rows and a panel of points.

Products or distances, exponentials or powers, and the weighted sums are all computed in registers; values
of single pairs are never stored. The chain of a pair is in feature order, and sums are in the order of
the points, in float64, so that the sums of a row are the same on any CPU.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.exponential import exponential_of_number, exponentials
from daskcluster.kernels.jit import kernel, read_only, tile_name
from daskcluster.kernels.panels import fill_panels, vector_width
from daskcluster.kernels.register_tile import TileShape, broadcast, run_along
from daskcluster.kernels.row_block import aligned, first_row, lanes_of, pack_rows

SQUARE, ABSOLUTE, PRODUCT = 0, 1, 2
"""The term of each feature: (x - y)^2, |x - y|, x y."""

_VECTORS = 2
_TOGETHER = 4
"""Vectors whose exponentials or powers alternate; more would not stay in the registers of AVX2."""
_HEIGHTS = {"avx512": 8, "avx2": 4, "neon": 8, "portable": 4}


def gram_tile_for(dtype: np.dtype[Any]) -> TileShape:
    """Return the tile for this CPU: enough chains to hide the latency of an FMA."""
    name = tile_name()
    return TileShape(_HEIGHTS[name], _VECTORS, vector_width(dtype, name))


def _absolute(builder: Any, value: Any) -> Any:
    name = f"llvm.fabs.v{value.type.count}f{emit.bits(value.type.element)}"
    return emit.call(builder, name, value.type, [value])


def _square_term(builder: Any, row: Any, point: Any, total: Any) -> Any:
    gap = builder.fsub(row, point)
    return emit.fma(builder, gap, gap, total)


def _absolute_term(builder: Any, row: Any, point: Any, total: Any) -> Any:
    return builder.fadd(total, _absolute(builder, builder.fsub(row, point)))


_TERMS: dict[int, Any] = {SQUARE: _square_term, ABSOLUTE: _absolute_term, PRODUCT: emit.fma}


def _powers(builder: Any, bases: list[Any], degree: Any) -> list[Any]:
    def multiply(_: Any, values: list[Any]) -> list[Any]:
        return [builder.fmul(value, base) for value, base in zip(values, bases, strict=True)]

    times = builder.sub(degree, ir.Constant(emit.I64, 1))
    return emit.loop(builder, times, 1, bases, multiply)


@emit.vector_intrinsic(literals="term height vectors width")
def add_gram(  # type: ignore[no-untyped-def]
    builder,
    block,
    block_at,
    panel,
    panel_at,
    features,
    factors,
    places,
    first,
    sums,
    sums_at,
    scale,
    shift,
    degree,
    term,
    height,
    vectors,
    width,
):
    """Add Gram values of a block of rows and `height` points to the float64 sums of the points' groups.

    ``sums[sums_at + places[first + j] + r] += factors[first + j] * K(x_r, y_j)``, where K is
    ``exp(scale * total)``, or for products ``(scale * total + shift) ** degree``, and `total` is the sum of
    the terms of kind `term` over features. Coordinates start at ``panel[panel_at]``, `height` per feature.
    """
    tile = TileShape(height, vectors, width)
    kind, zero = block.type.pointee, emit.zeros(block.type.pointee, tile.width)
    rows, start = builder.gep(block, [block_at]), builder.gep(panel, [panel_at])
    totals = run_along(
        builder, start, rows, features, tile, [zero] * tile.height,
        partial(_TERMS[term], builder),
    )  # fmt: skip
    factor, place = builder.gep(factors, [first]), builder.gep(places, [first])
    target = builder.gep(sums, [sums_at])

    def narrow(value: Any) -> Any:
        value = value if kind == emit.F64 else builder.fptrunc(value, kind)
        return emit.splat(builder, value, tile.width)

    scales, shifts = narrow(scale), narrow(shift)

    def evaluate(some: list[Any]) -> list[Any]:
        if term != PRODUCT:
            return exponentials(builder, [builder.fmul(scales, total) for total in some])
        bases = [emit.fma(builder, scales, total, shifts) for total in some]
        return _powers(builder, bases, degree)

    wide = ir.VectorType(emit.F64, tile.width)
    pairs = [(j, v) for j in range(tile.height) for v in range(tile.vectors)]
    for first_pair in range(0, len(pairs), _TOGETHER):
        some = pairs[first_pair : first_pair + _TOGETHER]
        values = evaluate([totals[j][v] for j, v in some])
        for (j, v), value in zip(some, values, strict=True):
            weight = broadcast(builder, emit.step(builder, factor, j), tile.width, 8)
            group = builder.gep(target, [builder.load(emit.step(builder, place, j))])
            value = value if kind == emit.F64 else builder.fpext(value, wide)
            at = emit.step(builder, group, v * tile.width)
            before = emit.load(builder, at, emit.F64, tile.width, 64)
            emit.store(builder, emit.fma(builder, weight, value, before), at, 64)


_PACKED_BYTES = 512 << 10
"""Bytes of rows packed at a time, with their sums: they stay in L2 during the loop over panels."""

_SPARSE_LANES = 32
"""Points per panel for CSR rows: their sums fit in registers."""


def pack_points(points: np.ndarray) -> np.ndarray:
    """Pack points (m, d), float32 or float64, into panels for the tile of this process's CPU.

    Returns
    -------
    ndarray of shape (n_panels, (d + 1) * height)
        `height` unused numbers, then the coordinates of `height` points, feature by feature.
    """
    points = np.ascontiguousarray(points)
    m, d = points.shape
    height = gram_tile_for(points.dtype).height
    panels = np.empty((-(-m // height), (d + 1) * height), points.dtype)
    fill_panels(points, np.zeros(d, points.dtype), panels, height)
    return panels


@cache
def _dense_kernel(dtype: np.dtype[Any], term: int) -> Any:
    height, vectors, width = gram_tile_for(dtype)
    block, shape = vectors * width, (vectors, width, lanes_of(dtype))

    def add_all(rows, panels, factors, groups, function, blocks, out):  # type: ignore[no-untyped-def]
        # `blocks` row blocks are packed at once and compared with one panel after the other.
        (n, d), n_groups = rows.shape, out.shape[1]
        scale, shift, degree = function
        flat, panel, stride = rows.reshape(n * d), panels.reshape(panels.size), panels.shape[1]
        packed, origin = aligned(blocks * d * block, panels), np.zeros(d, panels.dtype)
        sums = aligned(blocks * n_groups * block, out)
        places = groups * np.int64(block)
        for start in range(0, n, blocks * block):
            here = min(blocks, -(-(n - start) // block))
            for b in range(here):
                first = first_row(start + b * block, block, n)
                pack_rows(flat, n, d, first, origin, packed, b * d * block, shape)
            sums[: here * n_groups * block] = 0.0
            for p in range(panels.shape[0]):
                for b in range(here):
                    add_gram(
                        packed, b * d * block, panel, p * stride + height, d, factors, places,
                        p * height, sums, b * n_groups * block, scale, shift, degree,
                        term, height, vectors, width,
                    )  # fmt: skip
            for b in range(here):
                first = first_row(start + b * block, block, n)
                for r in range(min(block, n)):
                    for g in range(n_groups):
                        out[first + r, g] = sums[(b * n_groups + g) * block + r]

    return kernel(add_all)


def gram_sums(
    X: np.ndarray,
    panels: np.ndarray,
    factors: np.ndarray,
    groups: np.ndarray,
    term: int,
    function: tuple[float, float, int],
    out: np.ndarray,
) -> None:
    """Compute weighted sums of Gram values for dense rows.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, dtype of the panels
    panels : ndarray
        The points, from `pack_points`.
    factors : ndarray of shape (m,), float64
        Weight of each point.
    groups : ndarray of shape (m,)
        Group of each point, in ``[0, n_groups)``; not checked.
    term : {SQUARE, ABSOLUTE, PRODUCT}
    function : (scale, shift, degree)
        K is ``exp(scale * total)``, scale <= 0, or for products ``(scale * total + shift) ** degree``.
    out : ndarray of shape (n, n_groups), float64
        OUT.

    Examples
    --------
    >>> import numpy as np
    >>> out, points = np.empty((2, 1)), pack_points(np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> rows, factors = np.array([[2.0, 3.0], [4.0, 5.0]]), np.array([10.0, 1.0])
    >>> gram_sums(rows, points, factors, np.zeros(2, int), PRODUCT, (1.0, 0.0, 1), out)
    >>> out.ravel()
    array([23., 45.])
    """
    tile = gram_tile_for(panels.dtype)
    room = len(panels) * tile.height
    padded = np.zeros(room), np.zeros(room, np.int64)
    for whole, part in zip(padded, (factors, groups), strict=True):
        whole[: len(part)] = part
    row_bytes = X.shape[1] * panels.itemsize + 8 * out.shape[1]
    blocks = max(1, _PACKED_BYTES // (tile.rows * row_bytes))
    add_all = _dense_kernel(panels.dtype, term)
    add_all(read_only(X), read_only(panels), *padded, function, blocks, out)


# -- CSR rows ---------------------------------------------------------------------------------------


@kernel
def _spread(data, indices, indptr, first, count, panel, norms):  # type: ignore[no-untyped-def]
    # OUT: panel (d, lanes), zero on entry; norms (2, lanes): |y|^2 and |y|_1.
    for lane in range(count):
        norms[0, lane] = norms[1, lane] = 0.0
        i = first + lane
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            y = np.float64(data[s])
            panel[indices[s], lane] = y
            norms[0, lane] += y * y
            norms[1, lane] += abs(y)


@kernel
def _clear(indices, indptr, first, count, panel):  # type: ignore[no-untyped-def]
    for lane in range(count):
        i = first + lane
        for s in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            panel[indices[s], lane] = 0.0


@kernel
def _total(data, indices, first, stop, panel, norms, term, totals):  # type: ignore[no-untyped-def]
    # OUT: totals (lanes,), of the row of entries `first` to `stop`.
    lanes, square = totals.shape[0], 0.0
    totals[:] = 0.0
    for s in range(first, stop):
        x, points = np.float64(data[s]), panel[indices[s]]
        square += x * x
        if term == ABSOLUTE:
            for lane in range(lanes):
                totals[lane] += abs(x - points[lane]) - abs(points[lane])
        else:
            for lane in range(lanes):
                totals[lane] += x * points[lane]
    for lane in range(lanes):
        if term == SQUARE:
            totals[lane] = max(0.0, (square + norms[0, lane]) - 2.0 * totals[lane])
        elif term == ABSOLUTE:
            totals[lane] = max(0.0, totals[lane] + norms[1, lane])


@kernel
def gram_sums_sparse(rows, points, factors, groups, term, function, d, out):  # type: ignore[no-untyped-def]
    """Compute weighted sums of Gram values for CSR rows and points (data, indices, indptr), read only.

    Arguments as in `gram_sums`. Memory: 256 bytes per feature.
    """
    data, indices, indptr = rows
    scale, shift, degree = function
    panel, norms = np.zeros((d, _SPARSE_LANES)), np.zeros((2, _SPARSE_LANES))
    totals = np.empty(_SPARSE_LANES)
    out[:] = 0.0
    m = points[2].shape[0] - 1
    for start in range(0, m, _SPARSE_LANES):
        count = min(_SPARSE_LANES, m - start)
        _spread(points[0], points[1], points[2], start, count, panel, norms)
        for i in range(out.shape[0]):
            first, stop = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
            _total(data, indices, first, stop, panel, norms, term, totals)
            for lane in range(count):
                if term == PRODUCT:
                    base = scale * totals[lane] + shift
                    value = base
                    for _ in range(1, degree):
                        value *= base
                else:
                    value = exponential_of_number(scale * totals[lane])
                out[i, groups[start + lane]] += factors[start + lane] * value
        _clear(points[1], points[2], start, count, panel)


# -- precomputed values -----------------------------------------------------------------------------


@kernel
def add_columns(values, columns, factors, groups, out):  # type: ignore[no-untyped-def]
    """Sum columns of a read-only matrix by group.

    ``out[i, groups[j]] += factors[j] * values[i, columns[j]]``; `columns` and `groups` are not checked.
    """
    out[:] = 0.0
    for i in range(out.shape[0] if len(columns) else 0):
        group, total = groups[0], 0.0  # in a register while the group stays the same
        for j in range(columns.shape[0]):
            if groups[j] != group:
                out[i, group] = total
                group, total = groups[j], out[i, groups[j]]
            total += factors[j] * np.float64(values[i, columns[j]])
        out[i, group] = total
