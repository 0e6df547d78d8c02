"""Centres of full-batch kernel k-means as means of rows, and the state of its loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.events import StopReason
from daskcluster.methods.kernel.chunkwise.centres import clamped
from daskcluster.storage.state import Shapes, check_numbers, within


@dataclass
class Members:
    """Centres as the means of rows.

    Attributes
    ----------
    terms : list of k pairs of ndarrays
        The rows of each centre and their shares of its weight.
    products : ndarray of shape (n, k)
        P_xj, the inner products of rows and centres.
    norms : ndarray of shape (k,)
        Q_j, the squared lengths of the centres.
    """

    terms: list[tuple[np.ndarray, np.ndarray]]
    products: np.ndarray
    norms: np.ndarray

    def nearest(self, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest centre of every row, int64 (n,), and the squared distance to it."""
        relative = self.norms - 2.0 * self.products
        labels = relative.argmin(axis=1)
        return labels, clamped(diagonal + relative[np.arange(len(labels)), labels])

    @classmethod
    def nowhere(cls, n_rows: int, k: int) -> Self:
        """Return centres at the origin, made of no rows."""
        none = np.empty(0, np.int64), np.empty(0)
        return cls([none] * k, np.zeros((n_rows, k)), np.zeros(k))


@dataclass(frozen=True)
class Gone:
    """Centres of clusters that have lost all their weight; these centres do not move.

    Attributes
    ----------
    clusters, sizes : ndarrays of shape (g,), int64
        Their clusters, and the number of rows that each is a mean of.
    rows, factors : ndarrays of shape (m,), int64 and float64
        These rows and their shares, one centre after the other.
    norms : ndarray of shape (g,)
    products : ndarray of shape (n, g)
    """

    clusters: np.ndarray
    sizes: np.ndarray
    rows: np.ndarray
    factors: np.ndarray
    norms: np.ndarray
    products: np.ndarray

    @classmethod
    def of(cls, members: Members, totals: np.ndarray) -> Self | None:
        """Return the centres of clusters whose weight in `totals` (k,) is zero; None if there are none."""
        clusters = np.flatnonzero(totals <= 0.0)
        if not len(clusters):
            return None
        terms = [members.terms[j] for j in clusters]
        return cls(
            clusters,
            np.array([len(rows) for rows, _ in terms]),
            np.concatenate([rows for rows, _ in terms]),
            np.concatenate([factors for _, factors in terms]),
            members.norms[clusters],
            members.products[:, clusters],
        )

    def put(self, members: Members) -> None:
        """Copy these centres into `members`."""
        members.products[:, self.clusters], members.norms[self.clusters] = self.products, self.norms
        ends = np.cumsum(self.sizes)
        for j, first, last in zip(self.clusters, ends - self.sizes, ends, strict=True):
            members.terms[j] = self.rows[first:last], self.factors[first:last]


@dataclass(frozen=True)
class FullState:
    """State of the loop between two iterations.

    Centres are means of rows, so the labels determine them and their inner products with all rows.

    Attributes
    ----------
    seeds : ndarray of shape (k,), int64
        Rows whose images are the initial centres.
    assigned : ndarray of shape (n,), int64, or None
        Labels of the clusters whose means are the centres; None before the first iteration.
    gone : Gone or None
        Centres without rows, which the labels do not determine.
    history : sequence of dict
        A record per iteration.
    reason : StopReason or None
        Why the loop stopped; None if it has not.
    """

    seeds: np.ndarray
    assigned: np.ndarray | None = None
    gone: Gone | None = None
    history: Sequence[dict[str, Any]] = ()
    reason: StopReason | None = None

    @staticmethod
    def shapes(n_rows: int, k: int) -> Shapes:
        """Return the shapes of the arrays."""
        inner: Shapes = dict.fromkeys(("clusters", "sizes", "rows", "factors", "norms"), (None,))
        gone = within("gone", {**inner, "products": (n_rows, None)})
        return {"seeds": (k,), "assigned": (n_rows,), **gone}

    def check(self, n_rows: int) -> None:
        """Refuse row and cluster numbers that are out of range.

        Raises
        ------
        ModelFormatError
        """
        k, gone = len(self.seeds), self.gone
        check_numbers("seeds", self.seeds, n_rows)
        if self.assigned is not None:
            check_numbers("assigned", self.assigned, k)
        if gone is None:
            return
        check_numbers("gone_clusters", gone.clusters, k)
        check_numbers("gone_rows", gone.rows, n_rows)
        check_numbers("gone_sizes", gone.sizes, n_rows + 1)
        lengths = {len(gone.clusters), len(gone.sizes), len(gone.norms), gone.products.shape[1]}
        if len(lengths) > 1 or not gone.sizes.sum() == len(gone.rows) == len(gone.factors):
            raise ModelFormatError("the lengths of its arrays of empty clusters do not match.")
