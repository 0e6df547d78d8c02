"""Fits on the pages of a Dask scheduler: which run and have run on its cluster, and how they stand.

From a client, `show_fits`; on a scheduler of one's own, ``dask scheduler --preload daskcluster.dashboard``.
"""

from daskcluster.dashboard.server import dask_setup, show_fits

__all__ = ["dask_setup", "show_fits"]
