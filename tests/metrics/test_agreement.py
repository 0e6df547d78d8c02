"""Agreement of labellings equals scikit-learn's, wherever the labels live."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import sklearn.metrics as peer
import zarr

from daskcluster import metrics
from daskcluster.errors import InvalidDataError, InvalidParameterError
from daskcluster.metrics import agreement

PAIRS = {
    "adjusted_rand_index": peer.adjusted_rand_score,
    "adjusted_mutual_info": peer.adjusted_mutual_info_score,
    "normalized_mutual_info": peer.normalized_mutual_info_score,
    "v_measure": peer.v_measure_score,
    "homogeneity": peer.homogeneity_score,
    "completeness": peer.completeness_score,
    "mutual_info": peer.mutual_info_score,
    "rand_index": peer.rand_score,
    "fowlkes_mallows": peer.fowlkes_mallows_score,
}
EDGES = {
    "one row": ([0], [5]),
    "one label on both sides": ([1, 1, 1], [2, 2, 2]),
    "one class": ([1, 1, 1, 1], [0, 1, 2, 0]),
    "one cluster": ([0, 1, 2, 0], [1, 1, 1, 1]),
    "all apart": ([0, 1, 2, 3], [3, 2, 1, 0]),
    "classes of one": ([0, 1, 2, 3, 4], [0, 0, 1, 1, 1]),
    "independent": ([0, 0, 1, 1], [0, 1, 0, 1]),
    "strings": (["b", "a", "b", "c"], ["x", "y", "x", "y"]),
}


def random_labels(seed: int, n: int = 500, classes: int = 7, clusters: int = 11) -> tuple:
    draw = np.random.default_rng(seed)
    true = draw.integers(0, classes, n)
    moved = draw.random(n) < 0.4
    return true, np.where(moved, draw.integers(0, clusters, n), true + 3)


def test_values_are_those_of_scikit_learn() -> None:
    labellings = EDGES | {f"seed {seed}": random_labels(seed) for seed in range(3)}
    for (name, theirs), (case, (true, predicted)) in itertools.product(
        PAIRS.items(), labellings.items()
    ):
        ours, expected = getattr(metrics, name)(true, predicted), theirs(true, predicted)
        assert ours == pytest.approx(expected, rel=1e-12, abs=1e-12), (name, case)


def test_options_are_those_of_scikit_learn() -> None:
    true, predicted = random_labels(3)
    averages = [{"average_method": kind} for kind in ("arithmetic", "geometric", "min", "max")]
    for name, options in (
        *itertools.product(("adjusted_mutual_info", "normalized_mutual_info"), averages),
        ("v_measure", {"beta": 0.5}),
    ):
        ours = getattr(metrics, name)(true, predicted, **options)
        expected = PAIRS[name](true, predicted, **options)
        assert ours == pytest.approx(expected, rel=1e-12), (name, options)


def best_matching(true: np.ndarray, predicted: np.ndarray) -> float:
    """All one-to-one matchings, tried."""
    classes, clusters = np.unique(true), np.unique(predicted)
    none = [None] * len(classes)
    shares = (
        sum(
            np.sum((true == a) & (predicted == b))
            for a, b in zip(classes, chosen, strict=True)
            if b is not None
        )
        for chosen in itertools.permutations([*clusters, *none], len(classes))
    )
    return max(shares) / len(true)


def test_accuracy_is_that_of_the_best_matching() -> None:
    for seed, shape in enumerate([(3, 4), (4, 2), (3, 3)]):
        true, predicted = random_labels(seed, 60, *shape)
        true, predicted = true % shape[0], predicted % shape[1]
        assert metrics.accuracy(true, predicted) == pytest.approx(best_matching(true, predicted))


def test_purity_counts_the_commonest_class() -> None:
    true, predicted = random_labels(5)
    table = peer.cluster.contingency_matrix(true, predicted)
    assert metrics.purity(true, predicted) == table.max(axis=0).sum() / len(true)


def test_large_counts_neither_overflow_nor_round() -> None:
    n = 1 << 34
    table = metrics.Contingency(
        np.arange(2), np.arange(2), np.array([[0, 0], [0, 1], [1, 1]]), np.array([n, 3, n])
    )
    assert 1.0 - metrics.adjusted_rand_index(table) == pytest.approx(6.0 / n, rel=1e-3)
    assert metrics.adjusted_mutual_info(table) == pytest.approx(1.0, abs=1e-8)
    assert metrics.accuracy(table) == (2 * n) / (2 * n + 3)
    even = metrics.Contingency(
        np.arange(2), np.arange(2), np.array([[0, 0], [1, 1]]), np.full(2, 3_000_000_000)
    )
    assert metrics.rand_index(even) == metrics.fowlkes_mallows(even) == 1.0
    assert metrics.mutual_info(even) == pytest.approx(np.log(2.0))


def test_labels_in_zarr_come_block_by_block(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    true, predicted = random_labels(6)
    url = str(tmp_path / "labels.zarr")
    zarr.create_array(url, data=predicted.astype(np.int32), chunks=(64,))
    monkeypatch.setattr(agreement, "BLOCK_ROWS", 128)
    found = metrics.contingency(true, url)
    assert np.array_equal(found.table(), peer.cluster.contingency_matrix(true, predicted))
    assert metrics.adjusted_rand_index(found) == metrics.adjusted_rand_index(true, predicted)


def test_lengths_and_shapes_are_checked() -> None:
    with pytest.raises(InvalidDataError, match=r"inconsistent numbers of samples: \[2, 3\]"):
        metrics.purity([0, 1], [0, 1, 2])
    with pytest.raises(InvalidDataError, match=r"labels_pred of shape \(1, 2\)"):
        metrics.purity([0, 1], [[0, 1]])
    with pytest.raises(InvalidParameterError, match="labels of both sides"):
        metrics.purity([0, 1])
    with pytest.raises(InvalidParameterError, match="average_method='mean' should be one of"):
        metrics.normalized_mutual_info([0, 1], [0, 1], average_method="mean")
