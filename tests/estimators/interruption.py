"""Fits that die after a commit, and what two fits that should be the same must have in common."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import Document


class Killed(BaseException):
    """Nobody catches it."""


def die_after(monkeypatch: pytest.MonkeyPatch, n_commits: int) -> None:
    """Let this process do nothing more once so many commits are made, by all threads together."""
    commit, lock, made = CheckpointFolder.commit, threading.Lock(), [0]

    def last(self: CheckpointFolder, state: Document) -> None:
        with lock:
            if made[0] == n_commits:
                raise Killed
            commit(self, state)
            made[0] += 1
            if made[0] == n_commits:
                raise Killed

    monkeypatch.setattr(CheckpointFolder, "commit", last)


def killed(fit: Any, n_commits: int) -> bool:
    """Call `fit` and let it die after so many commits; return False if it ends before."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        die_after(monkeypatch, n_commits)
        try:
            fit()
        except Killed:
            return True
    return False


def record_chunks(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, most: int | None = None
) -> list[int]:
    """Record the first row of each chunk that a function of chunks gets; die when it got `most`."""
    whole, starts = getattr(module, name), list[int]()

    def recorded(chunk: Any, *arguments: Any) -> Any:
        if len(starts) == most:
            raise Killed
        starts.append(chunk.start)
        return whole(chunk, *arguments)

    monkeypatch.setattr(module, name, recorded)
    return starts


WORK = frozenset({"seconds", "bytes_read", "n_touched", "n_distances", "gram_seconds"})
"""What a record says of the work, which an interruption may change."""


ARRAYS = (
    "cluster_centers_", "labels_", "cluster_costs_", "counts_", "start_inertias_", "support_",
    "support_clusters_", "support_coefficients_", "coarse_centers_", "coarse_sizes_", "quotas_",
)  # fmt: skip


def same(one: Any, other: Any) -> None:
    """Two fits have come to the same bits."""
    for name in ARRAYS:
        if hasattr(one, name):
            assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name
    for name in ("inertia_", "n_iter_", "n_steps_", "stop_reason_", "seeding_"):
        assert getattr(one, name, None) == getattr(other, name, None), name
    assert [summary(record) for record in one.history_] == [
        summary(record) for record in other.history_
    ]


def summary(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in WORK}
