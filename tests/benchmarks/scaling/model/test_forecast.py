"""The model against arithmetic by hand, and what must hold for any figures."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from daskcluster.engine import pass_run as wire
from daskcluster.estimators.plan import DriverWork, PassTraffic
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.forecast import (
    FitForecast,
    count_tasks,
    forecast,
    forecast_fit,
)
from tests.benchmarks.scaling.model.rates import KernelRate, Rates, RoleRate
from tests.benchmarks.scaling.model.work import FitWork, PassWork

FREE = RoleRate(0.0, 0.0, 0.0, 0.0, 0.0)
RATES = Rates(
    nearest=KernelRate(1e-11, 1e-10, 1e-9),
    truncated=KernelRate(0.0, 1e-9, 1e-7),
    scan=KernelRate(0.0, 1e-10, 0.0),
    decode=1e-9,
    client=RoleRate(1e-3, 2e-3, 1e-5, 1e-4, 1e-9),
    scheduler=RoleRate(1e-3, 1e-3, 2e-5, 1e-4, 2e-9),
    worker=RoleRate(0.0, 1e-3, 1e-5, 0.0, 1e-9),
    together=1.0,
    round_trip=5e-3,
)
PASS = PassWork(
    "nearest", n_rows=1e6, values=1e8, products=1e10, partitions=100, travel=PassTraffic(1000, 8000)
)
KERNEL = 1e-11 * 1e10 + 1e-10 * 1e8 + 1e-9 * 1e6


def test_threads_of_this_process_compute_and_read() -> None:
    found = forecast(replace(PASS, decoded=1e8), Cluster(0, 2), RATES)
    assert found.seconds == pytest.approx((KERNEL + 0.1) / 2)
    assert found.terms["decode"] == pytest.approx(0.05)
    assert (found.n_tasks, found.bottleneck) == (0, "kernel")


def test_every_term_by_hand() -> None:
    cluster = Cluster(4, bandwidth=1e8, store_bandwidth=1e7, latency=1e-3)
    found = forecast(replace(PASS, fetched=1e7, handles=50), cluster, RATES)
    tasks = found.n_tasks
    assert tasks == 4 * (1 + 2)  # of 25 partitions, two are handed out last
    assert found.terms == pytest.approx(
        {
            "kernel": KERNEL / 4,
            "decode": 0.0,
            "store": 1.0,
            "broadcast": tasks * 1000 * (1e-8 + 3e-9),
            "reduction": tasks * 8000 * (2e-8 + 4e-9),
            "client": 1e-3 + 2e-3 * tasks + 1e-5 * 50 + 1e-4 * 4,
            "scheduler": 1e-3 + 1e-3 * tasks + 2e-5 * 50 + 1e-4 * 4,
            "latency": 5e-3 + 1e-3 * (2 + 4 * math.ceil(tasks / wire.FETCHED_TOGETHER)),
        }
    )
    nearby = sum(found.terms[name] for name in ("broadcast", "reduction", "latency"))
    control = found.terms["client"] + found.terms["scheduler"]
    assert found.seconds == pytest.approx(1.0 + control / 2 + nearby)


def test_partitions_are_not_cut() -> None:
    work = replace(PASS, products=1e12, partitions=10)
    seconds = {w: forecast(work, Cluster(w), RATES).terms["kernel"] for w in (5, 8, 10, 100)}
    assert seconds[5] == pytest.approx(seconds[8])  # two partitions for the busiest of them
    assert seconds[10] == pytest.approx(seconds[100]) == pytest.approx(seconds[5] / 2)


@pytest.mark.parametrize("workers", [1, 3, 40, 1000])
def test_better_lines_and_processors_never_make_it_slower(workers: int) -> None:
    work = replace(
        PASS, fetched=1e9, decoded=1e9, handles=100, travel=PassTraffic(10**7, 10**6, 10**6)
    )
    plain = Cluster(workers, bandwidth=1e8, store_bandwidth=1e8, latency=1e-3)
    before = forecast(work, plain, RATES).seconds
    for better in (
        {"bandwidth": 1e9}, {"store_bandwidth": 1e9}, {"latency": 0.0}, {"bandwidth": math.inf},
    ):  # fmt: skip
        assert forecast(work, replace(plain, **better), RATES).seconds <= before
    free = replace(RATES, client=FREE, scheduler=FREE, worker=FREE, round_trip=0.0)
    assert forecast(work, plain, free).seconds < before


def test_tails_are_as_the_engine_hands_them_out() -> None:
    work = replace(PASS, partitions=400)
    assert count_tasks(work, Cluster(4), compute=10.0) == 4 * (1 + 4)
    assert count_tasks(work, Cluster(4), compute=0.1) == 4  # not worth a round trip
    large = replace(work, travel=PassTraffic(sent=500_000, returned=5_000_000))
    assert count_tasks(large, Cluster(4), compute=10.0) == 4 * (1 + 4)
    assert count_tasks(large, Cluster(4), compute=3.0) == 4  # its bytes take the driver longer
    assert count_tasks(work, Cluster(4), compute=3.0) == 4 * (1 + 4)
    assert count_tasks(work, Cluster(200), compute=10.0) == 200  # two each: none to spare
    assert count_tasks(work, Cluster(1000), compute=10.0) == 400


def test_a_fit_is_its_passes_and_the_work_on_few_rows() -> None:
    stage = DriverWork("truncated", n_rows=1000, n_features=10, flop=0.0, passes_at_most=50)
    work = FitWork(replace(PASS, decoded=1e9), PASS, 5, stage, replace(PASS, written=4e6))
    found = forecast_fit(work, Cluster(2, driver_threads=4), RATES)
    assert found.stage == pytest.approx(50 * (1e-9 * 1e4 + 1e-7 * 1e3) / 4)
    assert found.seconds == pytest.approx(
        found.first.seconds + 4 * found.later.seconds + found.stage
    )
    assert found.bottleneck == "kernel"
    assert FitForecast(found.first, found.later, found.labels, 9.0, 10.0).bottleneck == "driver"
