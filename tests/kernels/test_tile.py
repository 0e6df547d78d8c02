"""Every tile computes the canonical score, bit for bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from daskcluster.kernels import tile as tile_module
from daskcluster.kernels.accumulate import accumulate
from daskcluster.kernels.panels import PORTABLE, Tile, choose_tile, common_offset
from daskcluster.kernels.search import search_kernel
from daskcluster.kernels.tile import (
    nearest,
    nearest_and_sum,
    pack,
)
from tests.kernels.chain import scores, two_best

NAMES = ("avx512", "avx2", "neon", "portable")
KINDS = (np.float32, np.float64)


def label(rows: np.ndarray, centres: np.ndarray, tile: Tile | None = None) -> np.ndarray:
    labels = np.full(len(rows), -7, np.int32)
    nearest(rows, pack(centres, tile=tile), labels)
    return labels


def label_two(
    rows: np.ndarray, centres: np.ndarray, tile: Tile | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels, second = np.full((2, len(rows)), -7, np.int32)
    both = np.empty((len(rows), 2), rows.dtype)
    nearest(rows, pack(centres, tile=tile), labels, second, both)
    return labels, second, both


def mixture(n: int, d: int, k: int, kind: type, *, shift: float = 0.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(n + 100 * d + 10_000 * k)
    centres = (rng.standard_normal((k, d)) * 2 + shift).astype(kind)
    rows = centres[rng.integers(0, k, n)] + rng.standard_normal((n, d)).astype(kind)
    return rows.astype(kind), centres


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n", "d", "k"), [(37, 1, 3), (70, 5, 13), (33, 11, 6), (300, 3, 28)])
def test_tile_is_the_reference_chain(name: str, kind: type, n: int, d: int, k: int) -> None:
    rows, centres = mixture(n, d, k, kind, shift=100.0)
    centres[-1] = centres[0]  # a tie that the lowest index wins
    table = scores(rows, centres, common_offset(centres))
    best, second = two_best(table)
    tile = choose_tile(13, np.dtype(kind), name)
    assert np.array_equal(label(rows, centres, tile), best)
    labels, runner, both = label_two(rows, centres, tile)
    assert np.array_equal(labels, best)
    assert np.array_equal(runner, second)
    assert np.array_equal(both[:, 0], table[np.arange(n), best])
    assert np.array_equal(both[:, 1], table[np.arange(n), second])


@pytest.mark.parametrize("name", NAMES)
def test_runner_up_of_a_tie_is_the_lowest(name: str) -> None:
    rows = np.zeros((40, 1), np.float32)
    for places in ([2, 2, 0], [0, 2, 2], [2, 0, 2], [2, 2, 1, 1, 0], [3, 3, 3, 1, 2]):
        centres = np.array(places, np.float32)[:, None]
        best, second = two_best(scores(rows, centres, common_offset(centres)))
        labels, runner, _ = label_two(rows, centres, choose_tile(13, rows.dtype, name))
        assert np.array_equal(labels, best), places
        assert np.array_equal(runner, second), places


@pytest.mark.kernels
@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("k", [1, 2, 6, 8, 10, 12, 13, 14, 50, 100, 200])
def test_every_height_agrees_with_portable(name: str, k: int) -> None:
    rows, centres = mixture(150, 17, k, np.float32)
    tile = choose_tile(k, rows.dtype, name)
    assert np.array_equal(label(rows, centres, tile), label(rows, centres, PORTABLE))


def test_any_width() -> None:
    for d in (*range(1, 10), 15, 16, 31, 40):
        rows, centres = mixture(65, d, 20, np.float32)
        expected = two_best(scores(rows, centres, common_offset(centres)))[0]
        assert np.array_equal(label(rows, centres), expected), d


def test_any_number_of_rows() -> None:
    rows, centres = mixture(1100, 6, 9, np.float32)
    whole = label(rows, centres)
    for n in (0, 1, 2, 31, 32, 33, 63, 64, 65, 1023, 1025):
        assert np.array_equal(label(rows[:n], centres), whole[:n])
        assert np.array_equal(label(rows[-n:] if n else rows[:0], centres), whole[1100 - n :])


@pytest.mark.kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize(("d", "k"), [(1, 400), (3, 450), (8, 601), (21, 1000)])
def test_centres_that_are_found_in_the_panel_that_won(
    name: str, kind: type, d: int, k: int
) -> None:
    rows, centres = mixture(75, d, k, kind)
    # Ties within a panel, and between panels; rows whose scores are not finite.
    centres[[1, 5, k - 1]], centres[k // 2] = centres[2], centres[k // 3]
    rows[:3], rows[3:5] = centres[2], centres[k // 2]
    rows[6, 0], rows[7, 0], rows[8, 0] = np.nan, np.inf, np.finfo(kind).max
    panels = pack(centres, tile=choose_tile(13, np.dtype(kind), name))
    assert tile_module._is_two_stage(panels)
    first = search_kernel(panels.tile, tile_module.lanes_of(panels.dtype), 1)
    labels, whole = np.full((2, len(rows)), -7, np.int32)
    nearest(rows, panels, labels)
    none, no_scores = np.empty(0, np.int32), np.empty((0, 2), kind)
    first(rows, panels.data, panels.offset, whole, none, no_scores, 2, 5)
    assert np.array_equal(labels, whole)
    good = np.isfinite(rows).all(axis=1) & (np.arange(len(rows)) != 8)
    assert np.array_equal(labels[good], label(rows[good], centres, PORTABLE))
    assert labels[6] == 0
    shift, sums, counts = np.full(d, 1.5 * 2.0**30), np.zeros((k, d)), np.zeros(k, np.int64)
    again = np.empty_like(labels)
    nearest_and_sum(np.nan_to_num(rows), panels, again, shift, sums, counts)
    assert np.array_equal(again[good], labels[good])
    nearest_and_sum(rows[6:7], panels, again[:1], shift, sums, counts)
    assert again[0] == 0


def test_panels_that_outgrow_the_cache_change_nothing() -> None:
    rows, centres = mixture(700, 300, 900, np.float32)
    assert pack(centres).data.nbytes > 1 << 20
    assert np.array_equal(label(rows, centres), label(rows, centres, PORTABLE))


@pytest.mark.kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [(0, 3, 2), (5, 9, 4), (130, 3, 7), (501, 20, 40), (70, 300, 900), (130, 4, 450)],
)
def test_labels_and_sums_in_one_visit(kind: type, n: int, d: int, k: int) -> None:
    rows, centres = mixture(n, d, k, kind)
    shift = np.full(d, 1.5 * 2.0**30)
    labels, sums, counts = label(rows, centres), np.zeros((k, d)), np.zeros(k, np.int64)
    accumulate(rows, labels, shift, sums, counts)
    for name in NAMES:
        tile = choose_tile(13, rows.dtype, name)
        again, again_sums, again_counts = (
            np.empty_like(labels),
            np.zeros((k, d)),
            np.zeros_like(counts),
        )
        panels = pack(centres, tile=tile)
        nearest_and_sum(rows, panels, again, shift, again_sums, again_counts)
        assert np.array_equal(again, labels)
        assert np.array_equal(again_sums, sums)
        assert np.array_equal(again_counts, counts)


@pytest.mark.kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [(0, 3, 2), (5, 9, 4), (130, 3, 7), (501, 20, 40), (70, 300, 900), (130, 4, 450)],
)
def test_rows_that_move_make_the_same_sums(kind: type, n: int, d: int, k: int) -> None:
    rows, centres = mixture(n, d, k, kind)
    shift = np.full(d, 1.5 * 2.0**30)
    before = label(rows, centres[::-1].copy())
    sums, counts = np.zeros((2, k, d)), np.zeros((2, k), np.int64)
    for at, labels in enumerate((before, label(rows, centres))):
        accumulate(rows, labels, shift, sums[at], counts[at])
    for name in NAMES:
        panels = pack(centres, tile=choose_tile(13, rows.dtype, name))
        labels, moved, moved_counts = before.copy(), sums[0].copy(), counts[0].copy()
        nearest_and_sum(rows, panels, labels, shift, moved, moved_counts, moving=True)
        assert np.array_equal(labels, label(rows, centres))
        assert np.array_equal(moved, sums[1])
        assert np.array_equal(moved_counts, counts[1])


def test_one_centre_has_no_runner_up() -> None:
    rows, centres = mixture(40, 3, 1, np.float32)
    labels, second, both = label_two(rows, centres)
    assert (labels == 0).all()
    assert (second == -1).all()
    assert np.isneginf(both[:, 1]).all()


@pytest.mark.parametrize("name", NAMES)
def test_labels_stay_in_range_for_bad_rows(name: str) -> None:
    rows, centres = mixture(64, 4, 5, np.float32)
    rows[3, 1], rows[10, 0], rows[11, :], rows[12, 2] = np.nan, np.inf, -np.inf, 3e38
    tile = choose_tile(5, rows.dtype, name)
    good = np.isfinite(rows).all(axis=1)
    labels, _, _ = label_two(rows, centres, tile)
    assert labels.min() >= 0
    assert labels.max() < 5
    clean = label(np.where(good[:, None], rows, 0).astype(np.float32), centres, tile)
    assert np.array_equal(labels[good], clean[good])
    huge = np.full((5, 4), 3e38, np.float32)  # every first term is -inf
    assert (label(rows, huge, tile) < 5).all()


@pytest.mark.parametrize("kind", KINDS)
def test_data_far_from_the_origin_keeps_its_digits(kind: type) -> None:
    rows, centres = mixture(500, 8, 20, np.float64)
    exact = label(rows, centres)
    gap = np.sort(((rows[:, None] - centres) ** 2).sum(axis=2), axis=1)
    clear = gap[:, 1] - gap[:, 0] > 0.05
    far = label((rows + 1e4).astype(kind), (centres + 1e4).astype(kind))
    assert clear.mean() > 0.9
    assert np.array_equal(far[clear], exact[clear])


def test_portable_takes_over_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(tile: Tile, lanes: int, keep: int, *, two_stage: bool) -> object:
        if tile != PORTABLE:
            raise RuntimeError("LLVM knows no such register")
        return search_kernel(tile, lanes, keep, two_stage=two_stage)

    monkeypatch.setattr(tile_module, "search_kernel", broken)
    monkeypatch.setattr(tile_module, "tile_name", lambda: "avx512")
    monkeypatch.setattr(tile_module, "_TRIED", {})
    tile_module._warn_portable.cache_clear()
    rows, centres = mixture(40, 3, 5, np.float32)
    with pytest.warns(
        RuntimeWarning, match="avx512 tile does not compile here .RuntimeError: LLVM"
    ):
        panels = pack(centres)
    assert panels.tile == PORTABLE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = label(rows, np.concatenate([centres] * 3))  # another height of the tile
    assert np.array_equal(labels, label(rows, centres, PORTABLE))


def test_few_lanes_are_wasted() -> None:
    for k in (8, 10, 50, 64, 100, 256, 1000, 4096):
        tile = choose_tile(k, np.dtype(np.float32), "avx512")
        lanes = -(-k // tile.height) * tile.height
        assert lanes <= 1.03 * k + 1, (k, tile)
