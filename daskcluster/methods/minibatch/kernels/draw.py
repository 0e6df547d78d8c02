"""Rows drawn without replacement, as many as are wanted: a shuffle that stops where it is asked to."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.arrays import read_only
from daskcluster.kernels.jit import kernel


@kernel
def _shuffle_next(order, first, uniforms):  # type: ignore[no-untyped-def]
    n = order.shape[0]
    for s in range(uniforms.shape[0]):
        i = first + s
        # A uniform number has 53 bits: its product with what is left may round up to all of it.
        j = min(i + np.int64(uniforms[s] * (n - i)), n - 1)
        order[i], order[j] = order[j], order[i]


def shuffle_next(order: np.ndarray, first: int, uniforms: np.ndarray) -> None:
    """Draw the next rows of a random permutation (Fisher and Yates), from the front on.

    Parameters
    ----------
    order : ndarray of shape (n,), int64
        IN/OUT. Rows; those before `first` are drawn already. ``order[first:first + m]`` will be `m` of
        the others, each order of them equally likely.
    first : int
    uniforms : ndarray of shape (m,), float64
        Numbers in [0, 1), with m at most n - first.

    Examples
    --------
    >>> import numpy as np
    >>> order = np.arange(4)
    >>> shuffle_next(order, 0, np.array([0.5, 0.0]))
    >>> order
    array([2, 1, 0, 3])
    """
    _shuffle_next(order, first, read_only(uniforms))
