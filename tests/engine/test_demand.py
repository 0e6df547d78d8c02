from __future__ import annotations

import time

import pytest
from distributed import Client

from daskcluster.engine.demand import Demand, useful_threads


def has_target(client: Client, least: int, most: int) -> bool:
    for _ in range(200):
        if least <= client.sync(client.scheduler.adaptive_target) <= most:
            return True
        time.sleep(0.01)
    return False


def test_the_scheduler_sees_the_demand_until_it_is_closed(client: Client) -> None:
    workers = client.scheduler_info()["workers"].values()
    each = sum(info["nthreads"] for info in workers) // len(workers)
    with Demand(client) as demand:
        demand.show(10 * each)
        assert has_target(client, 10, 10)
        demand.show(16 * each)
        assert has_target(client, 16, 16)
        demand.show(6 * each)  # it never shrinks
        assert has_target(client, 16, 16)
    assert has_target(client, 0, 2)


@pytest.mark.parametrize(
    ("seconds", "partitions", "threads"),
    [(0.01, 100, 1), (1.0, 100, 4), (1.0, 3, 3), (1e6, 10**6, 400)],
)
def test_a_thread_is_worth_a_quarter_of_a_second(
    seconds: float, partitions: int, threads: int
) -> None:
    assert useful_threads(seconds, partitions) == threads
