"""Law 12 for mixtures: ``search="row"`` without a minimum variance makes the steps of the paper."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.methods.mixture.algorithm import first_neighbours
from daskcluster.methods.mixture.chunkwise.e_step import first_sets
from daskcluster.randomness import Key
from tests.laws.data import case
from tests.reference.mixture import var_gmm

C, N, SEED = 12, 300, 5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("truncation", [3, C])
def test_truncated_variational_em(truncation):
    """Forster and Luecke (2018); Hirschberger, Forster and Luecke (2018), with candidates drawn (+1)."""
    rows = case("float64", n=N)[0]
    start = rows[:: N // C][:C]
    model = dc.VariationalGaussianMixture(
        C, init=start, truncation=truncation, n_neighbors=3, n_random=1, search="row", reg_covar=0.0,
        tol=0.0, max_iter=5, random_state=SEED,
    ).fit(rows)  # fmt: skip

    def drawn(step):
        number = step if step == 0 else step + 1  # the first iteration does not search again
        words = Key(SEED, "mixture candidates", number).words(0, N)
        return [[int(word % np.uint64(C))] for word in words]

    sets = first_sets(Key(SEED, "mixture sets"), 0, N, 3, C) if truncation < C else [range(C)] * N
    truth = var_gmm(
        rows, np.ones(N), start, sets, first_neighbours(SEED, C, 3), n_iter=5, rule="row", draw=drawn
    )  # fmt: skip
    found = [record["free_energy"] for record in model.history_]
    np.testing.assert_allclose(found, truth.trace, rtol=1e-11)
    np.testing.assert_allclose(model.means_, truth.means, rtol=1e-9, atol=1e-9)
    assert model.covariances_ == pytest.approx(truth.variances[0, 0], rel=1e-9)
    tiled = dc.VariationalGaussianMixture(
        C, init=start, truncation=3, n_neighbors=3, n_random=1, tol=0.0, max_iter=5, random_state=SEED
    ).fit(rows)  # fmt: skip
    assert not np.allclose(tiled.means_, truth.means), "the searches should differ"
