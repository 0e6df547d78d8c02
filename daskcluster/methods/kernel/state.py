"""Centres of full-batch kernel k-means as means of rows, and the checkpoint of a fit."""

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
        The rows of each centre, and the share of its weight that each has.
    products : ndarray of shape (n, k)
        P.
    norms : ndarray of shape (k,)
        Q.
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
        """Return centres at the origin, of no rows."""
        none = np.empty(0, np.int64), np.empty(0)
        return cls([none] * k, np.zeros((n_rows, k)), np.zeros(k))


@dataclass(frozen=True)
class Gone:
    """Centres whose clusters have no weight any more: they stay where they were.

    Attributes
    ----------
    clusters, sizes : ndarrays of shape (g,), int64
        Which they are, and the rows that each is a mean of.
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
        """Return the centres whose clusters have a weight in `totals` (k,) of zero; None without any."""
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
        """Put them into `members`."""
        members.products[:, self.clusters], members.norms[self.clusters] = self.products, self.norms
        ends = np.cumsum(self.sizes)
        for j, first, last in zip(self.clusters, ends - self.sizes, ends, strict=True):
            members.terms[j] = self.rows[first:last], self.factors[first:last]


@dataclass(frozen=True)
class FullState:
    """State of a loop between two iterations.

    Centres are means of rows, so labels say where they are, and what they have to do with other rows
    follows.

    Attributes
    ----------
    seeds : ndarray of shape (k,), int64
        Rows whose images are the first centres.
    assigned : ndarray of shape (n,), int64, or None
        The labels that the centres are the means of; None before the first iteration.
    gone : Gone or None
        Centres of which these labels say nothing.
    history : sequence of dict
        A record for each iteration.
    reason : StopReason or None
        Why the last iteration was the last one, if it was.
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
        """Refuse numbers of rows and clusters that there are not.

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
            raise ModelFormatError("its arrays of centres that have gone do not belong together.")
