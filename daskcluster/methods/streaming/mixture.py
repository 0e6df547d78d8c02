"""A Gaussian mixture of a stream: vc-GMM on the summary of all rows so far.

Hirschberger, Forster and Luecke (arXiv 1810.00803) fit one coreset of a fixed dataset; here the coreset is
that of a merge-and-reduce tree, and EM starts from the previous means.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres, nearest_with_distances
from daskcluster.data.open import open_chunk
from daskcluster.methods.mixture.chunkwise.e_step import label_by_density
from daskcluster.methods.mixture.estimator import VariationalGaussianMixture
from daskcluster.methods.mixture.model import stored_variances
from daskcluster.methods.mixture.rows import gaussians_for
from daskcluster.methods.streaming.refit import StreamCentres, births_after, matched
from daskcluster.randomness import Key

FRESH_GAIN = 0.01
"""A mixture fitted from scratch replaces the refined one if its free energy per feature is larger by this;
2 % smaller variances give as much."""


@dataclass(frozen=True)
class StreamMixture(StreamCentres):
    """A mixture of a stream; `centres` are its means, `weights` the posterior weights of components.

    Attributes
    ----------
    variances : ndarray of shape (1,), (k,), (k, d), (1, d, d) or (k, d, d), float64
        As in `daskcluster.methods.mixture.model.MixtureModel`.
    mixing : ndarray of shape (k,), float64
    lower_bound : float
        Free energy divided by total weight.
    covariance_type : str
    """

    variances: np.ndarray
    mixing: np.ndarray
    lower_bound: float
    covariance_type: str

    def nearest(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Return the component with the largest posterior, and the squared distance to its mean."""
        gaussians = gaussians_for(
            self.centres.dtype, self.centres, self.variances, self.mixing, self.covariance_type
        )
        prepared = PreparedCentres(self.centres)
        labels = label_by_density(chunk, (gaussians, prepared))
        distances = np.empty(len(labels))
        for block in chunk.blocks():
            place = slice(block.start - chunk.start, block.stop - chunk.start)
            prepared.sqdist_to_assigned(block.rows, labels[place], distances[place])
        return labels, distances


@dataclass(frozen=True)
class MixtureSearch:
    """Fits a mixture to a summary.

    Attributes
    ----------
    parameters : mapping
        Those of `VariationalGaussianMixture`, except ``coreset_size`` and ``random_state``.
    seed : int
    """

    parameters: Mapping[str, Any]
    seed: int

    @property
    def init(self) -> Any:
        return self.parameters["init"]

    @property
    def finds(self) -> type[StreamMixture]:
        return StreamMixture

    def seek(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        *,
        fresh: bool = False,
        grow: bool = False,
    ) -> StreamMixture | None:
        """Return the mixture of weighted rows; None if there are fewer rows than components.

        `grow` has no effect: a mixture keeps its number of components.

        Notes
        -----
        Cost: EM on m rows in memory, from the previous means; with `fresh`, also from scratch.
        """
        if rows.n_rows < int(self.parameters["n_components"]):
            return None
        if before is None:
            return self._found(rows, None, n_rows, self.init)
        best = self._found(rows, before, n_rows, before.centres)
        if not fresh:
            return best
        other = self._found(rows, None, n_rows, "k-means++")
        if other.lower_bound <= best.lower_bound + FRESH_GAIN * rows.rows.shape[1]:
            return best
        other = other.reordered(matched(before.centres, other.centres))
        return replace(other, births=births_after(before, other.centres, n_rows))

    def _found(
        self,
        rows: Chunk,
        before: StreamCentres | None,
        n_rows: int,
        init: Any,
    ) -> StreamMixture:
        seed = int(Key(self.seed, "mixture refit", n_rows).generator().integers(2**31))
        n_init = self.parameters.get("n_init", 1) if isinstance(init, str) else 1
        mixture = VariationalGaussianMixture(
            **{**self.parameters, "init": init, "n_init": n_init},
            random_state=seed,
            coreset_size=None,
        )
        with warnings.catch_warnings():
            # A summary may have few distinct rows; users cannot act on the warning.
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(open_chunk(rows))
        means = mixture.means_
        labels, distances = nearest_with_distances(rows, means)
        weights = rows.weights
        assert weights is not None
        k = len(means)
        return StreamMixture(
            means,
            births_after(before, means, n_rows),
            mixture.component_weights_,
            np.bincount(labels, weights * distances, minlength=k),
            np.bincount(labels, minlength=k),
            n_rows,
            mixture.n_iter_,
            mixture.stop_reason_,
            mixture.seeding_ if before is None else before.seeding,
            stored_variances(mixture.covariances_, mixture.covariance_type),
            mixture.weights_,
            float(mixture.lower_bound_),
            mixture.covariance_type,
        )
