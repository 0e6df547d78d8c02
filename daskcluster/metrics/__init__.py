"""How good a clustering is: beside known classes, and by its own shape.

Values and edge cases are those of `sklearn.metrics`; labels and rows may be larger than memory.
"""

from daskcluster.metrics.agreement import (
    accuracy,
    adjusted_mutual_info,
    adjusted_rand_index,
    completeness,
    homogeneity,
    normalized_mutual_info,
    purity,
    v_measure,
)
from daskcluster.metrics.contingency_table import Contingency, contingency

__all__ = [
    "Contingency",
    "accuracy",
    "adjusted_mutual_info",
    "adjusted_rand_index",
    "completeness",
    "contingency",
    "homogeneity",
    "normalized_mutual_info",
    "purity",
    "v_measure",
]
