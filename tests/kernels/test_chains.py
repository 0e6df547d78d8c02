"""Chains against plain Python, to the bit where distances are whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.kernels.distance import run_chains


def plain(rows, rates, uniforms, length, mind2, n_chains):
    chosen, centres = [], []
    for chain in range(n_chains):
        state, ratio = -1, 0.0
        for i in range(chain * length, (chain + 1) * length):
            nearest = min([mind2[i], *(((rows[i] - c) ** 2).sum() for c in centres)])
            if state < 0 or ratio == 0.0 or nearest / rates[i] > uniforms[i] * ratio:
                state, ratio = i, nearest / rates[i]
        chosen.append(state if ratio > 0 else -1)
        if ratio > 0:
            centres.append(rows[state])
    return chosen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("length", "d"), [(1, 3), (4, 1), (9, 17)])
def test_chains(dtype, length, d):
    rng = np.random.default_rng(d)
    n_chains = 40
    rows = rng.integers(-3, 4, (n_chains * length, d)).astype(dtype)
    rates, uniforms = rng.random(len(rows)) + 0.1, rng.random(len(rows))
    mind2 = (rows.astype(float) ** 2).sum(axis=1)
    expected = plain(rows.astype(float), rates, uniforms, length, mind2.copy(), n_chains)
    chosen = np.empty(n_chains, np.int64)
    run_chains(rows, rates, uniforms, length, mind2, chosen)
    assert chosen.tolist() == expected
    assert d > 1 or -1 in expected  # few distinct rows: some chains end at centres
