"""The saved form of clusters that have several levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from daskcluster.errors import ModelFormatError
from daskcluster.models.fitted import KMeansModel


@dataclass(frozen=True, eq=False)
class HierarchicalModel(KMeansModel):
    """A fitted k-means whose clusters belong to clusters of further levels.

    Attributes
    ----------
    parents : tuple of ndarray of int32
        For each level but the last, the cluster of the next level that each cluster belongs to. At least
        one.
    level_sizes : tuple of int
        Numbers of clusters of the levels above the first.
    centres, weights, sizes, costs, metric, inertia
        Figures of the first level, as in `daskcluster.models.fitted.KMeansModel`.

    Raises
    ------
    ModelFormatError
        The levels do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> parents = (np.array([0, 1, 0], np.int32),)
    >>> model = HierarchicalModel(np.eye(3), np.ones(3), parents=parents, level_sizes=(2,), n_rows=3)
    >>> model.facts()["levels"]
    '3 clusters in 2'
    """

    kind: ClassVar[str] = "hierarchical-kmeans"
    array_names: ClassVar[frozenset[str]] = KMeansModel.array_names | {"parents", "level_sizes"}

    parents: tuple[np.ndarray, ...] = field(kw_only=True)
    level_sizes: tuple[int, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.parents) == len(self.level_sizes):
            raise ModelFormatError("a model of levels should have a parent of every cluster.")
        below = (self.n_clusters, *self.level_sizes)
        for level, (found, n, most) in enumerate(
            zip(self.parents, below, self.level_sizes, strict=False), start=1
        ):
            if found.shape != (n,) or (found < 0).any() or (found >= most).any():
                raise ModelFormatError(
                    f"the parents of level {level} should be {n} numbers from 0 to {most - 1}."
                )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save, by name."""
        return super().arrays() | {
            "parents": np.concatenate(self.parents).astype(np.int64),
            "level_sizes": np.array(self.level_sizes, np.int64),
        }

    def facts(self) -> dict[str, Any]:
        """Return the fields specific to this kind of model, for tables."""
        shown = " in ".join(f"{size:,}" for size in self.level_sizes)
        return super().facts() | {"levels": f"{self.n_clusters:,} clusters in {shown}"}

    @classmethod
    def shared_parts(
        cls, body: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return the constructor arguments of `from_parts`; the arrays of all levels are one in a file."""
        found = super().shared_parts(body, arrays)
        sizes = tuple(int(size) for size in found["level_sizes"].ravel())
        if any(size < 1 for size in sizes):
            raise ModelFormatError(f"level sizes {sizes} should be >= 1.")
        below = np.cumsum((len(found["centres"]), *sizes[:-1]))
        parents = np.split(found["parents"].astype(np.int32), below[:-1])
        return {**found, "parents": tuple(parents), "level_sizes": sizes}
