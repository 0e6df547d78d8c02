"""A seeding from outside: farthest-first traversal of a sample (Gonzalez 1985)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.errors import InvalidParameterError
from daskcluster.extending import Seeding, register_seeding
from daskcluster.methods.kmeans.initial import SEEDINGS
from daskcluster.parameters.shared import METHODS
from daskcluster.seeding.methods import random_rows

NAME, SAMPLE = "farthest-first", 200


def farthest_first(
    rows: ScaledPlacement, n_clusters: int, seed: int, chain_length: int
) -> np.ndarray:
    sample, _ = random_rows(rows, SAMPLE, seed)
    chosen = [0]
    away = ((sample - sample[0]) ** 2).sum(axis=1)
    while len(chosen) < n_clusters:
        chosen.append(int(away.argmax()))
        away = np.minimum(away, ((sample - sample[chosen[-1]]) ** 2).sum(axis=1))
    return sample[chosen]


def register() -> None:
    register_seeding(Seeding(NAME, farthest_first, passes=lambda k: 1))


def forget() -> None:
    METHODS.remove(SEEDINGS.pop(NAME).name)


if "tests.extending.test_seeding" in os.environ.get("DASKCLUSTER_PRELOAD", ""):
    register()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register()
    yield
    forget()


def clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.repeat(20.0 * np.eye(6), 100, axis=0) + rng.standard_normal((600, 6))


@pytest.mark.parametrize("make", [dc.KMeans, dc.NestedMiniBatchKMeans, dc.HierarchicalKMeans])
def test_every_init_takes_its_name(make: Any) -> None:
    found = make(6, init=NAME, random_state=0).fit(clusters())
    assert sorted(found.cluster_sizes_) == [100] * 6


def test_any_engine_gives_the_same_bits(client: Any) -> None:
    here, there = (
        dc.KMeans(6, init=NAME, max_iter=0, random_state=1, engine=engine).fit(clusters())
        for engine in ("local", client)
    )
    assert here.seeding_ == there.seeding_ == NAME
    assert here.cluster_centers_.tobytes() == there.cluster_centers_.tobytes()


def test_the_command_line_takes_its_name_and_counts_its_passes(tmp_path: Path) -> None:
    rows = str(tmp_path / "rows.npy")
    np.save(rows, clusters())
    done = subprocess.run(
        [sys.executable, "-m", "daskcluster", "fit", rows, "--n-clusters", "6", "--init", NAME,
         "--max-iter", "4", "--dry-run", "--json"],
        env={**os.environ, "DASKCLUSTER_PRELOAD": "tests.extending.test_seeding"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["seeding"] == NAME
    assert record["passes_at_most"] == 1 + 4 + 1


def test_a_name_that_nobody_has_registered_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidParameterError, match=NAME):
        dc.KMeans(6, init="farthest-last").fit(clusters())
