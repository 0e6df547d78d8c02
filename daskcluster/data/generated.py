"""Rows that are made as they are read: a mixture of any size that needs no store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.data.dataset import RowDataset
from daskcluster.data.generate import Mixture
from daskcluster.data.writer import good_chunk_rows
from daskcluster.data.zarr import write_scratch
from daskcluster.storage.opened import open_once
from daskcluster.typing import Reach, Recipe


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
    def own_reach(self) -> Reach:
        return Reach.EVERYONE

    def own_recipe(self) -> Recipe:
        return GeneratedRecipe(self.mixture, self.n_rows)

    def fetch(self, start: int, stop: int) -> np.ndarray:
        return self.mixture.rows(start, stop)

    def to_scratch(self, folder: str) -> RowDataset:
        """Write the rows to Zarr in `folder`, and return that dataset."""
        return write_scratch(self, folder)


@dataclass(frozen=True)
class GeneratedRecipe:
    """How to make the same rows anywhere."""

    mixture: Mixture
    n_rows: int

    def open(self) -> GeneratedDataset:
        """Return the rows in this process."""
        return open_once(self, lambda: GeneratedDataset(self.mixture, self.n_rows))
