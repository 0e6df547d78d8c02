"""Which libraries made a model."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from daskcluster import __version__

_LIBRARIES = ("numpy", "numba", "zarr", "dask", "scikit-learn")


def created_with() -> dict[str, str]:
    """Return the versions of daskcluster, Python and the libraries, without importing them.

    Examples
    --------
    >>> sorted(created_with())[:2]
    ['dask', 'daskcluster']
    """
    found = {"daskcluster": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a vendored copy has no metadata
            continue
    return found
