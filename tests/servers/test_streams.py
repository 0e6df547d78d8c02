"""Streams of a bucket on a server that is not ours: what arrives oddly, and loops that are killed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import zarr

from daskcluster.storage.location import locate
from tests.benchmarks.harness.race import say
from tests.methods.streaming.service.feeds import bits, open_loop, portion
from tests.methods.streaming.service.killing import begin_together, good_rows, start
from tests.servers.conftest import Server

real = pytest.mark.parametrize("server", ["ceph"], indirect=True)
tagged = pytest.mark.parametrize("server", ["moto", "ceph"], indirect=True)
"""Stores whose tags are digests of the content: they know a copy."""

PATIENCE = 1500
"""Seconds, on a machine that does other things besides."""


class Bucket:
    """A prefix of its own in a container, into which objects are put."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.options = server, dict(server.options)
        self.name, self.url = name, f"{server.url}/{name}"
        self.fs, self._path = locate(self.url, self.options).filesystem()

    def put(self, name: str, rows: np.ndarray, chunks: Sequence[int] = (0, 1, 2)) -> None:
        """Write an object, or only some of its three chunks."""
        array = zarr.create_array(
            f"{self.url}/feed/{name}",
            shape=rows.shape,
            chunks=(-(-len(rows) // 3), rows.shape[1]),
            dtype=rows.dtype,
            overwrite=True,
            storage_options=self.options,
        )
        self.fill(array, rows, chunks)

    def fill(self, array: Any, rows: np.ndarray, chunks: Sequence[int]) -> None:
        step = array.chunks[0]
        for number in chunks:
            array[number * step : (number + 1) * step] = rows[number * step : (number + 1) * step]

    def complete(self, name: str, rows: np.ndarray, chunks: Sequence[int]) -> None:
        """Write the chunks of an object that were left out."""
        url = f"{self.url}/feed/{name}"
        self.fill(zarr.open_array(url, mode="r+", storage_options=self.options), rows, chunks)

    def file(self, name: str) -> str:
        return f"{self._path}/feed/{name}"

    def clear(self) -> None:
        """Remove all objects of the prefix."""
        self.fs.invalidate_cache()
        self.fs.rm(self._path, recursive=True)

    def loop(self, state: str, **more: Any) -> Any:
        more = {"storage_options": self.options, **more}
        return open_loop(f"{self.url}/feed", f"{self.url}/{state}", **more)


@pytest.fixture
def bucket(server: Server, request: Any) -> Iterator[Bucket]:
    found = Bucket(server, re.sub(r"\W+", "-", request.node.name))
    yield found
    found.clear()


def findings(cycle: Any) -> dict[str, str]:
    return {finding.name: str(finding.oddity) for finding in cycle.findings}


@tagged
def test_late_broken_and_duplicate_objects(bucket: Bucket) -> None:
    good = {f"{number}.zarr": portion(number) for number in range(6)}
    loop = bucket.loop("state")
    bucket.put("0.zarr", good["0.zarr"])
    bucket.put("2.zarr", good["2.zarr"], chunks=(0, 2))  # half-written
    bucket.put("3.zarr", good["3.zarr"])
    broken = good["4.zarr"].copy()
    broken[5] = np.inf
    bucket.put("4.zarr", broken)
    cycle = loop.cycle()
    assert findings(cycle) == {"2.zarr": "unsettled", "4.zarr": "corrupt"}
    assert cycle.rows_seen == 1400

    bucket.put("1.zarr", good["1.zarr"])  # late, as is what has been completed
    bucket.complete("2.zarr", good["2.zarr"], (1,))
    bucket.put("4.zarr", good["4.zarr"])  # mended
    bucket.put("5.zarr", good["5.zarr"])
    bucket.fs.pipe_file(bucket.file("5.zarr/c/1/0"), b"not what a codec wrote")
    bucket.fs.copy(bucket.file("0.zarr"), bucket.file("0-again.zarr"), recursive=True)
    cycle = bucket.loop("state").cycle()
    message = {"1.zarr": "late", "2.zarr": "late", "0-again.zarr": "duplicate", "5.zarr": "corrupt"}
    assert findings(cycle) == message
    assert cycle.rows_seen == 5 * 700

    before = bits(bucket.loop("state"))
    bucket.fs.rm(bucket.file("3.zarr"), recursive=True)
    bucket.put("3.zarr", good["3.zarr"][:90])  # shrunk
    bucket.put("0.zarr", good["0.zarr"][::-1].copy())  # changed
    loop = bucket.loop("state")
    cycle = loop.cycle()
    assert findings(cycle)["3.zarr"] == "shrunk"
    assert findings(cycle)["0.zarr"] == "changed"
    assert (cycle.new_rows, bits(loop)) == (0, before)

    # The same rows, in the order in which they came, from a place where nothing was odd.
    folded = folded_of(loop)
    assert folded == ["0.zarr", "3.zarr", "1.zarr", "2.zarr", "4.zarr"]
    plain = Bucket(bucket.server, f"{bucket.name}/plain")
    for place, name in enumerate(folded):
        plain.put(f"{place}.zarr", good[name])
    whole = plain.loop("state")
    whole.cycle()
    assert bits(whole)["arrays"] == before["arrays"]
    assert bits(whole)["model"] == before["model"]


def folded_of(loop: Any) -> list[str]:
    """Return the objects that were folded, in order; refused ones stand where they were first looked at."""
    return [entry.name for entry in loop.state.ledger.entries if not entry.is_rejected]


def killed(bucket: Bucket, n_kills: int, n_objects: int, **more: Any) -> dict[str, Any]:
    """Kill loops while a process writes; return what it took."""
    feed, options = f"{bucket.url}/feed", json.dumps(bucket.options)
    loops = json.dumps({"storage_options": bucket.options, **more})
    killer = start("kill", feed, f"{bucket.url}/state", n_kills, loops)
    writer = start("write", feed, n_objects, 0.6 * n_kills / n_objects, options)
    begin_together(killer, writer)
    try:
        assert writer.wait(timeout=PATIENCE) == killer.wait(timeout=PATIENCE) == 0
    finally:
        for process in (killer, writer):
            process.kill()
    assert killer.stdout is not None
    took: dict[str, Any] = json.loads(killer.stdout.read())
    # A request of a process that was killed may still be carried out: then the next one gives up, and is
    # started again.
    assert took["ended"] <= n_kills // 5
    loop, whole = bucket.loop("state", **more), bucket.loop("whole", **more)
    took["before"] = loop.state.rows_seen
    loop.cycle()
    whole.cycle()
    took |= {"rows": loop.state.rows_seen, "commits": loop.state.n_commits}
    assert folded_of(loop) == folded_of(whole)
    assert bits(loop) == bits(whole)
    assert loop.state.rows_seen == good_rows(n_objects)
    assert loop.cycle().new_rows == 0
    return took


@real
def test_killed(bucket: Bucket) -> None:
    took = killed(bucket, 3, 12)
    assert took["before"] > 0


@real
@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
def test_killed_fifty_times(bucket: Bucket) -> None:
    say(str(killed(bucket, 50, 120)))
