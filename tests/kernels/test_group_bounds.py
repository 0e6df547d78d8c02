"""What rules centres out bounds their distances, group by group."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daskcluster.kernels.pruned_search import UNDECIDED, PrunedCentres, nearest_pruned
from tests.kernels.test_pruned_search import (
    KINDS,
    NAMES,
    best_dot,
    instructions,
    orthonormal,
    pack_or_none,
    problem,
    spectrum,
    truth,
    with_dot,
)


def bounded(
    rows: np.ndarray, centres: PrunedCentres, panels: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels, lower bounds of groups of so many panels, and the distances that they bound."""
    k, size = len(centres.centres), panels * centres.features.tile.height
    labels = np.full(len(rows), -7, np.int32)
    lower = np.full((len(rows), -(-k // size)), np.inf, np.float32)
    nearest_pruned(np.ascontiguousarray(rows), centres, 1 << 30, labels, groups=(size, lower))
    wide = rows.astype(np.float64)[:, None] - centres.centres.astype(np.float64)
    distances = np.sqrt(np.square(wide).sum(axis=2))
    distances[np.arange(len(rows)), labels] = np.inf
    lanes = centres.lanes[:k]
    nearest = [distances[:, lanes[first : first + size]].min(axis=1) for first in range(0, k, size)]
    return labels, lower, np.stack(nearest, axis=1)


@pytest.mark.kernels
@with_dot
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 90),
    k=st.sampled_from([1, 2, 28, 112]),  # each height of a tile compiles a kernel
    m=st.integers(0, 30),
    decay=st.sampled_from([1.0, 0.97, 0.7]),
    shift=st.sampled_from([0.0, 1.0, 1e4]),
    twins=st.booleans(),
    wide=st.booleans(),
    panels=st.integers(1, 3),
)
def test_no_bound_exceeds_a_distance(
    seed: int,
    d: int,
    k: int,
    m: int,
    decay: float,
    shift: float,
    twins: bool,
    wide: bool,
    panels: int,
) -> None:
    rows, centres = problem(seed, d, k, decay, shift, twins, np.float64 if wide else np.float32)
    axes = orthonormal(centres, min(m, d)) if m else None
    ready = pack_or_none(centres, axes, rows)
    assume(ready is not None)
    assert ready is not None
    labels, lower, nearest = bounded(rows, ready, panels)
    decided = labels != UNDECIDED
    assert np.array_equal(labels[decided], truth(rows, centres)[decided])
    assert (lower[decided] <= nearest[decided]).all()
    assert (lower[decided] >= 0.0).all()


@pytest.mark.kernels
@with_dot
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_close_where_rows_vary_along_the_axes(name: str, kind: type) -> None:
    rows, centres = spectrum(333, 70, 0, 0.9, kind), spectrum(90, 70, 1, 0.9, kind)
    dot = best_dot(name) or instructions()[-1]
    for axes in (orthonormal(centres, 20), None):
        ready = pack_or_none(centres, axes, rows, name, dot)
        assert ready is not None
        _, lower, nearest = bounded(rows, ready, 2)
        assert (lower <= nearest).all()
        assert np.median(lower / nearest) > 0.9


@pytest.mark.kernels
@with_dot
def test_the_own_group_is_bounded_without_the_own_centre() -> None:
    centres = spectrum(90, 16, 1, 0.9, np.float32)
    ready = pack_or_none(centres, None, centres)
    assert ready is not None
    labels, lower, _ = bounded(centres, ready, 1)
    assert np.array_equal(labels, np.arange(90))
    assert (lower.min(axis=1) > 0.0).mean() > 0.9
