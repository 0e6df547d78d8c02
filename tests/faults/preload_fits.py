"""Tiny fits of all algorithms in the fork server, so that forked processes have all kernels loaded.

Loading a kernel takes hundredths of a second, but an algorithm has dozens of kernels, and every new cluster
has four processes. Nothing here may start a thread, because threads do not survive the fork.
"""

from __future__ import annotations

import warnings
from pkgutil import resolve_name
from typing import Any

import numpy as np

import daskcluster.cli.job_commands
import daskcluster.jobs.fitting
import daskcluster.jobs.predicting  # noqa: F401
from daskcluster.engine.local import LocalEngine
from daskcluster.methods.catalogue import ALGORITHMS
from tests.faults.fits import FITS, N_CLUSTERS, N_FEATURES

_FEW: dict[str, Any] = {"max_iter": 3, "batch_size": 200, "coreset_size": 400}


def fit_all() -> None:
    """Fit every algorithm of the trials to a few rows."""
    rows = np.random.default_rng(0).lognormal(size=(2000, N_FEATURES)).astype(np.float32)
    for name in FITS:
        entry = ALGORITHMS.find(name)
        given = {key: value for key, value in _FEW.items() if key in entry.parameters}
        given = entry.arguments({**given, "n_clusters": N_CLUSTERS, "random_state": 0})
        model = resolve_name(entry.estimator)(**given, engine=LocalEngine(1))
        model.fit(rows).predict(rows)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    fit_all()
