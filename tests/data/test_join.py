"""Weights and labels of pandas belong to the rows of the same names, not to those of the same positions."""

from __future__ import annotations

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.metrics import adjusted_rand_index, silhouette, simplified_silhouette
from daskcluster.metrics.separation import davies_bouldin

pd = pytest.importorskip("pandas", reason="pandas is not installed")

X = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([[0], [9], [20]], 20, axis=0)
NAMES = [f"r{at}" for at in range(60)]
ROWS = pd.DataFrame(X, index=NAMES, columns=list("abc"))
ORDER = np.random.default_rng(1).permutation(60)
WEIGHTS = pd.Series(np.linspace(1, 5, 60), index=NAMES)


def test_weights_are_matched_by_name():
    fitted, other = (
        dc.KMeans(4, random_state=0).fit(ROWS, sample_weight=weights)
        for weights in (WEIGHTS, WEIGHTS.iloc[ORDER])
    )
    assert fitted.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    opened = dc.open_dataset(ROWS.iloc[ORDER], weights=WEIGHTS)
    assert np.asarray(opened.weights).tolist() == WEIGHTS.iloc[ORDER].tolist()
    by_position = dc.open_dataset(ROWS.iloc[ORDER], weights=WEIGHTS.to_numpy())
    assert np.asarray(by_position.weights).tolist() == WEIGHTS.tolist()
    default = dc.open_dataset(ROWS, weights=WEIGHTS.reset_index(drop=True))
    assert np.asarray(default.weights).tolist() == WEIGHTS.tolist()


def test_labels_are_matched_by_name():
    labels = pd.Series(np.repeat([0, 1, 2], 20), index=NAMES)
    shuffled = labels.iloc[ORDER]
    assert adjusted_rand_index(labels, shuffled) == 1.0
    for measure in (silhouette, simplified_silhouette, davies_bouldin):
        assert measure(ROWS, shuffled) == measure(ROWS, labels)


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (WEIGHTS.rename(lambda name: f"s{name}"), "60 of 60 rows are not among the weights"),
        (WEIGHTS.rename(lambda _: "r0"), "two of the weights are called 'r0'"),
    ],
)
def test_other_names_are_refused(weights, text):
    with pytest.raises(ValueError, match=text):
        dc.KMeans(3).fit(ROWS, sample_weight=weights)


def test_an_index_that_may_mean_positions_is_refused():
    rows = ROWS.reset_index(drop=True).iloc[ORDER]
    with pytest.raises(ValueError, match=r"pass weights.loc\[rows.index\] to match by name"):
        dc.KMeans(3).fit(rows, sample_weight=WEIGHTS.reset_index(drop=True))
    few = rows.iloc[:30]  # of a default index of another length: by position
    dc.KMeans(3).fit(few, sample_weight=pd.Series(np.ones(30)))
