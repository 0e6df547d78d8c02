"""The model of kernel k-means: support rows and their coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.methods.kernel_kmeans.chunkwise import (
    CALLABLE,
    FUNCTIONS,
    PRECOMPUTED,
    VECTOR_GRAMS,
    GramCentres,
    GramFunction,
    GramSums,
    Points,
)
from daskcluster.models.fitted import FittedModel, check_per_cluster
from daskcluster.sparse_rows import Rows, SparseRows
from daskcluster.storage.document import check_numbers

_PER_CLUSTER = ("weights", "sizes", "costs")
_NONE = np.zeros(1, np.int64)
_MOST = 1 << 62


@dataclass(frozen=True, eq=False)
class KernelKMeansModel(FittedModel):
    """A fitted kernel k-means. Of the data it holds only the support rows, which make up its centres.

    Attributes
    ----------
    centres : ndarray of shape (k, d)
        Weighted sums of the support rows, for display only: rows are not compared with them. With
        precomputed values, the coefficients of the supports in their columns.
    supports : ndarray
        Support rows (m, d), or the values of CSR rows and one extra value; a single number with
        precomputed values.
    columns, starts : ndarrays of int64
        Column indices and row offsets of CSR rows; a single number for other rows.
    rows, clusters : ndarrays of shape (m,), int64
        Row number and cluster of each support.
    coefficients : ndarray of shape (m,), float64
    norms : ndarray of shape (k,), float64
        Squared lengths of the centres in the space of the kernel.
    weights, sizes, costs : ndarrays of shape (k,)
        As in `daskcluster.models.fitted.KMeansModel`; costs in the space of the kernel.
    kernel, gamma, degree, coef0
        The Gram function. The function of a callable kernel is not stored.
    inertia : float

    Raises
    ------
    ModelFormatError
        A value is invalid: a coefficient that is not finite, a cluster >= k, a wrong shape.
    """

    kind: ClassVar[str] = "kernel-kmeans"
    kernels: ClassVar[tuple[str, ...]] = (*VECTOR_GRAMS, PRECOMPUTED, CALLABLE)
    supports: np.ndarray
    columns: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    coefficients: np.ndarray
    clusters: np.ndarray
    norms: np.ndarray
    weights: np.ndarray
    sizes: np.ndarray
    costs: np.ndarray
    kernel: str
    gamma: float
    degree: int
    coef0: float
    inertia: float
    estimator: str = field(default="KernelKMeans", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _PER_CLUSTER:
            check_per_cluster(name, getattr(self, name), self.n_clusters)
        self._check_gram()
        self._check_supports()
        if self.supports.ndim == 1 and self.kernel != PRECOMPUTED:
            self._check_csr()
        if not (math.isfinite(self.inertia) and self.inertia >= 0.0):
            raise ModelFormatError(f"inertia should be finite and >= 0, got {self.inertia!r}.")

    def _check_gram(self) -> None:
        known = (*self.kernels, *FUNCTIONS)
        if self.kernel not in known:
            raise ModelFormatError(
                f"kernel={self.kernel[:40]!r} should be one of {', '.join(known)}; if another package "
                "registers it, import that package first, or name it in DASKCLUSTER_PRELOAD."
            )
        if self.gamma < 0.0 or not 1 <= self.degree <= 1000:
            raise ModelFormatError(
                f"gamma should be >= 0, got {self.gamma!r}, and degree in [1, 1000], got {self.degree!r}."
            )

    @property
    def n_supports(self) -> int:
        """Number of support rows."""
        return len(self.rows)

    def _check_supports(self) -> None:
        k, d, m = self.n_clusters, self.n_features, len(self.rows)
        shapes = [each.shape for each in (self.rows, self.coefficients, self.clusters)]
        if shapes != [(m,)] * 3 or self.norms.shape != (k,):
            raise ModelFormatError(
                f"rows, coefficients and clusters should have shape ({m},) and norms ({k},), got {shapes} "
                f"and {self.norms.shape}."
            )
        for values in (self.coefficients, self.norms):
            if values.dtype != np.float64 or not np.isfinite(values).all():
                raise ModelFormatError("coefficients and norms should be finite, in float64.")
        check_numbers("clusters", self.clusters, k)
        # Centres that were given as rows have negative numbers.
        own_columns = self.kernel == PRECOMPUTED
        check_numbers("rows", self.rows, d if own_columns else _MOST, 0 if own_columns else -_MOST)
        if own_columns:
            return
        if self.supports.dtype not in (np.float32, np.float64):
            raise ModelFormatError("support rows should be float32 or float64.")
        if not np.isfinite(self.supports).all():
            raise ModelFormatError("support rows should be finite.")
        kept = self.n_supports, d
        if self.supports.ndim == 2 and self.supports.shape != kept:
            raise ModelFormatError(f"supports should have shape {kept}, got {self.supports.shape}.")

    def _check_csr(self) -> None:
        starts, columns, d = self.starts, self.columns, self.n_features
        check_numbers("starts", starts, _MOST)
        rising = starts.shape == (self.n_supports + 1,) and bool((np.diff(starts) >= 0).all())
        if not rising or starts[0] != 0 or starts[-1] > min(len(self.supports), len(columns)):
            raise ModelFormatError(
                f"starts of CSR support rows should be {self.n_supports + 1} ascending offsets from 0 to "
                "at most the number of stored values."
            )
        check_numbers("columns", columns, d)

    @property
    def gram(self) -> GramFunction:
        """The Gram function; that of a callable kernel lacks its function."""
        function = FUNCTIONS.get(self.kernel)
        return GramFunction(self.kernel, self.gamma, self.degree, self.coef0, function)

    def gram_centres(self) -> GramCentres:
        """Return the centres in the form that rows are compared with."""
        points = Points(self.support_rows(), self.rows)
        sums = GramSums(self.gram, points, self.coefficients, self.clusters, self.n_clusters)
        return GramCentres(sums, self.norms)

    def support_rows(self) -> Any:
        """Return the support rows, ready for the kernels; None for precomputed values."""
        if self.kernel == PRECOMPUTED:
            return None
        if self.supports.ndim == 2:
            return self.supports
        stop = int(self.starts[-1])
        columns = self.columns[:stop].astype(np.int32)
        return SparseRows(self.supports[:stop], columns, self.starts, self.n_features)

    def facts(self) -> dict[str, Any]:
        """Return the metadata that only this kind of model has, for tables."""
        return {
            "kernel": self.kernel,
            "gamma": self.gamma,
            "supports": self.n_supports,
            "inertia": self.inertia,
        }


def support_arrays(centres: GramCentres, n_features: int) -> dict[str, Any]:
    """Return the fields of a model that describe its centres."""
    sums, gram = centres.sums, centres.gram
    return {
        "centres": _weighted_sums(sums, n_features),
        **row_arrays(sums.points.rows),
        "rows": sums.points.indices,
        "coefficients": sums.factors,
        "clusters": sums.groups.astype(np.int64),
        "norms": centres.norms,
        "kernel": gram.name,
        "gamma": gram.gamma,
        "degree": gram.degree,
        "coef0": gram.coef0,
    }


def row_arrays(rows: Rows | None) -> dict[str, np.ndarray]:
    """Return the fields of a model that hold its support rows."""
    if isinstance(rows, SparseRows):
        return {
            # One extra entry, so that no array is empty.
            "supports": np.append(rows.data, rows.data.dtype.type(0)),
            "columns": np.append(rows.indices, 0).astype(np.int64),
            "starts": rows.offsets,
        }
    return {"supports": np.zeros(1) if rows is None else rows, "columns": _NONE, "starts": _NONE}


def _weighted_sums(sums: GramSums, n_features: int) -> np.ndarray:
    rows, found = sums.points.rows, np.zeros((sums.n_groups, n_features))
    if rows is None:
        np.add.at(found, (sums.groups, sums.points.indices), sums.factors)
        return found
    for j in range(sums.n_groups):
        mine = np.flatnonzero(sums.groups == j)
        part = rows[mine]
        dense = part.toarray() if isinstance(part, SparseRows) else part
        found[j] = (sums.factors[mine, None] * dense).sum(axis=0)
    return found
