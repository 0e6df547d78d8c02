"""Passes within bounds, chunk by chunk; that whole fits equal plain Lloyd's is law 1."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.kernels import tile as tiles


@pytest.mark.parametrize("algorithm", ["hamerly", "yinyang", "elkan"])
def test_cpus_without_a_register_tile_get_the_same(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = np.random.default_rng(0).lognormal(size=(900, 5)).astype(np.float32)
    fits = []
    for name in (tiles.tile_name(), "portable"):
        monkeypatch.setattr(tiles, "tile_name", lambda name=name: name)
        fits.append(dc.KMeans(40, init=X[:40], algorithm=algorithm, tol=0).fit(X))
    assert np.array_equal(fits[0].labels_, fits[1].labels_)
    assert fits[0].cluster_centers_.tobytes() == fits[1].cluster_centers_.tobytes()
    assert fits[0].n_iter_ == fits[1].n_iter_
