"""Mixtures and mini-batches, driven by the loop of streams."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster import jobs
from daskcluster.data.writer import write_rows
from daskcluster.errors import CheckpointError, InvalidParameterError, WrongTypeError
from tests.benchmarks.bench_stream_drift import FOLLOWERS, follow
from tests.methods.streaming.service.feeds import bits, open_loop, portion, put

N = 8
ROWS = np.concatenate([portion(number) for number in range(N)])
others = pytest.mark.parametrize("algorithm", ["mini-batch", "vc-gmm"])
every = pytest.mark.parametrize("algorithm", ["streaming", "mini-batch", "vc-gmm"])


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("of-learners") / "feed"
    for number in range(N):
        put(folder, number)
    return folder


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("streaming", {}),
        ("streaming", {"half_life": 2000, "metric": "cosine"}),
        ("mini-batch", {"half_life": 2000, "learning_rate": "sqrt"}),
        ("mini-batch", {"metric": "cosine"}),
        ("vc-gmm", {}),
        ("vc-gmm", {"half_life": 2000, "covariance_type": "isotropic"}),
        ("vc-gmm", {"window": 4000}),
    ],
)
def test_one_cycle_per_object_equals_one_cycle_for_all(
    feed: Path, tmp_path: Path, algorithm: str, options: dict[str, Any]
) -> None:
    options = {"algorithm": algorithm, **options}
    whole = open_loop(feed, tmp_path / "whole", labels=str(tmp_path / "ours"), **options)
    cycle = whole.cycle()
    assert (cycle.rows_seen, cycle.model_version, cycle.new_objects) == (N * 700, N * 700, N)
    parts, labels = tmp_path / "parts", str(tmp_path / "theirs")
    for number in range(N):
        shutil.copytree(feed / f"part-{number:04d}.zarr", parts / f"part-{number:04d}.zarr")
        loop = open_loop(parts, tmp_path / "apart", labels=labels, **options)
        cycle = loop.cycle()
        assert (cycle.rows_seen, cycle.model_version) == ((number + 1) * 700,) * 2
    assert bits(loop) == bits(whole)
    again = open_loop(feed, tmp_path / "whole", **options)
    assert bits(again) == bits(whole)
    cycle = again.cycle()
    assert (cycle.new_rows, cycle.new_objects, cycle.rows_seen) == (0, 0, N * 700)
    for number in range(2, N):  # the first leaf is in the two before
        one, two = (
            zarr.open_array(str(tmp_path / name / f"part-{number:04d}.zarr"), mode="r")[:]
            for name in ("ours", "theirs")
        )
        assert np.array_equal(one, two)


@every
def test_workers_give_the_same_state(
    feed: Path, tmp_path: Path, client: Any, algorithm: str
) -> None:
    loops = [
        open_loop(feed, tmp_path / name, algorithm=algorithm, engine=engine)
        for name, engine in (("here", None), ("there", client))
    ]
    for loop in loops:
        loop.cycle()
    assert bits(loops[0]) == bits(loops[1])


def test_centres_moved_once_by_each_row(feed: Path, tmp_path: Path) -> None:
    loop = open_loop(feed, tmp_path / "state", algorithm="mini-batch")
    cycle = loop.cycle()
    model = dc.load_model(cycle.model)
    assert isinstance(model, dc.MiniBatchKMeans)
    assert model.batch_size == 64
    best = dc.KMeans(4, random_state=0, n_init=3).fit(ROWS)
    assert -model.score(ROWS) < 1.02 * best.inertia_
    # Each row once: that is what the centres have seen, and what clusters weigh.
    assert model.cluster_weights_.sum() == pytest.approx(len(ROWS))
    assert model.inertia_ == pytest.approx(best.inertia_, rel=0.05)
    assert model.n_iter_ == 5 * 16 + -(-(len(ROWS) - 5 * 1024) // 64)
    assert cycle.remembered == len(ROWS)
    # Nothing is kept but the rows of the open leaf.
    assert loop.state.fold.tree.kept_rows == len(ROWS) - 5 * 1024
    before = model.cluster_centers_.copy()
    model.partial_fit(ROWS[:100] + np.float32(1))
    assert 0 < np.abs(model.cluster_centers_ - before).max() < 1


def test_rows_in_the_order_of_a_feature(tmp_path: Path) -> None:
    put(tmp_path / "feed", 0, ROWS[np.argsort(ROWS[:, 0])])
    options = {"algorithm": "mini-batch", "batch_size": 350, "learning_rate": "sqrt"}
    cycle = open_loop(tmp_path / "feed", tmp_path / "state", **options).cycle()
    best = dc.KMeans(4, random_state=0, n_init=3).fit(ROWS)
    # One leaf, which is shuffled: cut as they lie, the last batches would draw centres to one side.
    assert -dc.load_model(cycle.model).score(ROWS) < 1.05 * best.inertia_


def test_a_mixture_of_the_summary(feed: Path, tmp_path: Path) -> None:
    cycle = open_loop(feed, tmp_path / "state", algorithm="vc-gmm", coreset_size=300).cycle()
    model = dc.load_model(cycle.model)
    assert isinstance(model, dc.VariationalGaussianMixture)
    assert model.coreset_size == 300
    full = dc.VariationalGaussianMixture(4, covariance_type="diag", random_state=0).fit(ROWS)
    assert model.score(ROWS) > full.score(ROWS) - 0.1
    assert model.covariances_.shape == (4, 3)
    assert model.covariances_ == pytest.approx(1.0, abs=0.5)
    assert model.weights_ == pytest.approx(0.25, abs=0.05)
    assert model.predict_proba(ROWS[:5]).shape == (5, 4)
    assert cycle.n_clusters == 4
    assert cycle.algorithm == "vc-gmm"


def test_rows_belong_to_the_component_with_the_largest_posterior(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(700, 2)) * 12
    narrow = rng.normal(size=(700, 2)) * 0.5 + 15
    for number in range(3):
        rows = np.concatenate([wide, narrow]) + rng.normal(size=(1400, 2)) * 0.1
        put(tmp_path / "feed", number, rows[rng.permutation(1400)].astype(np.float32))
    options = {"algorithm": "vc-gmm", "n_clusters": 2, "covariance_type": "spherical"}
    places = {"labels": str(tmp_path / "labels"), "distances": str(tmp_path / "far")}
    loop = open_loop(tmp_path / "feed", tmp_path / "state", **options, **places)
    cycle = loop.cycle()
    rows = zarr.open_array(str(tmp_path / "feed" / "part-0002.zarr"), mode="r")[:]
    model = dc.load_model(cycle.model)
    labels = zarr.open_array(str(tmp_path / "labels" / "part-0002.zarr"), mode="r")[:]
    far = zarr.open_array(str(tmp_path / "far" / "part-0002.zarr"), mode="r")[:]
    assert np.mean(labels == model.predict(rows)) > 0.97
    gaps = np.linalg.norm(rows[:, None] - model.means_[None], axis=2)
    # The nearest mean is another one for many rows.
    assert np.mean(labels == gaps.argmin(axis=1)) < 0.97
    assert far.mean() == pytest.approx(gaps[np.arange(len(rows)), labels].mean(), rel=0.1)


def test_half_lives_by_time_apply_to_mini_batches(tmp_path: Path) -> None:
    for number, stamp in enumerate(["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"]):
        put(tmp_path / "feed", number, portion(number, 1024), timestamp=stamp)
    loop = open_loop(tmp_path / "feed", tmp_path / "state", algorithm="mini-batch", half_life="1h")
    assert loop.cycle().remembered == pytest.approx(512 + 1024)
    # One that is late counts as old as it is.
    put(tmp_path / "feed", 2, portion(2, 1024), timestamp="2025-12-31T23:00:00Z")
    cycle = loop.cycle()
    assert cycle.remembered == pytest.approx(512 + 1024 + 256)
    weights = dc.load_model(cycle.model).cluster_weights_
    assert weights.sum() == pytest.approx(cycle.remembered)


@others
def test_rows_without_weight_change_nothing(tmp_path: Path, algorithm: str) -> None:
    for number in range(3):
        rows, weights = portion(number).astype(np.float64), np.full(700, 2.0)
        rows[::2], weights[::2] = 1e3, 0.0
        group = zarr.create_group(str(tmp_path / "feed" / f"{number}.zarr"))
        group.create_array("X", data=rows, chunks=(300, 3))
        group.create_array("w", data=weights, chunks=(300,))
    places = {"array": "X", "weights": "w", "labels": str(tmp_path / "labels")}
    loop = open_loop(tmp_path / "feed", tmp_path / "state", algorithm=algorithm, **places)
    cycle = loop.cycle()
    assert cycle.remembered == 3 * 700
    model = dc.load_model(cycle.model)
    centres = getattr(model, "means_", None)
    centres = model.cluster_centers_ if centres is None else centres
    assert centres.dtype == np.float64
    assert np.abs(centres).max() < 12
    assert bits(
        open_loop(
            tmp_path / "feed", tmp_path / "state", algorithm=algorithm, array="X", weights="w"
        )
    ) == bits(loop)


@others
def test_drift_is_found(tmp_path: Path, algorithm: str) -> None:
    for number in range(6):
        put(tmp_path / "feed", number, portion(number, 1024))
    loop = open_loop(tmp_path / "feed", tmp_path / "state", algorithm=algorithm)
    assert loop.cycle().drifts == ()
    put(tmp_path / "feed", 7, portion(7, 1024) + np.float32(200))
    (drift,) = loop.cycle().drifts
    assert drift["ratio"] > 1.5
    assert loop.cycle().n_clusters == 4


@every
def test_odd_objects_are_reported_for_all_algorithms(tmp_path: Path, algorithm: str) -> None:
    feed, good = tmp_path / "feed", [portion(number) for number in range(6)]
    for number in (0, 1, 3, 4):
        put(feed, number, good[number])
    chunk = feed / "part-0001.zarr" / "c" / "1" / "0"
    shutil.move(chunk, tmp_path / "chunk")
    (feed / "part-0004.zarr" / "c" / "0" / "0").write_bytes(b"no chunk")
    loop = open_loop(feed, tmp_path / "state", algorithm=algorithm)
    assert message(loop.cycle()) == {"part-0001.zarr": "unsettled", "part-0004.zarr": "corrupt"}
    shutil.move(tmp_path / "chunk", chunk)
    put(feed, 2, good[2])
    shutil.copytree(feed / "part-0000.zarr", feed / "part-0000.zarr-again")
    cycle = loop.cycle()
    late = dict.fromkeys(("part-0001.zarr", "part-0002.zarr"), "late")
    assert message(cycle) == {**late, "part-0000.zarr-again": "duplicate"}
    before = bits(loop)
    shutil.rmtree(feed / "part-0003.zarr")
    put(feed, 3, good[3][:90])
    zarr.open_array(str(feed / "part-0000.zarr"))[:5] = 7.0
    found = message(loop.cycle())
    assert (found["part-0003.zarr"], found["part-0000.zarr"]) == ("shrunk", "changed")
    assert bits(loop) == before
    plain = tmp_path / "plain"
    for place, number in enumerate((0, 3, 1, 2)):
        put(plain, place, good[number])
    whole = open_loop(plain, tmp_path / "whole", algorithm=algorithm)
    assert whole.cycle().rows_seen == cycle.rows_seen == 4 * 700
    assert bits(whole)["arrays"] == before["arrays"]
    assert bits(whole)["model"] == before["model"]


def message(cycle: Any) -> dict[str, str]:
    return {finding.name: str(finding.oddity) for finding in cycle.findings}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_moving_clusters_are_followed(tmp_path: Path, name: str) -> None:
    found = follow(tmp_path, 120, FOLLOWERS[name], stop=14)
    # The error of rows that have just come, over that about their true middles.
    if "nothing forgotten" in name:
        assert found["excess"][-1] > 2.0
    else:
        assert found["excess"][-1] < 1.0


def jumping(number: int) -> np.ndarray:
    """Return the rows of an object; from the seventh on, the last of four clusters is elsewhere."""
    rng, middles = np.random.default_rng(number), 9.0 * np.eye(4, 3)
    middles[3] = [-30, -30, 0] if number < 6 else [30, 4, 0]
    return (middles[rng.integers(0, 4, 1024)] + rng.normal(size=(1024, 3))).astype(np.float32)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_cluster_that_jumps_is_found_again(tmp_path: Path, metric: str) -> None:
    options = {"algorithm": "mini-batch", "half_life": 700, "metric": metric}
    for number in range(10):
        put(tmp_path / "feed", number, jumping(number))
        loop = open_loop(tmp_path / "feed", tmp_path / "apart", **options)
        cycle = loop.cycle()
    whole = open_loop(tmp_path / "feed", tmp_path / "whole", **options)
    whole.cycle()
    assert bits(loop) == bits(whole)
    model, rows = dc.load_model(cycle.model), jumping(11)
    if metric == "cosine":
        return
    best = dc.KMeans(4, n_init=3, random_state=0).fit(rows)
    assert -model.score(rows) < 1.2 * best.inertia_
    births, weights = loop.state.fold.fitted.births, model.cluster_weights_
    assert np.sum(births > 6 * 1024) == 1
    assert weights.sum() == pytest.approx(cycle.remembered)
    # It is not, if centres are to stay with their rows.
    stays = open_loop(tmp_path / "feed", tmp_path / "stays", reassignment_ratio=0.0, **options)
    left = dc.load_model(stays.cycle().model)
    assert -left.score(rows) > 5 * best.inertia_


def test_sparse_rows(tmp_path: Path) -> None:
    from scipy.sparse import csr_array

    for number in range(3):
        rows = dc.open_dataset(csr_array(np.where(portion(number) > 0, portion(number), 0)))
        write_rows(str(tmp_path / "feed" / f"{number}.zarr"), [rows.held], rows)
    loop = open_loop(tmp_path / "feed", tmp_path / "state", algorithm="mini-batch")
    assert loop.cycle().rows_seen == 2100
    again = open_loop(tmp_path / "feed", tmp_path / "state", algorithm="mini-batch")
    assert bits(again) == bits(loop)
    with pytest.raises(WrongTypeError, match="'vc-gmm' takes dense rows"):
        open_loop(tmp_path / "feed", tmp_path / "other", algorithm="vc-gmm").cycle()


def test_unsupported_rows_and_parameters_are_refused(feed: Path, tmp_path: Path) -> None:
    def opened(**options: Any) -> Any:
        return jobs.open_stream(str(feed), state=str(tmp_path / "s"), n_clusters=4, **options)

    with pytest.raises(InvalidParameterError, match=r"'nested' should be one of streaming, mini-b"):
        opened(algorithm="nested")
    with pytest.raises(InvalidParameterError, match="'window' is a parameter of streaming, vc-gmm"):
        opened(algorithm="mini-batch", window=100)
    with pytest.raises(InvalidParameterError, match="batch_size"):
        opened(algorithm="mini-batch", batch_size=0)
    with pytest.raises(
        InvalidParameterError, match=r"\'drift_threshold\' .*\[1\.0, inf\)\. Got 0\.5"
    ):
        opened(algorithm="vc-gmm", drift_threshold=0.5)
    with pytest.raises(InvalidParameterError, match="covariance_type"):
        opened(algorithm="vc-gmm", covariance_type="round")
    with pytest.raises(InvalidParameterError, match="coreset_size"):
        opened(algorithm="vc-gmm", coreset_size=2)
    open_loop(feed, tmp_path / "state", algorithm="mini-batch").cycle()
    with pytest.raises(CheckpointError, match="algorithm was 'mini-batch' and is 'vc-gmm'"):
        open_loop(feed, tmp_path / "state", algorithm="vc-gmm")
