"""Covariance matrices, Mahalanobis distances, and sums of products of features.

A row is whitened for each cluster, in float64: ``W (x - mean)`` with the inverse Cholesky factor W of the
covariance. Differences come first, so no digits are lost far from the origin. If all clusters share one, a
row is whitened once, from an origin amid the means, and compared with the whitened means.
Cost: d (d + 1) / 2 multiplications per distance or, with one factor, per row.

Matrices are factorised by plain loops in a fixed order, without BLAS or LAPACK, so that results do not
depend on the CPU or on the number of threads. The elements of a triangle are packed by columns of its lower
half: (0, 0), (1, 0), ..., (d - 1, 0), (1, 1), ..., the order of ``numpy.triu_indices``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir

from daskcluster.kernels import emit
from daskcluster.kernels.jit import kernel
from daskcluster.kernels.sum_grid import split
from daskcluster.methods.mixture.kernels.candidates import BLOCK, SLOT_BITS


@emit.vector_intrinsic(literals="vectors width")
def listed_mahalanobis(  # type: ignore[no-untyped-def]
    builder, block, centres, factors, listed, first, count, d, gaps, out, vectors, width
):
    """Store squared Mahalanobis distances of a packed block to listed clusters.

    ``out[j * block + r] = |W (x_r - c)|^2`` for j < count, where c is the row ``listed[first + j]`` of
    `centres`, and W the factor of that number in `factors`. `gaps` is float64 scratch of d blocks. Each
    sum is one FMA chain in feature order, so the result does not depend on the CPU.
    """
    many, wide = vectors, width
    kind, numbers = block.type.pointee, builder.gep(listed, [first])
    size, full = emit.bits(kind) // 8, ir.VectorType(emit.F64, wide)
    run, one = ir.Constant(emit.I64, many * wide), ir.Constant(emit.I64, 1)
    stride = builder.lshr(builder.mul(d, builder.add(d, one)), one)
    zeros = [emit.zeros(emit.F64, wide)] * many

    def widened(value: Any) -> Any:
        return value if kind == emit.F64 else builder.fpext(value, full)

    def vectors_at(base: Any, start: Any, kind: Any, align: int) -> list[Any]:
        place = builder.gep(base, [start])
        return [
            emit.load(builder, emit.step(builder, place, v * wide), kind, wide, align)
            for v in range(many)
        ]

    def cluster(j: Any, _: list[Any]) -> list[Any]:
        c = builder.sext(builder.load(builder.gep(numbers, [j])), emit.I64)
        mean = builder.gep(centres, [builder.mul(c, d)])
        factor = builder.gep(factors, [builder.mul(c, stride)])

        def difference(t: Any, _: list[Any]) -> list[Any]:
            centre = builder.load(builder.gep(mean, [t]), align=size)
            centre, start = widened(emit.splat(builder, centre, wide)), builder.mul(t, run)
            for v, row in enumerate(vectors_at(block, start, kind, size)):
                place = emit.step(builder, builder.gep(gaps, [start]), v * wide)
                emit.store(builder, builder.fsub(widened(row), centre), place, 8)
            return []

        def feature(t: Any, totals: list[Any]) -> list[Any]:
            def term(s: Any, held: list[Any]) -> list[Any]:
                weight = builder.load(builder.gep(factor, [held[0]]), align=8)
                weight = emit.splat(builder, weight, wide)
                gap = vectors_at(gaps, builder.mul(s, run), emit.F64, 8)
                grown = [
                    emit.fma(builder, weight, g, part)
                    for g, part in zip(gap, held[1:], strict=True)
                ]
                # From element (t, s) to (t, s + 1).
                further = builder.sub(builder.sub(d, s), one)
                return [builder.add(held[0], further), *grown]

            _, *parts = emit.loop(builder, builder.add(t, one), 1, [t, *zeros], term)
            return [
                emit.fma(builder, part, part, total)
                for part, total in zip(parts, totals, strict=True)
            ]

        emit.loop(builder, d, 1, [], difference)
        totals = emit.loop(builder, d, 1, zeros, feature)
        place = builder.gep(out, [builder.mul(j, run)])
        for v, total in enumerate(totals):
            if kind != emit.F64:
                total = builder.fptrunc(total, ir.VectorType(kind, wide))
            emit.store(builder, total, emit.step(builder, place, v * wide), size)
        return []

    emit.loop(builder, count, 1, [], cluster)


@kernel
def pair_mahalanobis(  # type: ignore[no-untyped-def]
    x, taken, d, means, factors, pairs, n_pairs, gaps, out
):
    """Store squared Mahalanobis distances for pairs of a row and a cluster; see `pair_distances`."""
    stride = d * (d + 1) // 2
    for p in range(n_pairs):
        slot, c = pairs[p] >> SLOT_BITS, pairs[p] & ((1 << SLOT_BITS) - 1)
        row, mean, total = taken[slot % BLOCK] * d, c * d, 0.0
        for t in range(d):
            gaps[t] = np.float64(x[row + t]) - np.float64(means[mean + t])
        for t in range(d):
            at, part = c * stride + t, 0.0
            for s in range(t + 1):
                part += factors[at] * gaps[s]
                at += d - 1 - s
            total += part * part
        out[slot] = total


@kernel
def whiten_block(x, taken, d, origin, factor, gaps, out):  # type: ignore[no-untyped-def]
    """Whiten the rows of a block; OUT: out (d * block,), feature after feature.

    `gaps` is float64 scratch of d blocks.
    """
    for r in range(BLOCK):
        row = taken[r] * d
        for t in range(d):
            gaps[t * BLOCK + r] = np.float64(x[row + t]) - origin[t]
    out[: d * BLOCK] = 0.0
    place = 0
    for s in range(d):
        for t in range(s, d):
            weight = factor[place]
            for r in range(BLOCK):
                out[t * BLOCK + r] += weight * gaps[s * BLOCK + r]
            place += 1


@kernel
def pair_whitened(white, d, origin_and_means, pairs, n_pairs, out):  # type: ignore[no-untyped-def]
    """Store squared distances of whitened rows for pairs of a row and a cluster."""
    for p in range(n_pairs):
        slot, c = pairs[p] >> SLOT_BITS, pairs[p] & ((1 << SLOT_BITS) - 1)
        r, mean, total = slot % BLOCK, (c + 1) * d, 0.0
        for t in range(d):
            gap = white[t * BLOCK + r] - origin_and_means[mean + t]
            total += gap * gap
        out[slot] = total


@kernel
def add_products(x, row_at, w, means, mean_at, d, shifts, low_shifts, high, low, at, gaps):  # type: ignore[no-untyped-def]
    """Add the products ``w (x_s - mean_s) (x_t - mean_t)``, s <= t, to packed sums from `at` on."""
    for t in range(d):
        gaps[t] = np.float64(x[row_at + t]) - np.float64(means[mean_at + t])
    place = 0
    for s in range(d):
        mine = w * gaps[s]
        for t in range(s, d):
            value, rest = split(mine * gaps[t], shifts[place], low_shifts[place])
            high[at + place] += value
            low[at + place] += rest
            place += 1


_SWEEPS = 60
"""Maximum sweeps of Jacobi's method; it needs about ten."""


@kernel
def factorise(matrices, shift, lower):  # type: ignore[no-untyped-def]
    """Factorise ``matrices[j] - shift * I`` for all j; OUT: lower (n, d, d), the Cholesky factors.

    Returns the first j whose matrix is not positive definite, or n if all are.
    """
    n, d = matrices.shape[0], matrices.shape[1]
    lower[:] = 0.0
    for j in range(n):
        for t in range(d):
            for s in range(t + 1):
                left = matrices[j, t, s] - (shift if s == t else 0.0)
                for i in range(s):
                    left -= lower[j, t, i] * lower[j, s, i]
                if s < t:
                    lower[j, t, s] = left / lower[j, s, s]
                elif left > 0.0:
                    lower[j, t, t] = math.sqrt(left)
                else:
                    return j
    return n


@kernel
def invert_factors(lower, packed):  # type: ignore[no-untyped-def]
    """OUT: packed (n, d (d + 1) / 2), the inverses of Cholesky factors, which whiten rows."""
    n, d = lower.shape[0], lower.shape[1]
    column = np.empty(d)
    for j in range(n):
        at = 0
        for s in range(d):
            for t in range(s, d):
                left = 1.0 if s == t else 0.0
                for i in range(s, t):
                    left -= lower[j, t, i] * column[i]
                column[t] = left / lower[j, t, t]
                packed[j, at] = column[t]
                at += 1


@kernel
def whiten_means(means, origin, packed, found):  # type: ignore[no-untyped-def]
    """OUT: found (k, d), the whitened differences of the means (k, d) from `origin`."""
    k, d = means.shape
    found[:] = 0.0
    for c in range(k):
        place = 0
        for s in range(d):
            gap = np.float64(means[c, s]) - origin[s]
            for t in range(s, d):
                found[c, t] += packed[place] * gap
                place += 1


@kernel
def multiply_out(packed, d, found):  # type: ignore[no-untyped-def]
    """OUT: found (n, d, d), the precisions ``W^T W`` of packed whitening matrices W."""
    for j in range(packed.shape[0]):
        for s in range(d):
            for t in range(s, d):
                total = 0.0
                for i in range(t, d):
                    of_s, of_t = s * d - s * (s - 1) // 2 - s, t * d - t * (t - 1) // 2 - t
                    total += packed[j, of_s + i] * packed[j, of_t + i]
                found[j, s, t] = total
                found[j, t, s] = total


@kernel
def raise_eigenvalues(matrix, floor):  # type: ignore[no-untyped-def]
    """Raise eigenvalues of a symmetric matrix to `floor`, by cyclic Jacobi rotations. IN/OUT: matrix."""
    d = matrix.shape[0]
    a, v = matrix.copy(), np.eye(d)
    for _ in range(_SWEEPS):
        rotated = False
        for p in range(d - 1):
            for q in range(p + 1, d):
                small = np.abs(a[p, q])
                if small == 0.0 or small < 1e-17 * math.sqrt(np.abs(a[p, p] * a[q, q])):
                    continue
                rotated = True
                theta = (a[q, q] - a[p, p]) / (2.0 * a[p, q])
                tangent = 1.0 / (np.abs(theta) + math.sqrt(theta * theta + 1.0))
                tangent = tangent if theta >= 0.0 else -tangent
                cosine = 1.0 / math.sqrt(tangent * tangent + 1.0)
                sine = tangent * cosine
                for i in range(d):
                    left, right = a[i, p], a[i, q]
                    a[i, p], a[i, q] = cosine * left - sine * right, sine * left + cosine * right
                for i in range(d):
                    left, right = a[p, i], a[q, i]
                    a[p, i], a[q, i] = cosine * left - sine * right, sine * left + cosine * right
                a[p, q] = a[q, p] = 0.0
                for i in range(d):
                    left, right = v[i, p], v[i, q]
                    v[i, p], v[i, q] = cosine * left - sine * right, sine * left + cosine * right
        if not rotated:
            break
    for s in range(d):
        for t in range(s, d):
            total = 0.0
            for i in range(d):
                total += v[s, i] * max(a[i, i], floor) * v[t, i]
            matrix[s, t] = total
            matrix[t, s] = total
