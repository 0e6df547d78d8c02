"""Rows in the order of their labels: what is done cluster by cluster begins with this."""

from __future__ import annotations

import numpy as np

from daskcluster.kernels.jit import kernel


@kernel
def group_by_label(labels, order, starts):  # type: ignore[no-untyped-def]
    """List rows cluster by cluster, by counting.

    Parameters
    ----------
    labels : ndarray of shape (n,), int32
    order : ndarray of shape (n,), int64
        OUT. Rows, ascending within a cluster.
    starts : ndarray of shape (k + 1,), int64
        OUT. Cluster j has ``order[starts[j]:starts[j + 1]]``.

    Examples
    --------
    >>> import numpy as np
    >>> order, starts = np.empty(3, np.int64), np.empty(3, np.int64)
    >>> group_by_label(np.array([1, 0, 1], np.int32), order, starts)
    >>> order, starts
    (array([1, 0, 2]), array([0, 1, 3]))
    """
    # Unsigned indices spare the check for negative ones.
    starts[:] = 0
    for i in range(labels.shape[0]):
        starts[np.uint64(labels[i] + 1)] += 1
    for j in range(starts.shape[0] - 1):
        starts[j + 1] += starts[j]
    for i in range(labels.shape[0]):
        label = np.uint64(labels[i])
        at = starts[label]
        order[np.uint64(at)] = i
        starts[label] = at + 1
    # Every start has moved on to the next one.
    for j in range(starts.shape[0] - 1, 0, -1):
        starts[j] = starts[j - 1]
    starts[0] = 0
