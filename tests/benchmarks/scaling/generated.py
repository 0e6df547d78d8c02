"""Rows that are generated when they are read: no disk limits how many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.generate import Mixture
from daskcluster.data.writer import good_chunk_rows
from daskcluster.storage.process_local import open_once
from daskcluster.typing import Recipe, Visibility


class GeneratedDataset(RowDataset):
    """The first rows of a mixture, in chunks as `generate` would write them.

    Parameters
    ----------
    mixture : Mixture
    n_rows : int

    Examples
    --------
    >>> rows = GeneratedDataset(Mixture(n_features=3072, n_clusters=8), 80_000_000)
    >>> rows.n_rows, len(rows.partitions), rows.load((5, 7)).rows.shape
    (80000000, 14663, (2, 3072))
    """

    def __init__(self, mixture: Mixture, n_rows: int) -> None:
        dtype = np.dtype(mixture.dtype)
        step = good_chunk_rows(mixture.n_features * dtype.itemsize, n_rows)
        edges = np.append(np.arange(0, n_rows, step, dtype=np.int64), n_rows)
        super().__init__(mixture.n_features, dtype, edges)
        self.mixture = mixture

    @property
    def source(self) -> str:
        return f"generated rows of {self.mixture.n_clusters} clusters"

    @property
    def own_visibility(self) -> Visibility:
        return Visibility.EVERYONE

    def own_recipe(self) -> Recipe:
        return GeneratedRecipe(self.mixture, self.n_rows)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return self.mixture.rows(start, stop)


@dataclass(frozen=True)
class GeneratedRecipe:
    """Recipe that makes the same rows anywhere."""

    mixture: Mixture
    n_rows: int

    def open(self) -> GeneratedDataset:
        """Return the rows in this process."""
        return open_once(self, lambda: GeneratedDataset(self.mixture, self.n_rows))
