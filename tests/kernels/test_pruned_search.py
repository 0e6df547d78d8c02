"""The search by bounds has the labels of the search of all centres, or none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskcluster.kernels import tile as tile_module
from daskcluster.kernels.panels import choose_tile, common_offset
from daskcluster.kernels.projected_centres import (
    ProjectedCentres,
    pack_projected,
    project_points,
    shift_centres,
)
from daskcluster.kernels.pruned_search import UNDECIDED, nearest_pruned

NAMES = ("avx512", "avx2", "neon")
KINDS = (np.float32, np.float64)


def spectrum(n: int, d: int, seed: int, decay: float, kind: type) -> np.ndarray:
    """Return rows whose features, turned, have variances that fall."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]
    return ((rng.standard_normal((n, d)) * decay ** np.arange(d)) @ turn).astype(kind)


def orthonormal(centres: np.ndarray, m: int) -> np.ndarray:
    """Return main axes of centres about their offset."""
    about = (centres - common_offset(centres)).astype(np.float64)
    vectors = np.linalg.eigh(about.T @ about)[1]
    return np.ascontiguousarray(vectors[:, ::-1][:, :m]).astype(centres.dtype)


def packed(
    centres: np.ndarray, axes: np.ndarray, name: str = tile_module.tile_name()
) -> ProjectedCentres:
    offset, shifted, squares = (
        common_offset(centres),
        np.empty_like(centres),
        np.empty(len(centres)),
    )
    shift_centres(centres, offset, shifted, squares)
    heads = project_points(shifted, axes)
    name = "avx2" if name == "portable" else name
    tile = choose_tile(len(centres), centres.dtype, name)
    return pack_projected(centres, offset, axes, heads, squares, tile)


def truth(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    labels = np.empty(len(rows), np.int32)
    tile_module.nearest(rows, tile_module.pack(centres), labels)
    return labels


def pruned(
    rows: np.ndarray, centres: ProjectedCentres, most: int = 1 << 30
) -> tuple[np.ndarray, np.ndarray]:
    labels = np.full(len(rows), -7, np.int32)
    return labels, nearest_pruned(np.ascontiguousarray(rows), centres, most, labels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n", "d", "k", "m"), [(5, 8, 3, 1), (100, 70, 90, 8), (333, 129, 40, 20)])
def test_every_tile_finds_the_nearest(
    name: str, kind: type, n: int, d: int, k: int, m: int
) -> None:
    rows, centres = spectrum(n, d, 0, 0.9, kind), spectrum(k, d, 1, 0.9, kind)
    found, counts = pruned(rows, packed(centres, orthonormal(centres, m), name))
    assert np.array_equal(found, truth(rows, centres))
    assert n <= counts[0] <= 2 * n * k  # some rows are in two blocks


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 90),
    k=st.integers(1, 120),
    m=st.integers(1, 30),
    decay=st.sampled_from([1.0, 0.97, 0.7]),
    shift=st.sampled_from([0.0, 1.0, 1e4]),
    twins=st.booleans(),
    wide=st.booleans(),
)
def test_labels_are_those_of_all_centres(
    seed: int, d: int, k: int, m: int, decay: float, shift: float, twins: bool, wide: bool
) -> None:
    kind = np.float64 if wide else np.float32
    rows = spectrum(70, d, seed, decay, kind) + kind(shift)
    centres = spectrum(k, d, seed + 1, decay, kind) + kind(shift)
    if twins:  # ties, near ties, and rows that are centres
        centres[k // 2 :] = centres[: k - k // 2]
        centres[-1] = np.nextafter(centres[0], kind(np.inf))
        rows[:k] = centres[: len(rows)]
    axes = orthonormal(centres, min(m, d))
    found, _ = pruned(rows, packed(centres, axes))
    expected = truth(rows, centres)
    decided = found != UNDECIDED
    assert np.array_equal(found[decided], expected[decided])
    assert decided.all() or twins


def test_any_axes_will_do() -> None:
    rng = np.random.default_rng(0)
    rows, centres = spectrum(200, 40, 0, 0.9, np.float32), spectrum(60, 40, 1, 0.9, np.float32)
    for axes in (
        rng.standard_normal((40, 6)).astype(np.float32),  # not orthonormal
        np.zeros((40, 3), np.float32),
        np.repeat(np.eye(40, 1, dtype=np.float32), 4, axis=1),
    ):
        found, _ = pruned(rows, packed(centres, axes))
        assert np.array_equal(found, truth(rows, centres))


def test_good_axes_leave_few_centres() -> None:
    rows, centres = spectrum(500, 96, 0, 0.8, np.float32), spectrum(400, 96, 1, 0.8, np.float32)
    _, few = pruned(rows, packed(centres, orthonormal(centres, 16)))
    _, many = pruned(rows, packed(centres, orthonormal(centres, 2)))
    assert few[0] < 5 * len(rows) < many[0]
    assert few[1] < many[1]


def test_the_canonical_score_decides_between_equal_centres() -> None:
    centres = np.repeat(spectrum(10, 50, 1, 0.9, np.float32), 3, axis=0)
    rows = spectrum(64, 50, 0, 0.9, np.float32)
    found, counts = pruned(rows, packed(centres, orthonormal(centres, 5)))
    assert np.array_equal(found, truth(rows, centres))
    assert (found % 3 == 0).all()
    assert counts[2] >= 3 * len(rows)


def test_undecidable_rows_are_given_up() -> None:
    rows, centres = spectrum(40, 50, 0, 0.9, np.float32), spectrum(300, 50, 1, 0.9, np.float32)
    rows[3, 7], rows[5, 0], rows[9] = np.nan, np.inf, 1e19
    ready = packed(centres, orthonormal(centres, 12))
    found, _ = pruned(rows, ready)
    assert np.array_equal(np.flatnonzero(found == UNDECIDED), [3, 5, 9])
    same = packed(np.repeat(centres[:1], 300, axis=0), orthonormal(centres, 12))
    assert (pruned(rows, same)[0] == UNDECIDED).all()  # too many that are equally near
    noise = spectrum(300, 50, 2, 1.0, np.float32)
    found, counts = pruned(noise, packed(noise[:200], orthonormal(noise, 2)), most=20)
    assert (found == UNDECIDED).any()
    assert counts[0] < 200 * len(noise)
    decided = found != UNDECIDED
    assert np.array_equal(found[decided], truth(noise, noise[:200])[decided])
