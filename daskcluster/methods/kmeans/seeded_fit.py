"""A call of fit that begins with centres chosen among all rows."""

from __future__ import annotations

import time

import numpy as np

from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.fit import Fit
from daskcluster.events import SeedingEnded, publish
from daskcluster.methods.kmeans.initial import initial_centres, method_for
from daskcluster.randomness import Key


class SeededFit(Fit):
    """A `Fit` whose first centres ``init=`` decides."""

    def seeded(self, rows: ScaledPlacement, key: Key) -> np.ndarray:
        """Return the first centres (k, d), chosen among `rows` with the draws of `key`."""
        dataset, traffic = rows.placement.dataset, rows.placement.traffic
        self.method = method_for(self.init, in_memory=dataset.in_memory)
        began, passes = time.perf_counter(), traffic.passes
        centres = initial_centres(
            self.init,
            rows,
            self.n_clusters,
            key.derived_seed(),
            source=self.source,
            chain_length=self.estimator.chain_length,
        )
        seconds = time.perf_counter() - began
        publish(self.callbacks, SeedingEnded(self.method, traffic.passes - passes, seconds))
        return centres
