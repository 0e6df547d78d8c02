"""Centres in the plane, for the eye."""

from __future__ import annotations

import numpy as np

MOST_CENTRES = 4096
"""From how many of the heaviest centres the axes are found."""


def plane(centres: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project centres onto their two main axes (principal components, weighted).

    Parameters
    ----------
    centres : ndarray of shape (k, d)
    weights : ndarray of shape (k,)
        All zero stands for all one.

    Returns
    -------
    points : ndarray of shape (k, 2)
        An axis that is missing is zero. Of each axis the largest entry is positive.
    shares : ndarray of shape (2,)
        Of the variance between (the heaviest) centres.

    Examples
    --------
    >>> import numpy as np
    >>> points, shares = plane(np.array([[0.0, 0, 5], [0, 4, 5], [0, 8, 5]]), np.ones(3))
    >>> points[:, 0].tolist(), shares.tolist()
    ([-4.0, 0.0, 4.0], [1.0, 0.0])
    """
    masses = np.asarray(weights, np.float64)
    # In units of the largest: products of numbers near the end of float64 would overflow.
    masses = masses / masses.max() if masses.max() > 0 else np.ones(len(centres))
    unit = float(np.abs(centres).max()) or 1.0
    inside = np.asarray(centres, np.float64) / unit
    heaviest = np.sort(np.argsort(-masses, kind="stable")[:MOST_CENTRES])
    share = masses[heaviest] / masses[heaviest].sum()
    wide = inside[heaviest]
    middle = share @ wide
    axes, variances = _axes((wide - middle) * np.sqrt(share)[:, None])
    total = variances.sum()
    points = (inside - middle) @ axes.T * unit
    return points, variances[:2] / total if total > 0 else np.zeros(2)


def _axes(scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two directions (2, d), and all variances, largest first, at least two."""
    k, d = scaled.shape
    # The smaller of the two Gram matrices has the same eigenvalues.
    gram = scaled @ scaled.T if k < d else scaled.T @ scaled
    values, vectors = np.linalg.eigh(gram)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1][:, :2].T
    axes = np.zeros((2, d))
    for axis, vector, value in zip(axes, vectors, values, strict=False):
        if value <= 1e-14 * values[0] or value == 0.0:
            continue
        axis[:] = vector if k >= d else vector @ scaled / np.sqrt(value)
        axis *= np.sign(axis[np.argmax(np.abs(axis))])
    variances = np.zeros(max(2, len(values)))
    variances[: len(values)] = values
    return axes, variances
