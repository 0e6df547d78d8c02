"""What the server of processes imports once: those forked from it begin to work at once.

A scheduler, a worker or a command that starts from nothing imports libraries for seconds; twenty
trials could not afford it.
"""

from __future__ import annotations

import distributed  # noqa: F401
import zarr  # noqa: F401

import daskcluster.cli.fit
import daskcluster.engine.dask
import daskcluster.jobs.fitting
import daskcluster.methods.kmeans.estimator
import daskcluster.methods.load  # noqa: F401
from daskcluster.kernels.warm_up import warm_up

warm_up(8)
