"""Gram functions from outside, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from daskcluster.methods.kernel.chunkwise.gram import FUNCTIONS
from daskcluster.methods.kernel.parameters import KERNELS


def register_gram(name: str, function: Callable[[Any, Any], Any]) -> None:
    """Let ``kernel=name`` be a Gram function of one's own, on the command line and in saved models, too.

    A model that is loaded finds the function by its name, where a callable would have to be given back.

    Parameters
    ----------
    name : str
    function : callable (X, Y) -> ndarray of shape (len(X), len(Y))
        Of a module that workers can import. Symmetric, positive semi-definite, finite; the rows of CSR
        data come as `scipy.sparse.csr_array`.

    Notes
    -----
    Cost: that of the function, which is called for blocks of rows with all points of the centres.

    Examples
    --------
    >>> import daskcluster as dc
    >>> register_gram("histogram", lambda X, Y: 1.0 + X @ Y.T)
    >>> fitted = dc.KernelKMeans(2, kernel="histogram", random_state=0).fit([[0.0], [1.0], [9.0]])
    >>> fitted.labels_.tolist() in ([0, 0, 1], [1, 1, 0])
    True
    >>> del FUNCTIONS["histogram"], KERNELS["histogram"]
    """
    FUNCTIONS[name] = function
    KERNELS[name] = None
