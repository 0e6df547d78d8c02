"""A cluster is lost with its scheduler: the same name continues at another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskcluster import jobs
from daskcluster.models.fitted import load_document
from tests.data.conftest import KEY_ID, SECRET
from tests.jobs.conftest import Cluster, reached

FIT: dict[str, Any] = {
    "n_clusters": 60, "algorithm": "lloyd", "init": "random", "random_state": 5, "tol": 0.0,
    "max_iter": 40, "checkpoint_every": 4, "n_init": 1,
}  # fmt: skip


@pytest.fixture
def clusters(tmp_path: Path, s3: dict[str, Any]) -> Iterator[list[Cluster]]:
    """Yield two clusters of one worker."""
    secrets = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    with ExitStack() as stack:
        found = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            found.append(Cluster(tmp_path / name, secrets))
            stack.callback(found[-1].close)
            found[-1].add_worker()
        yield found


@pytest.mark.slow
def test_a_job_continues_at_another_cluster(
    clusters: list[Cluster],
    s3: dict[str, Any],
    endpoint: dict[str, Any],
    source: str,
    noise: np.ndarray,
) -> None:
    one, two = clusters
    model = "s3://rows/jobs/moved"
    message = {"name": "moved", "model": model, "storage_options": endpoint, **FIT}

    with one.client() as client:
        client.wait_for_workers(1, timeout=200)
        jobs.submit(client, jobs.fit, source, **message)
        reached(client, "moved", 9)
        one.kill_scheduler()
    with two.client() as client:
        client.wait_for_workers(1, timeout=200)
        jobs.submit(client, jobs.fit, source, **message)
        found = jobs.wait(client, "moved", timeout=240)
        assert (found.state, found.attempt) == ("done", 2), found
        texts = [text for _, text in jobs.logs(client, "moved")]
        assert any("resumes from its checkpoint" in text for text in texts)
    jobs.fit(noise, model="memory://expected/moved", engine="local", **FIT)
    written, expected = load_document(model, s3), load_document("memory://expected/moved")
    assert written.centres.tobytes() == expected.centres.tobytes()
    assert (written.inertia, written.n_iter) == (expected.inertia, expected.n_iter)
