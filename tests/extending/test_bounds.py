"""A kind of bounds from outside: an upper one alone, held against half the way to the next centre."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr

import daskcluster as dc
from daskcluster.chunkwise.statistics import StatefulReduction
from daskcluster.extending import BoundKind, register_bounds
from daskcluster.kernels.jit import tile_name
from daskcluster.kernels.tile import nearest
from daskcluster.methods.kmeans.bounds import BOUNDS
from daskcluster.methods.kmeans.chunkwise.bounded import (
    Bounded,
    BoundedParams,
    BoundedPass,
    BoundState,
    Changes,
    Gathered,
    fresh_state,
    prepare,
)
from daskcluster.methods.kmeans.chunkwise.kind import CostModel, Counts, Drift, Gaps
from daskcluster.methods.kmeans.kernels.bounds import HALF, OWN
from daskcluster.methods.kmeans.parameters import EXACT

SAFE = 1.0 + 1e-5


def failing(prepared: Bounded, state: BoundState, margin: np.ndarray) -> np.ndarray:
    drift, own = prepared.params.drift, state.labels
    upper = state.upper.astype(float) + drift[OWN, own]
    threshold = upper * upper + margin[0] * upper + margin[1]
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(~(drift[HALF, own] ** 2 > threshold))


def changed(
    some: Gathered, prepared: Bounded, into: Changes, state: BoundState
) -> tuple[np.ndarray, np.ndarray]:
    centres, drift = prepared.params.centres, prepared.params.drift
    rows, labels = np.ascontiguousarray(some.rows[some.at]), np.empty(len(some.at), np.int32)
    nearest(rows, prepared.panels, labels)
    away = np.sqrt(((rows.astype(float) - centres[labels]) ** 2).sum(axis=1)) * SAFE
    old = state.labels[some.which]
    state.labels[some.which] = labels
    state.upper[some.which] = (away - drift[OWN, labels]) + 1e-5 * (away + drift[OWN, labels])
    into.n_distances += len(rows) * len(centres)
    moved = np.flatnonzero(old != labels)
    return moved, old[moved]


def row_bytes(n_clusters: int, dtype: np.dtype[Any]) -> int:
    return 12


def fresh(n_rows: int, prepared: Bounded) -> BoundState:
    return fresh_state(n_rows, 1)


def step(params: BoundedParams, drift: Drift, gaps: Gaps) -> tuple[StatefulReduction, Any]:
    found = BoundedPass(failing, changed)
    return found.reduction("assign within halves", 12, fresh, prepare), params


def cost(shape: CostModel, counts: Counts) -> float:
    return shape.one_bound(counts)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    bounds, names = dict(BOUNDS), dict(EXACT)
    register_bounds(BoundKind("halves", row_bytes, step, cost), "an upper bound alone")
    yield
    for table, before in ((BOUNDS, bounds), (EXACT, names)):
        table.clear()
        table.update(before)


def clusters(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    centres = 9 * rng.standard_normal((12, 5))
    rows = centres[rng.integers(0, 12, 3000)] + rng.standard_normal((3000, 5))
    return rows.astype(dtype)


def fitted(rows: Any, algorithm: str, **more: Any) -> dc.KMeans:
    found = dc.KMeans(12, algorithm=algorithm, init=clusters("float64")[:12], tol=0, **more)
    return found.fit(rows)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_labels_and_centres_have_the_bits_of_lloyd(dtype: str, metric: str) -> None:
    rows = clusters(dtype)
    plain, bounded = (fitted(rows, name, metric=metric) for name in ("lloyd", "halves"))
    assert bounded.n_iter_ == plain.n_iter_ > 2
    assert bounded.inertia_ == plain.inertia_
    assert bounded.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
    np.testing.assert_array_equal(bounded.labels_, plain.labels_)


def test_it_saves_distances() -> None:
    rows = clusters("float32")
    looked: list[int] = []
    fitted(
        rows, "halves", callbacks=[lambda event: looked.append(getattr(event, "n_distances", 0))]
    )
    n_all = len(rows) * 12
    assert n_all in looked
    assert tile_name() == "portable" or 0 < min(filter(None, looked)) < 0.7 * n_all


def test_out_of_core_and_where_it_takes_too_much_memory(tmp_path: Any) -> None:
    rows = clusters("float32")
    zarr.create_array(str(tmp_path / "rows.zarr"), data=rows, chunks=(500, 5))
    plain = fitted(rows, "lloyd")
    stored = fitted(str(tmp_path / "rows.zarr"), "halves")
    assert stored.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()
    heard: list[Any] = []
    little = fitted(rows, "halves", bounds_memory=100, callbacks=[heard.append])
    assert any("'halves' needs" in str(event) for event in heard)
    assert little.cluster_centers_.tobytes() == plain.cluster_centers_.tobytes()


def test_a_name_that_nobody_has_registered_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="'yinyang', 'halves'"):
        fitted(clusters("float32"), "quarters")
