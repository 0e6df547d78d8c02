"""Small covariance matrices: Cholesky factors, whitening, precisions, and floors of their eigenvalues.

Plain loops in a fixed order, without BLAS or LAPACK, so that results do not depend on the CPU or on the
number of threads. The elements of a triangle are packed by columns of its lower half: (0, 0), (1, 0), ...,
(d - 1, 0), (1, 1), ..., the order of ``numpy.triu_indices``.
"""

from __future__ import annotations

import math

import numpy as np

from daskcluster.kernels.jit import kernel

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
