"""How another process comes to rows with scaled features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.chunkwise.feature_scaling import FeatureScaling
from daskcluster.typing import Recipe


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
