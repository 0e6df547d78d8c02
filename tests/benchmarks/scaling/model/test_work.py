"""The work of fits follows from their plans, also of rows that nobody has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from daskcluster import KMeans, LocalEngine, open_dataset
from daskcluster.data.generate import Mixture, generate
from daskcluster.engine.memory import project
from daskcluster.methods.catalogue import ALGORITHMS, plan_of
from tests.benchmarks.scaling.generated import GeneratedDataset
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.projection import project_clusters
from tests.benchmarks.scaling.model.work import FitWork, fit_work

MIXTURE = Mixture(n_features=6, n_clusters=4, seed=3)


def work_of(dataset: Any, algorithm: str, *, memory: int = 8 << 30, **given: Any) -> FitWork:
    plan = plan_of(dataset, algorithm, {"n_clusters": 50, **given})
    assert plan is not None
    held = project(dataset, plan.footprint, limit=memory, n_threads=1)
    return fit_work(dataset, plan, held, 50, stored=0.5, touched=0.25)


def test_generated_rows_are_those_of_a_store(tmp_path: Path) -> None:
    generate(tmp_path / "r.zarr", n_rows=5000, n_features=6, n_clusters=4, seed=3)
    rows = GeneratedDataset(MIXTURE, 5000)
    stored = open_dataset(str(tmp_path / "r.zarr"))
    assert np.array_equal(rows.to_numpy(), stored.to_numpy())
    assert np.array_equal(rows.recipe().open().take(np.array([7, 4999])), stored.take([7, 4999]))
    assert np.array_equal(rows.to_scratch(str(tmp_path)).to_numpy(), stored.to_numpy())
    centres = stored.take(np.arange(4))
    one, two = (
        KMeans(4, init=centres, n_init=1, engine=LocalEngine(2)).fit(each)
        for each in (rows, stored)
    )
    assert one.cluster_centers_.tobytes() == two.cluster_centers_.tobytes()


def test_the_work_of_lloyds_passes() -> None:
    rows = GeneratedDataset(Mixture(100, 4), 10**7)
    work = work_of(rows, "lloyd", max_iter=9, init="random")
    assert work.first.products == 10**7 * 100 * 50
    assert (work.first.values, work.first.n_rows) == (10**9, 10**7)
    assert (work.first.decoded, work.first.fetched) == (4e9, 2e9)
    assert work.first.travel.sent == 50 * 100 * 4
    assert work.first.travel.returned == 8 * 50 * 101
    assert work.passes == 9 + 1
    assert 0 < work.later.decoded < work.first.decoded  # half of 8 GiB holds most of them
    assert work.later.products == work.first.products
    assert work.later.handles > 0
    assert (work.labels.products, work.labels.written) == (work.first.products, 4 * 10**7)


def test_a_coreset_is_drawn_in_two_passes_and_learnt_from_here() -> None:
    rows = GeneratedDataset(Mixture(100, 4), 10**6)
    work = work_of(rows, "vc-gmm", coreset_size=10_000, max_iter=30)
    assert (work.passes, work.first.kernel) == (2, "scan")
    assert work.first.travel.drawn == 10_000 * (400 + 48)
    assert work.stage is not None
    assert (work.stage.kernel, work.stage.n_rows, work.stage.passes_at_most) == (
        "truncated", 10_000, 30,
    )  # fmt: skip
    assert work_of(rows, "coreset", coreset_size=10_000).stage.kernel == "nearest"
    assert work_of(rows, "var-gmm").first.kernel == "truncated"


def test_every_algorithm_is_projected() -> None:
    rows = GeneratedDataset(Mixture(16, 4), 100_000)
    for algorithm in ALGORITHMS:
        plan = plan_of(rows, algorithm, {"n_clusters": 10})
        assert plan is not None
        (found,) = project_clusters(rows, plan, 10, [Cluster(2)], worker_memory=64 << 30)
        assert found.forecast is not None, algorithm
        assert found.forecast.seconds > 0
        assert found.facts()["later_pass"]["bottleneck"]


def test_a_fit_that_exceeds_the_memory_is_refused() -> None:
    rows = GeneratedDataset(Mixture(3072, 4), 80_000_000)
    plan = plan_of(rows, "lloyd", {"n_clusters": 1000})
    assert plan is not None
    few, many = project_clusters(
        rows, plan, 1000, [Cluster(10), Cluster(100)], worker_memory=300 << 20
    )
    assert "exceeds memory_limit" in few.refusal
    assert "exceeds memory_limit" in many.facts()["refusal"]
    assert few.forecast is None
