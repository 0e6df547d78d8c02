from __future__ import annotations

import time

from distributed import Client

from daskcluster.engine.registry import Demand


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
