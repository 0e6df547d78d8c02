"""Measures of clustering quality: agreement with known classes, and internal measures.

Values and edge cases are those of `sklearn.metrics`; labels and rows may be larger than memory.
"""

from daskcluster.metrics.agreement import (
    Contingency,
    accuracy,
    adjusted_mutual_info,
    adjusted_rand_index,
    completeness,
    contingency,
    fowlkes_mallows,
    homogeneity,
    mutual_info,
    normalized_mutual_info,
    purity,
    rand_index,
    v_measure,
)
from daskcluster.metrics.separation import (
    calinski_harabasz,
    davies_bouldin,
    silhouette,
    silhouette_samples,
    simplified_silhouette,
)

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
