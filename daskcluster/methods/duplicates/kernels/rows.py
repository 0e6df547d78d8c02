"""Compiled loops over rows: hashes, levels, exact measures of pairs, and which pairs connect rows."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel, read_only
from daskcluster.kernels.row_ops import squared_distance


def hash_rows(rows: np.ndarray, out: np.ndarray) -> None:
    """Compute 64 bits for each row; equal for equal rows, also of 0.0 and -0.0.

    Parameters
    ----------
    rows : ndarray of shape (n, d), C-contiguous, of a native dtype of at most 8 bytes
    out : ndarray of shape (n,), uint64
        OUT.

    Examples
    --------
    >>> out = np.empty(3, np.uint64)
    >>> hash_rows(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]), out)
    >>> bool(out[0] == out[1]), bool(out[0] == out[2])
    (True, False)
    """
    bits = rows.view(f"u{rows.itemsize}")
    sign = (1 << (8 * rows.itemsize - 1)) if rows.dtype.kind == "f" else 0
    _hash(read_only(bits), np.uint64(2**64 - 1 - sign), out)


@kernel
def _hash(bits, mask, out):  # type: ignore[no-untyped-def]
    # The finalizer of SplitMix64 (Steele, Lea, Flood, 2014) of each value and its column.
    for i in range(bits.shape[0]):
        total, step = np.uint64(0), np.uint64(0)
        for t in range(bits.shape[1]):
            step += np.uint64(0x9E3779B97F4A7C15)
            word = np.uint64(bits[i, t])
            is_there = np.uint64(1) if word & mask else np.uint64(0)
            word += step
            word ^= word >> np.uint64(30)
            word *= np.uint64(0xBF58476D1CE4E5B9)
            word ^= word >> np.uint64(27)
            word *= np.uint64(0x94D049BB133111EB)
            word ^= word >> np.uint64(31)
            total += is_there * word
        out[i] = total


@kernel
def quantize(about, step, most, levels, described):  # type: ignore[no-untyped-def]
    """Quantize rows: ``level = rint(x / step)``, clipped to ``[-most, most]``.

    OUT: levels (n, m >= d) int8; described (3, n): the length of the row, of the quantized row, and of what
    quantizing takes from it.
    """
    inverse = 1.0 / step
    for i in range(about.shape[0]):
        square, near, lost = 0.0, 0.0, 0.0
        for t in range(about.shape[1]):
            value = np.float64(about[i, t])
            level = min(max(np.rint(value * inverse), -most), most)
            gap = value - level * step
            levels[i, t] = np.int8(level)
            square += value * value
            near += level * level
            lost += gap * gap
        described[0, i] = np.sqrt(square)
        described[1, i] = step * np.sqrt(near)
        described[2, i] = np.sqrt(lost)


@kernel
def _root(parent, i):  # type: ignore[no-untyped-def]
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def _join(parent, pairs, base, joins, found):  # type: ignore[no-untyped-def]
    for m in range(pairs.shape[0]):
        first, second = _root(parent, pairs[m, 0]), _root(parent, base + pairs[m, 1])
        found[m] = first != second
        if joins:
            parent[max(first, second)] = min(first, second)


def unconnected(parent: np.ndarray, pairs: np.ndarray, base: int) -> np.ndarray:
    """Return which pairs (m, 2) a forest does not connect, bool (m,).

    Parameters
    ----------
    parent : ndarray of shape (n,), int64
        IN/OUT. Of each node; a root is its own. Paths become shorter.
    pairs : ndarray of shape (m, 2), int32 or int64
    base : int
        Node of the second entry 0 of a pair.
    """
    found = np.empty(len(pairs), bool)
    _join(parent, read_only(pairs.astype(np.int64)), base, False, found)
    return found


def connect(parent: np.ndarray, pairs: np.ndarray, base: int) -> np.ndarray:
    """Connect pairs in turn; return which of them were not connected before; see `unconnected`.

    Examples
    --------
    >>> connect(np.arange(3), np.array([[0, 1], [1, 2], [0, 2]]), 0).tolist()
    [True, True, False]
    """
    found = np.empty(len(pairs), bool)
    _join(parent, read_only(pairs.astype(np.int64)), base, True, found)
    return found


_LANES = 8


@kernel
def _cosine(a, i, b, j, d, sums):  # type: ignore[no-untyped-def]
    # Eight sums in turn, in one order on any machine.
    sums[:] = 0.0
    differs = False
    for t in range(d):
        x, y, lane = np.float64(a[i + t]), np.float64(b[j + t]), t & (_LANES - 1)
        sums[0, lane] += x * y
        sums[1, lane] += x * x
        sums[2, lane] += y * y
        differs |= x != y
    if not differs:
        return 1.0
    product, first, second = 0.0, 0.0, 0.0
    for lane in range(_LANES):
        product += sums[0, lane]
        first += sums[1, lane]
        second += sums[2, lane]
    length = np.sqrt(first) * np.sqrt(second)
    return min(product / length, 1.0) if length > 0.0 else 0.0


@kernel
def _verify(rows, points, pairs, cosine, threshold, values):  # type: ignore[no-untyped-def]
    d, sums = rows.shape[1], np.zeros((3, _LANES))
    a, b = rows.reshape(rows.size), points.reshape(points.size)
    for m in range(pairs.shape[0]):
        i, j = pairs[m, 0] * d, pairs[m, 1] * d
        if cosine:
            value = _cosine(a, i, b, j, d, sums)
            is_close = value >= threshold
        else:
            value = np.sqrt(squared_distance(a, i, b, j, d))
            is_close = value <= threshold
        values[m] = value if is_close else np.nan


def verify(
    rows: np.ndarray, points: np.ndarray, pairs: np.ndarray, *, cosine: bool, threshold: float
) -> np.ndarray:
    """Return the similarity or distance of pairs, float64 (m,); NaN for pairs beyond the threshold.

    It is a function of the values of the two rows alone, computed in float64 in one order: the same on any
    machine, and the same if the two are exchanged. Equal rows have the similarity 1.

    Parameters
    ----------
    rows, points : ndarray of shape (n, d), (p, d), C-contiguous, float32 or float64
    pairs : ndarray of shape (m, 2), int32
        A row and a point each.
    cosine : bool
    threshold : float
        Least similarity, or largest distance.

    Examples
    --------
    >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> pairs = np.array([[1, 0], [2, 0]], np.int32)
    >>> verify(x, x, pairs, cosine=True, threshold=0.9).round(3).tolist()
    [0.994, nan]
    """
    values = np.empty(len(pairs))
    _verify(
        read_only(rows), read_only(points), read_only(pairs), bool(cosine), float(threshold), values
    )
    return values


@kernel
def assign_keepers(starts, targets, order, keepers):  # type: ignore[no-untyped-def]
    """Keep each row in `order` that no kept row covers; OUT: keepers (n,): the kept row of each row, or -1.

    The rows close to row v are ``targets[starts[v]:starts[v + 1]]``.
    """
    keepers[:] = -1
    for v in order:
        if keepers[v] >= 0:
            continue
        keepers[v] = v
        for at in range(starts[v], starts[v + 1]):
            if keepers[targets[at]] < 0:
                keepers[targets[at]] = v
