"""Prepared centres search by bounds where that pays, with the same labels, sums and moves."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from daskcluster.chunkwise import pruned
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.chunkwise.pruned import (
    FixedSearch,
    PrunedSearch,
    fixed_search,
    may_pay,
)
from daskcluster.kernels import tile as tile_module
from daskcluster.kernels.dot_product import MADD, MADD_SHORT, NO_DOT, best_dot
from daskcluster.kernels.quantized import quantize_centres, range_of_rows

N, D, K = 900, 160, 640
SHIFT = np.full(D, 1.5 * 2.0**30)

no_tile = pytest.mark.skipif(
    best_dot(tile_module.working_tile(K, np.dtype(np.float32)).name) == NO_DOT,
    reason="without products of 8-bit integers, all centres are searched",
)


@pytest.fixture(autouse=True)
def _small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruned, "_LEAST_PRODUCTS", 0)


@pytest.fixture(params=["projected", "quantized"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Leave one form of bounds."""
    if request.param == "projected":
        by_features = pruned._by_features
        monkeypatch.setattr(pruned, "_by_features", lambda *of: (np.inf, by_features(*of)[1]))
    else:
        monkeypatch.setattr(pruned, "plan_projection", lambda *arguments: None)
    return str(request.param)


def searched(centres: np.ndarray, rows: np.ndarray) -> PrunedSearch | None:
    found = fixed_search(centres, rows)
    packed = None if found is None else found.pack(centres, tile_module.pack(centres))
    return None if packed is None else PrunedSearch(packed)


def blobs(kind: type = np.float32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows around centres whose variances fall from feature to feature, and the centres."""
    rng = np.random.default_rng(seed)
    scale = 0.95 ** np.arange(D)
    centres = rng.standard_normal((K, D)) * scale
    rows = centres[rng.integers(0, K, N)] + 0.3 * rng.standard_normal((N, D)) * scale
    return rows.astype(kind), centres.astype(kind)


def by_all(rows: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels, sums, counts = np.empty(len(rows), np.int32), np.zeros((K, D)), np.zeros(K, np.int64)
    tile_module.nearest_and_sum(rows, tile_module.pack(centres), labels, SHIFT, sums, counts)
    return labels, sums, counts


@pytest.mark.kernels
@no_tile
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_labels_sums_and_moves_are_the_same(form: str, kind: type) -> None:
    rows, centres = blobs(kind)
    labels, sums, counts = by_all(rows, centres)
    prepared = PreparedCentres(centres)
    found = np.empty(N, np.int32)
    prepared.nearest(rows, found)
    assert prepared._search is not None
    assert np.array_equal(found, labels)
    mine, weights = np.zeros((K, D)), np.zeros(K, np.int64)
    prepared.nearest_and_sum(rows, found, SHIFT, mine, weights)
    assert np.array_equal(mine, sums)
    assert np.array_equal(weights, counts)
    noise = 0.1 * np.random.default_rng(1).standard_normal(centres.shape)
    moved = PreparedCentres((centres + noise).astype(kind))
    moved.nearest_and_sum(rows, found, SHIFT, mine, weights, moving=True)
    after = by_all(rows, moved.array)
    assert moved._search is not None
    for one, other in zip((found, mine, weights), after, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.kernels
@no_tile
@pytest.mark.parametrize("scored", [False, True])
def test_the_nearest_two_are_the_same(form: str, scored: bool) -> None:
    rows, centres = blobs()
    rows[5], rows[6, 3] = 1e5, np.nan  # given up
    found, expected = np.empty((2, 2, N), np.int32)
    scores, known = np.empty((2, N, 2), np.float32) if scored else (None, None)
    tile_module.nearest(rows, tile_module.pack(centres), *expected, known)
    prepared = PreparedCentres(centres)
    prepared.nearest(rows, *found, scores)
    assert prepared._search is not None
    assert np.array_equal(found, expected)
    if scores is not None and known is not None:
        assert np.array_equal(scores, known)


@pytest.mark.kernels
@no_tile
def test_threads_share_one_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, centres = blobs()
    made: list[int] = []

    def counting(*arguments: Any) -> tuple[FixedSearch, Any]:
        made.append(1)
        return pruned.sampled_search(*arguments)

    monkeypatch.setattr("daskcluster.chunkwise.centres.sampled_search", counting)
    prepared, found = PreparedCentres(centres), np.empty((4, N), np.int32)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda labels: prepared.nearest(rows, labels), found))
    assert made == [1]
    assert (found == by_all(rows, centres)[0]).all()


@no_tile
def test_rows_that_are_given_up_are_searched_in_full(form: str) -> None:
    rows, centres = blobs()
    rows[5], rows[6, 3] = 1e5, np.nan
    prepared, labels = PreparedCentres(centres), np.empty(N, np.int32)
    prepared.nearest(rows, labels)
    assert np.array_equal(labels, by_all(rows, centres)[0])
    search = prepared._search
    assert search is not None
    assert search.pays
    prepared.nearest(rows * np.float32(1e18), labels)  # of which bounds might overflow
    assert not search.pays
    assert np.array_equal(labels, by_all(rows * np.float32(1e18), centres)[0])
    assert prepared._search_for(rows) is None


def test_where_it_does_not_pay_all_centres_are_searched() -> None:
    rows, centres = blobs()
    assert searched(centres * 0.0, rows) is None  # no axes, no levels
    assert searched(centres * np.float32(1e19), rows) is None  # might overflow
    assert searched(centres, rows * np.float32(np.nan)) is None
    assert not may_pay(centres[:100])
    assert not may_pay(centres[:, :20])


@pytest.mark.skipif(
    best_dot(tile_module.working_tile(K, np.dtype(np.float32)).name) != MADD,
    reason="sums have 32 bits",
)
def test_sums_of_features_have_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, centres = (rng.standard_normal((n, 32)).astype(np.float32) for n in (N, 3000))
    found = searched(centres, rows)
    assert found is not None
    assert found._packed.features.dot == MADD_SHORT
    fixed = fixed_search(centres, rows)
    assert fixed is not None
    assert fixed.short
    rows[7] *= 40.0
    labels, known = np.empty((2, N), np.int32)
    assert 7 in found.nearest(rows, labels)
    PreparedCentres(centres).nearest(rows, labels)
    tile_module.nearest(rows, tile_module.pack(centres), known)
    assert np.array_equal(labels, known)
    monkeypatch.setattr(pruned, "MOST_SHORT", 3000)  # too many panels
    found = searched(centres, rows)
    assert found is not None
    assert found._packed.features.dot == MADD


@no_tile
def test_machines_without_products_of_8_bits_search_all_centres(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, centres = blobs()
    monkeypatch.setattr(pruned, "best_dot", lambda tile: NO_DOT)
    assert searched(centres, rows) is None
    assert fixed_search(centres, rows) == FixedSearch()


def test_levels_of_short_sums_suit_nearly_all_rows() -> None:
    rng = np.random.default_rng(1)
    # Wide rows have few levels, and quantizing makes them longer.
    turn = np.linalg.qr(rng.standard_normal((768, 768)))[0]
    rows = (rng.standard_normal((4096, 768)) * np.arange(1, 769) ** -0.5) @ turn
    rows = (rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))).astype(np.float32)
    centres = rows[-600:]
    panels = tile_module.pack(centres)
    with np.errstate(all="ignore"):
        there = range_of_rows(rows[:64], centres, panels.offset, None)
        found = quantize_centres(centres, panels, there, MADD_SHORT)
    assert found is not None
    about = rows - panels.offset - found.mean
    lost = found.levels.step * np.sqrt(768 / 12)
    lengths = np.sqrt(np.square(about, dtype=np.float64).sum(axis=1))
    assert (lengths + lost > found.levels.far).mean() < 0.02


@no_tile
@pytest.mark.parametrize("expected", [N, 13_000])
def test_few_rows_in_all_do_not_repay_a_sample(expected: int) -> None:
    rows, centres = blobs()
    prepared, labels = PreparedCentres(centres), np.empty(N, np.int32)
    prepared.expect(N)
    prepared.expect(expected - N)
    prepared.nearest(rows, labels)
    assert (prepared._search is not None) == (expected > N)
    assert np.array_equal(labels, by_all(rows, centres)[0])


@pytest.mark.kernels
@no_tile
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_fixed_search_serves_other_centres(form: str, kind: type) -> None:
    rows, centres = blobs(kind)
    others = blobs(kind, seed=1)[1]
    search = fixed_search(centres, rows)
    assert search is not None
    assert search.pays
    for each in (centres, others):
        prepared, labels = PreparedCentres(each, search=search), np.empty(N, np.int32)
        prepared.nearest(rows[:9], labels[:9])
        assert prepared._search is not None  # few rows are enough
        prepared.nearest(rows, labels)
        assert np.array_equal(labels, by_all(rows, each)[0])
        again = pickle.loads(pickle.dumps(prepared))
        again.nearest(rows[:9], labels[:9])
        assert again._search is not None


@no_tile
def test_a_search_that_does_not_pay_is_not_tried() -> None:
    rows, centres = blobs()
    prepared, labels = PreparedCentres(centres, search=FixedSearch()), np.empty(N, np.int32)
    prepared.nearest(rows, labels)
    assert prepared._search is None
    assert np.array_equal(labels, by_all(rows, centres)[0])
