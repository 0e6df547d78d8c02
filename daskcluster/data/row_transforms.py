"""How another process comes to transformed rows: with scaled features, or normalized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.typing import Dataset, Recipe


def for_metric(dataset: Dataset, metric: str) -> Dataset:
    """Return the rows as `metric` compares them: under the cosine metric, with rows of length one."""
    return dataset.normalized() if metric == "cosine" else dataset


@dataclass(frozen=True)
class ScaledRecipe:
    """The recipe of rows, and of the scaling that they are given.

    The arrays travel as bytes: what is equal has equal recipes.
    """

    rows: Any
    kind: str
    shift: bytes
    width: bytes

    @classmethod
    def of(cls, rows: Recipe, scaling: FeatureScaling) -> ScaledRecipe:
        """Return the recipe of `rows` under `scaling`."""
        return cls(rows, scaling.kind, scaling.shift.tobytes(), scaling.width.tobytes())

    def open(self) -> Any:
        """Open the rows in this process, scaled."""
        dataset: Any = self.rows.open()
        shift, width = np.frombuffer(self.shift), np.frombuffer(self.width)
        return dataset.with_scaling(FeatureScaling(self.kind, shift, width))


@dataclass(frozen=True)
class NormalizedRecipe:
    """The recipe of rows that are normalized."""

    rows: Any

    def open(self) -> Any:
        """Open the rows in this process, normalized."""
        return self.rows.open().normalized()
