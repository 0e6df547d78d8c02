"""Rows with partial distances are refused where others would be computed in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidParameterError

ROWS = np.random.default_rng(0).normal(size=(90, 3))
ROWS[::9, 1] = np.nan
CENTRES = np.zeros((2, 3))
CALLS: dict[str, Callable[[Any], Any]] = {
    "quantization_error": lambda rows: dc.quantization_error(rows, CENTRES),
    "relative_error": lambda rows: dc.relative_error(rows, CENTRES, 1.0),
    "near_duplicates": dc.near_duplicates,
    "partition": lambda rows: dc.partition(rows, target_size=30),
    "kmeans_plusplus": lambda rows: dc.kmeans_plusplus(rows, 3),
    "coreset": lambda rows: dc.LightweightCoreset(30).fit(rows),
    "mixture": lambda rows: dc.VariationalGaussianMixture(3).fit(rows),
    "kernel": lambda rows: dc.KernelKMeans(3).fit(rows),
}


@pytest.mark.parametrize("name", CALLS)
def test_partial_rows_are_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError, match="missing='partial'"):
        CALLS[name](dc.open_dataset(ROWS, missing="partial"))
