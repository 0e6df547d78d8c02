"""Measures of clustering quality: agreement with known classes, and internal measures.

Values and edge cases are those of `sklearn.metrics`; labels and rows may be larger than memory.
"""

from daskcluster.metrics.agreement import (
    accuracy,
    adjusted_mutual_info,
    completeness,
    homogeneity,
    mutual_info,
    normalized_mutual_info,
    purity,
    v_measure,
)
from daskcluster.metrics.contingency_table import (
    Contingency,
    adjusted_rand_index,
    contingency,
    fowlkes_mallows,
    rand_index,
)
from daskcluster.metrics.separation import (
    calinski_harabasz,
    davies_bouldin,
    simplified_silhouette,
)
from daskcluster.metrics.silhouettes import silhouette, silhouette_samples

__all__ = [
    "Contingency",
    "accuracy",
    "adjusted_mutual_info",
    "adjusted_rand_index",
    "calinski_harabasz",
    "completeness",
    "contingency",
    "davies_bouldin",
    "fowlkes_mallows",
    "homogeneity",
    "mutual_info",
    "normalized_mutual_info",
    "purity",
    "rand_index",
    "silhouette",
    "silhouette_samples",
    "simplified_silhouette",
    "v_measure",
]
