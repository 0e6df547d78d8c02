"""Centres packed into panels: every tile, every number of centres, with and without groups."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.kernels import sparse
from daskcluster.kernels import tile as tile_module
from daskcluster.kernels.panels import Panels, choose_tile, common_offset, fill_panels
from daskcluster.kernels.tile import group_size, pack, pack_groups
from daskcluster.methods.kernel_kmeans import kernels as gram
from daskcluster.methods.kernel_kmeans import kernels as gram_tile
from daskcluster.methods.kmeans.chunkwise.grouped import balanced_groups

NAMES = ("avx512", "avx2", "neon", "portable")
KINDS = (np.float32, np.float64)
_FEATURES = 3


def centres_of(k: int, kind: type) -> np.ndarray:
    return (np.random.default_rng(k).random((k, _FEATURES)) + 7.0).astype(kind)


def expected(
    centres: np.ndarray, order: np.ndarray, height: int, offset: np.ndarray | None = None
) -> np.ndarray:
    """Return the panels whose lanes hold the centres `order`, -1 for none."""
    offset = common_offset(centres) if offset is None else offset
    lanes = np.zeros((len(order), 1 + _FEATURES), centres.dtype)
    lanes[:, 0] = -np.inf
    there = order >= 0
    lanes[there, 1:] = centres[order[there]] - offset
    squares = lanes[there, 1:].astype(np.float64) ** 2
    total = np.zeros(len(squares))
    for column in squares.T:  # in feature order
        total += column
    lanes[there, 0] = -0.5 * total
    return lanes.reshape(-1, height, 1 + _FEATURES).swapaxes(1, 2).reshape(-1, height * 4)


def assert_packed(panels: Panels, centres: np.ndarray, order: np.ndarray) -> None:
    assert np.array_equal(panels.data, expected(centres, order, panels.tile.height))
    assert panels.k == len(centres)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_centres(name: str, kind: type) -> None:
    for k in range(1, 301):
        centres, tile = centres_of(k, kind), choose_tile(k, np.dtype(kind), name)
        panels = pack(centres, tile=tile)
        order = np.full(len(panels.data) * tile.height, -1)
        order[:k] = np.arange(k)
        assert_packed(panels, centres, order)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_centres_in_groups(
    name: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_module, "working_tile", lambda k, dtype: choose_tile(k, dtype, name))
    shorter = 0
    for k in range(2, 301):
        centres = centres_of(k, kind)
        groups = balanced_groups(centres, group_size(k, centres.dtype))
        panels, order, per_group = pack_groups(centres, groups)
        assert_packed(panels, centres, order)
        lanes = order.reshape(len(groups), per_group * panels.tile.height)
        for group, there in zip(groups, lanes, strict=True):
            assert np.array_equal(there[there >= 0], group)
        shorter += len(groups[-1]) < (per_group - 1) * panels.tile.height
    assert (
        shorter >= 4
    )  # their last group ends before its last panel begins: 85, 86, 87, 183 for AVX-512


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_centres_for_csr_rows_and_of_points(
    name: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sparse, gram_tile):
        monkeypatch.setattr(module, "tile_name", lambda: name)
    zero = np.zeros(_FEATURES, kind)
    for k in range(1, 301):
        centres = centres_of(k, kind)
        packed, points = sparse.pack_sparse(centres), gram.pack_points(centres)
        height = gram.gram_tile_for(points.dtype).height
        for data, high in ((packed.data, packed.height), (points, height)):
            order = np.full(len(data) * high, -1)
            order[:k] = np.arange(k)
            assert np.array_equal(data, expected(centres, order, high, zero))


def test_panels_without_a_centre() -> None:
    centres, data = centres_of(2, np.float32), np.full((4, 4 * 4), np.nan, np.float32)
    norms = fill_panels(centres, common_offset(centres), data, 4)
    assert np.array_equal(data, expected(centres, np.array([0, 1] + [-1] * 14), 4))
    assert np.allclose(norms, np.square(centres - common_offset(centres)).sum(axis=1))
