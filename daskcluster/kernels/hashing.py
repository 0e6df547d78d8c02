"""Hashes of strings, to find equal ones among many in 8 bytes each."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel, read_only

_START, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@kernel
def _hash(content, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        value = _START
        for at in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(content[at])) * _PRIME
        value = (value ^ (value >> _SHIFT)) * _MIX
        out[i] = value ^ (value >> _SHIFT)


def hash_strings(content: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return a hash of each string, uint64 (n,): FNV-1a (Fowler, Noll and Vo), mixed once more.

    Parameters
    ----------
    content : ndarray of uint8
        The bytes of all strings.
    offsets : ndarray of int64, shape (n + 1,)
        Where each begins, and the end of the last.

    Examples
    --------
    >>> found = hash_strings(np.frombuffer(b"abab", np.uint8), np.array([0, 2, 4]))
    >>> bool(found[0] == found[1])
    True
    """
    out = np.empty(len(offsets) - 1, np.uint64)
    _hash(read_only(content), read_only(offsets.astype(np.int64, copy=False)), out)
    return out
