"""Every declared cell: a result keeps its bits where nothing is declared, and changes where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daskcluster.data import dataset
from daskcluster.invariance import CIRCUMSTANCES
from daskcluster.methods.minibatch import estimator as minibatch
from tests.digests.digest import committed
from tests.invariances.cases import CASES, run, situations
from tests.invariances.declarations import BEGIN, END, PAGE, declarations, subjects, table

DIGESTS = {
    "KMeans": "kmeans-", "MiniBatchKMeans": "mini-batch-f", "NestedMiniBatchKMeans": "nested-",
    "VarianceReducedKMeans": "vrkm", "BackwardEulerKMeans": "backward-euler-",
    "CoresetKMeans": "coreset-", "LightweightCoreset": "lightweight-coreset-",
    "HierarchicalKMeans": "hierarchical-", "StreamingKMeans": "streaming-",
    "KernelKMeans": "kernel-", "MiniBatchKernelKMeans": "mini-batch-kernel-",
    "VariationalGaussianMixture": "mixture-",
}  # fmt: skip
"""Fits whose bits are compared on every kind of processor (`.ci/run cpus`)."""

NOT_SHOWN = {
    ("MiniBatchKMeans", "memory_limit"),
    ("BackwardEulerKMeans", "memory_limit"),
    ("MiniBatchKernelKMeans", "memory_limit"),
    ("jobs.fit", "memory_limit"),
    ("near_duplicates", "order"),
    ("jobs.dedup", "order"),
    ("jobs.stream", "storage"),
}
"""Declared changes that rows as few as these do not show."""


@pytest.fixture
def small_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows be treated as those are that exceed 256 MB."""
    monkeypatch.setattr(minibatch, "ROOM_BYTES", 40_000)
    monkeypatch.setattr(dataset, "WHOLE_BYTES", 40_000)
    monkeypatch.setattr(dataset, "MOST_BYTES", 30_000)


@pytest.mark.parametrize("name", CASES)
def test_every_declared_cell(
    name: str, client: Any, small_rooms: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    varies, found, wrong = declarations()[name], dict[Any, Any](), []
    for circumstance, pair in situations(client, name).items():
        for situation in pair:
            if situation not in found:
                found[situation] = run(CASES[name], situation)
        is_same = found[pair[0]] == found[pair[1]]
        if is_same != (circumstance not in varies) and (name, circumstance) not in NOT_SHOWN:
            wrong.append(f"{circumstance}: {'the same' if is_same else 'other'} bits")
    assert not wrong, f"{name} declares {dict(varies)}, but there are {wrong}"


def test_all_that_computes_declares_and_is_tested() -> None:
    assert declarations().keys() == subjects().keys() == CASES.keys()


def test_every_estimator_has_bits_that_are_compared_on_every_processor() -> None:
    assert not [name for name, each in declarations().items() if "cpu" in each]
    estimators = {name for name in declarations() if name[0].isupper()}
    assert estimators == DIGESTS.keys()
    for start in DIGESTS.values():
        assert any(name.startswith(start) for name in committed()), start


def test_the_page_has_the_table() -> None:
    text = (Path(__file__).parents[2] / PAGE).read_text()
    printed = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert printed == table().strip(), "run python -m tests.invariances"
    assert all(f"**{name.replace('_', ' ')}**" in text for name in CIRCUMSTANCES)
