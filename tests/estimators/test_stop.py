"""A callback that raises `StopFit` ends the whole fit, and a resume continues it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.errors import InvalidParameterError
from daskcluster.events import EMStepEnded, IterationEnded, KernelStepEnded, StopFit

ROWS = np.random.default_rng(0).normal(size=(600, 3))
STEPS = (IterationEnded, EMStepEnded, KernelStepEnded)


class StopAt:
    """Raise `StopFit` in a step, and count steps."""

    def __init__(self, number: int) -> None:
        self.number, self.n_steps = number, 0

    def __call__(self, event: Any) -> None:
        if isinstance(event, STEPS):
            self.n_steps += 1
            if self.n_steps == self.number:
                raise StopFit


@pytest.mark.parametrize(
    "kind",
    [dc.KMeans, dc.KernelKMeans, dc.MiniBatchKernelKMeans, dc.VariationalGaussianMixture],
)
def test_no_restart_begins_after_a_stop(kind: Any) -> None:
    stop = StopAt(2)
    kind(4, n_init=3, random_state=0, tol=0, callbacks=[stop]).fit(ROWS)
    assert stop.n_steps == 2


def test_a_stopped_fit_resumes_to_the_same_bits(tmp_path: Path) -> None:
    given = {"n_init": 2, "init": "random", "tol": 0, "random_state": 0}
    expected = dc.KMeans(6, **given).fit(ROWS)
    stopped = dc.KMeans(6, **given, checkpoint=str(tmp_path), checkpoint_every=1)
    stopped.set_params(callbacks=[StopAt(3)]).fit(ROWS)
    resumed = stopped.set_params(callbacks=()).fit(ROWS, resume=True)
    assert np.array_equal(resumed.cluster_centers_, expected.cluster_centers_)
    assert resumed.inertia_ == expected.inertia_


def test_validation_of_rows_that_lack_values() -> None:
    gappy = ROWS.copy()
    gappy[::7, 1] = np.nan
    with pytest.raises(InvalidParameterError, match="without checkpoint and validation"):
        dc.KMeans(4, validation=ROWS).fit(dc.open_dataset(gappy, missing="partial"))
    dropped = dc.open_dataset(gappy, missing="drop")
    model = dc.KMeans(4, random_state=0, validation=gappy).fit(dropped)
    left = np.isfinite(gappy).all(axis=1)
    found = -model.score(gappy[left]) / left.sum()
    assert model.history_[-1]["validation"] == pytest.approx(found)
