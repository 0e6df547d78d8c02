"""What a cluster of ours opens, it opens to this host alone."""

from __future__ import annotations

import ipaddress

import psutil

from daskcluster.engine.connect import local_cluster


def listening() -> set[tuple[str, int]]:
    """Return addresses and ports on which this process and its children wait for callers."""
    here = psutil.Process()
    return {
        (found.laddr.ip, found.laddr.port)
        for process in (here, *here.children(recursive=True))
        for found in process.net_connections(kind="tcp")
        if found.status == psutil.CONN_LISTEN
    }


def test_a_local_cluster_and_its_pages_listen_on_loopback_only() -> None:
    before = listening()
    with local_cluster(2) as client:
        opened = listening() - before
        # Scheduler, its pages, and of every worker the nanny, the worker and its pages.
        assert len(opened) >= 5
        assert [each for each in opened if not ipaddress.ip_address(each[0]).is_loopback] == []
        assert client.dashboard_link.startswith("http://127.0.0.1:")
    assert listening() - before == set()
