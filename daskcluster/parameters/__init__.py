"""Plain tables of parameters: flags are made from them, estimators are tested against them.

`table` has what a parameter is, `shared` those that several estimators have, one module a table for
each estimator, and `catalogue` maps the name of every algorithm to its estimator and table. Nothing
heavy is imported here, so that ``daskcluster --help`` is instant.
"""

from daskcluster.parameters.catalogue import ALGORITHMS, Algorithm
from daskcluster.parameters.kmeans import KMEANS
from daskcluster.parameters.table import Parameter

__all__ = ["ALGORITHMS", "KMEANS", "Algorithm", "Parameter"]
