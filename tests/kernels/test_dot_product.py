"""Products of 8-bit integers are exact with every instruction, and the fastest one is chosen."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from daskcluster.kernels import dot_product
from daskcluster.kernels.dot_product import (
    LEVELS,
    LINE,
    MADD,
    MADD_PAIRS,
    NO_DOT,
    SDOT,
    VNNI,
    best_dot,
    product_of_lines,
)
from daskcluster.kernels.panels import scores_in_panel
from daskcluster.kernels.pruned_search import best_panels, lowest_bit, rows_reaching
from daskcluster.kernels.register_tile import panel_maxima_tile

BEST = best_dot("avx2")
HEIGHT, VECTORS, WIDTH = 6, 2, 8
BLOCK = VECTORS * WIDTH

with_madd = pytest.mark.skipif(BEST not in (MADD, VNNI), reason="the CPU has no PMADDUBSW")
with_vnni = pytest.mark.skipif(BEST != VNNI, reason="the CPU has no VPDPBUSD")


@njit
def _with_madd(words, panel, quads, most, scores, limit):  # type: ignore[no-untyped-def]
    panel_maxima_tile(words, 0, panel, 0, quads, most, 0, 1, HEIGHT, VECTORS, WIDTH, MADD)
    return scores_in_panel(words, 3, panel, 0, quads, scores, HEIGHT, BLOCK, limit, MADD)


@njit
def _with_pairs(words, panel, quads, most, scores, limit):  # type: ignore[no-untyped-def]
    panel_maxima_tile(words, 0, panel, 0, quads, most, 0, 1, HEIGHT, VECTORS, WIDTH, MADD_PAIRS)
    return scores_in_panel(words, 3, panel, 0, quads, scores, HEIGHT, BLOCK, limit, MADD_PAIRS)


@njit
def _with_vnni(words, panel, quads, most, scores, limit):  # type: ignore[no-untyped-def]
    panel_maxima_tile(words, 0, panel, 0, quads, most, 0, 1, HEIGHT, VECTORS, WIDTH, VNNI)
    return scores_in_panel(words, 3, panel, 0, quads, scores, HEIGHT, BLOCK, limit, VNNI)


@njit
def _lines_with_madd(row, centre):  # type: ignore[no-untyped-def]
    return product_of_lines(row, 0, centre, 0, 2 * LINE, MADD)


@njit
def _lines_with_pairs(row, centre):  # type: ignore[no-untyped-def]
    return product_of_lines(row, 0, centre, 0, 2 * LINE, MADD_PAIRS)


@njit
def _lines_with_vnni(row, centre):  # type: ignore[no-untyped-def]
    return product_of_lines(row, 0, centre, 0, 2 * LINE, VNNI)


@njit
def _scan(maxima, first, n_panels, every, limits, winner):  # type: ignore[no-untyped-def]
    best_panels(maxima, 0, first, n_panels, every, winner, 0, VECTORS, WIDTH)
    mask = rows_reaching(maxima, 0, limits, VECTORS, WIDTH)
    return mask, lowest_bit(mask)


def aligned(values: np.ndarray) -> np.ndarray:
    """Return a copy that starts at a cache line."""
    room = np.zeros(values.size + 16, np.int32)
    start = -room.ctypes.data % 64 // 4
    room[start : start + values.size] = values.ravel()
    return room[start : start + values.size]


def quads_of(numbers: np.ndarray, kind: type) -> np.ndarray:
    """Return integers of four numbers each, quad by quad."""
    return np.ascontiguousarray(numbers.astype(kind)).view(np.int32).T


RUNS = {
    MADD: (_with_madd, _lines_with_madd),
    MADD_PAIRS: (_with_pairs, _lines_with_pairs),
    VNNI: (_with_vnni, _lines_with_vnni),
}


@pytest.mark.parametrize("quads", [1, 3, 4, 9])
@pytest.mark.parametrize(
    "dot",
    [
        pytest.param(MADD, marks=with_madd),
        pytest.param(MADD_PAIRS, marks=with_madd),
        pytest.param(VNNI, marks=with_vnni),
    ],
)
def test_sums_are_exact_at_the_limits_of_the_levels(dot: int, quads: int) -> None:
    rng, levels = np.random.default_rng(quads), LEVELS[dot]
    quads *= 2 if dot == MADD_PAIRS else 1
    rows = rng.integers(0, levels.row + 1, (BLOCK, 4 * quads))
    centres = rng.integers(-levels.centre, levels.centre + 1, (HEIGHT, 4 * quads))
    rows[3], centres[0], centres[1] = levels.row, levels.centre, -levels.centre
    first = rng.integers(-(2**30), 2**30, HEIGHT).astype(np.int32)
    panel = np.concatenate([first[None], quads_of(centres, np.int8)])
    most, scores = aligned(np.zeros(BLOCK)), np.zeros(8, np.int32)
    run, multiply = RUNS[dot]
    expected = rows @ centres.T + first
    limit = np.int32(np.sort(expected[3])[2])
    reaching = run(aligned(quads_of(rows, np.uint8)), aligned(panel), quads, most, scores, limit)
    assert np.array_equal(most, expected.max(axis=1))
    assert np.array_equal(scores[:HEIGHT], expected[3])
    assert reaching == sum(1 << lane for lane in range(HEIGHT) if expected[3, lane] >= limit)
    lines = np.zeros((2, 2 * LINE), np.int32)
    lines[0, :quads], lines[1, :quads] = panel[1:, 0], quads_of(rows, np.uint8)[:, 3]
    assert multiply(lines[1], lines[0]) == expected[3, 0] - first[0]


def test_scans_find_the_first_best_panel_and_the_rows_that_reach_their_limits() -> None:
    maxima = np.random.default_rng(0).integers(-5, 5, (7, BLOCK))
    winner, limits = np.empty(11 * BLOCK, np.int32), np.full(BLOCK, 3, np.int32)
    maxima[0, 4:] = -9
    maxima[0, [5, 9]] = 3
    for first, every in ((0, 1), (1, 3), (6, 8), (3, 2)):
        mask, lowest = _scan(aligned(maxima), first, 7, every, limits, winner)
        assert np.array_equal(winner[:BLOCK], first + every * maxima[first::every].argmax(axis=0))
        bounds = winner[every * BLOCK : (every + 1) * BLOCK]
        assert np.array_equal(bounds, maxima[first::every].max(axis=0))
    _scan(aligned(maxima), 9, 7, 10, limits, winner)
    assert (winner[:BLOCK] == -1).all()
    reached = [r for r in range(BLOCK) if maxima[0, r] >= 3]
    assert [r for r in range(BLOCK) if mask >> r & 1] == reached
    assert lowest == reached[0]


@pytest.mark.parametrize(
    ("there", "tile", "expected"),
    [
        ({"avx2", "fma"}, "avx2", MADD),
        ({"avx2", "fma", "avxvnni"}, "avx2", VNNI),
        ({"avx2", "avx512f", "avx512bw"}, "avx512", MADD),
        ({"avx2", "avx512f", "avx512bw", "avx512vnni"}, "avx512", VNNI),
        ({"avx2", "avx512f"}, "avx512", NO_DOT),
        ({"neon", "dotprod"}, "neon", SDOT),
        ({"neon"}, "neon", NO_DOT),
        ({"avx2", "avxvnni"}, "portable", NO_DOT),
    ],
)
def test_the_fastest_instruction_is_chosen(
    monkeypatch: pytest.MonkeyPatch, there: set[str], tile: str, expected: int
) -> None:
    monkeypatch.setattr(dot_product, "cpu_features", lambda: frozenset(there))
    monkeypatch.setattr(dot_product, "TILE_FEATURES", "")
    assert best_dot(tile) == expected
