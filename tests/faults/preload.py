"""Imports of the fork server, so that processes forked from it start at once.

Otherwise each scheduler, worker and command would import libraries for seconds.
"""

from __future__ import annotations

import distributed  # noqa: F401
import zarr  # noqa: F401

import daskcluster.cli.job_commands
import daskcluster.engine.dask
import daskcluster.jobs.fitting
import daskcluster.methods.kmeans.estimator
import daskcluster.methods.load  # noqa: F401
from daskcluster.kernels.warm_up import warm_up

warm_up()
