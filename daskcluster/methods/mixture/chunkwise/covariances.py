"""Covariance matrices of components, (n, d, d): factors, precisions, floors, and packed sums of products.

There is a matrix per component, or one that all of them share (n = 1).
"""

from __future__ import annotations

import numpy as np

from daskcluster.errors import InvalidParameterError
from daskcluster.kernels.arrays import read_only
from daskcluster.methods.mixture.kernels.matrices import (
    factorise,
    invert_factors,
    multiply_out,
    raise_eigenvalues,
    whiten_means,
)

RESOLUTION = 2.0**-40
"""Minimum variance in any direction, relative to a component's own variances: what float64 resolves."""


def packed_size(d: int) -> int:
    """Return the number of elements of a packed triangle."""
    return d * (d + 1) // 2


def diagonals(matrices: np.ndarray) -> np.ndarray:
    """Return the diagonals of matrices (n, d, d), shape (n, d)."""
    return np.diagonal(matrices, axis1=-2, axis2=-1)


def unpacked(packed: np.ndarray, d: int) -> np.ndarray:
    """Return symmetric matrices (n, d, d) from packed triangles (n, m).

    Examples
    --------
    >>> unpacked(np.array([[1.0, 2.0, 3.0]]), 2).tolist()
    [[[1.0, 2.0], [2.0, 3.0]]]
    """
    found = np.empty((len(packed), d, d))
    first, second = np.triu_indices(d)
    found[:, first, second] = packed
    found[:, second, first] = packed
    return found


def is_positive_definite(matrices: np.ndarray) -> bool:
    """Return whether all matrices have a Cholesky factor in float64."""
    wide = read_only(np.ascontiguousarray(matrices, np.float64))
    return bool(factorise(wide, 0.0, np.empty(wide.shape)) == len(wide))


def cholesky(covariances: np.ndarray) -> np.ndarray:
    """Return the Cholesky factors of covariances, (n, d, d)."""
    wide = read_only(np.ascontiguousarray(covariances, np.float64))
    lower = np.empty(wide.shape)
    failed = factorise(wide, 0.0, lower)
    if failed < len(wide):
        raise InvalidParameterError(
            f"the covariance matrix of component {failed} is not positive definite in float64: its "
            f"variances are from {diagonals(wide)[failed].min():.3g} to "
            f"{diagonals(wide)[failed].max():.3g}; raise reg_covar, or use covariance_type='diag'."
        )
    return lower


def whitening(lower: np.ndarray) -> np.ndarray:
    """Return the packed inverses of Cholesky factors, (n, m)."""
    packed = np.empty((len(lower), packed_size(lower.shape[1])))
    invert_factors(read_only(lower), packed)
    return packed


def whitened_means(means: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """Return an origin amid the means and, from it, the whitened means: (k + 1, d), float64.

    Parameters
    ----------
    means : ndarray of shape (k, d)
    packed : ndarray of shape (1, m)
        The whitening matrix that all clusters share.
    """
    wide = means.astype(np.float64)
    found = np.empty((len(wide) + 1, wide.shape[1]))
    found[0] = 0.5 * wide.min(axis=0) + 0.5 * wide.max(axis=0)
    whiten_means(read_only(wide), found[0].copy(), read_only(packed[0]), found[1:])
    return found


def precisions(packed: np.ndarray, d: int) -> np.ndarray:
    """Return the inverses of covariances, (n, d, d), from their packed whitening matrices."""
    found = np.empty((len(packed), d, d))
    multiply_out(read_only(packed), d, found)
    return found


def raised(covariances: np.ndarray, floors: np.ndarray) -> np.ndarray:
    """Return covariances whose variance in every direction is at least that of ``diag(floors)``.

    Parameters
    ----------
    covariances : ndarray of shape (n, d, d)
    floors : ndarray of shape (d,)
        Minimum variance of each feature. At least `RESOLUTION` of a matrix's own variances counts.

    Notes
    -----
    With the features divided by the roots of their floors, the eigenvalues are raised to one. For a
    diagonal matrix, this is the maximum of the diagonal and the floors. A matrix that is above the floor
    is not changed, not even in its last bits.
    """
    least = np.maximum(floors, RESOLUTION * diagonals(covariances))
    root = np.sqrt(least)
    units = root[:, :, None] * root[:, None, :]
    scaled, found = covariances / units, covariances.copy()
    lower = np.empty((1, *scaled.shape[1:]))
    for j in range(len(scaled)):
        if factorise(read_only(scaled[j : j + 1]), 1.0, lower) == 0:
            raise_eigenvalues(scaled[j], 1.0)
            found[j] = scaled[j] * units[j]
    return found


def steepest(packed: np.ndarray, d: int) -> np.ndarray:
    """Return bounds (d,) with ``(x - c)' P (x - c) <= sum of bound * (x - c)^2``, for all precisions P.

    By ``2 |a b| <= r a^2 + b^2 / r`` for each element of P; r makes the bounds follow the features' units.
    """
    found = precisions(packed, d)
    most = diagonals(found)
    ratio = np.sqrt(most[:, :, None] / most[:, None, :])
    bounds: np.ndarray = (np.abs(found) * ratio).sum(axis=2).max(axis=0)
    return bounds
