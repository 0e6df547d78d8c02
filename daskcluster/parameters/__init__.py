"""Declarations of parameters, and those that several estimators share.

`parameter` has what a declaration says, `checks` refuses what it does not allow, `shared` declares what
several estimators have, and `algorithm` maps names to estimators. A method declares its own in its
``parameters.py``. Without `checks` nothing heavy is imported, so that ``daskcluster --help`` is instant.
"""

from daskcluster.parameters.algorithm import Algorithm, Catalogue
from daskcluster.parameters.parameter import Parameter

__all__ = ["Algorithm", "Catalogue", "Parameter"]
