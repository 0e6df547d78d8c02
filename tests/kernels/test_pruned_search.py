"""The search by bounds has the labels of the search of all centres, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from daskcluster.kernels import tile as tile_module
from daskcluster.kernels.dot_product import LEVELS, MADD, MADD_SHORT, VNNI, best_dot
from daskcluster.kernels.panels import choose_tile, common_offset
from daskcluster.kernels.pruned_search import (
    UNDECIDED,
    PrunedCentres,
    nearest_pruned,
)
from daskcluster.kernels.quantized import (
    Projection,
    QuantizedCentres,
    first_terms,
    project_points,
    quantize_centres,
    range_of_rows,
    squared_lengths,
)

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


def instructions() -> list[int]:
    """Return the instructions of 8-bit products that this machine has."""
    best = best_dot("avx2")
    return [MADD, VNNI] if best == VNNI else [best] if best else []


def instructions_of_features() -> list[int]:
    """Return these, and that of short sums, which coordinates on axes do not have."""
    found = instructions()
    return [*found, MADD_SHORT] if MADD in found else found


def pack_or_none(
    centres: np.ndarray,
    axes: np.ndarray | None,
    rows: np.ndarray,
    name: str = tile_module.tile_name(),
    dot: int | None = None,
) -> PrunedCentres | None:
    """Return centres packed for the search, in an order of their own if there are axes."""
    name, k = "avx2" if name == "portable" else name, len(centres)
    panels = tile_module.pack(centres, tile=choose_tile(k, centres.dtype, name))
    dot = best_dot(name) if dot is None else dot
    heads = order = None
    with np.errstate(all="ignore"):
        if axes is not None:
            squares = np.empty(k)
            squared_lengths(centres - panels.offset, squares)
            found = Projection(axes, project_points(centres, axes, panels.offset), squares)
            order = np.random.default_rng(k).permutation(k)
            there = range_of_rows(rows, centres, panels.offset, found)
            heads = quantize_centres(centres, panels, there, dot, found, order)
        there = range_of_rows(rows, centres, panels.offset, None)
        features = quantize_centres(
            centres, panels, there, dot, order=order, in_lines=heads is not None
        )
    if features is None or (axes is not None and heads is None):
        return None
    return PrunedCentres(centres, panels.offset, first_terms(panels), features, heads, order)


def packed(*arguments: Any) -> PrunedCentres:
    found = pack_or_none(*arguments)
    assert found is not None
    return found


def quantized(
    centres: np.ndarray,
    rows: np.ndarray,
    name: str = tile_module.tile_name(),
    dot: int | None = None,
) -> PrunedCentres:
    return packed(centres, None, rows, name, dot)


with_dot = pytest.mark.skipif(not instructions(), reason="no instruction multiplies 8-bit integers")


def truth(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    labels = np.empty(len(rows), np.int32)
    tile_module.nearest(rows, tile_module.pack(centres), labels)
    return labels


def problem(
    seed: int, d: int, k: int, decay: float, shift: float, twins: bool, kind: type
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and centres; with `twins`, ties, near ties, and rows that are centres."""
    rows = spectrum(70, d, seed, decay, kind) + kind(shift)
    centres = spectrum(k, d, seed + 1, decay, kind) + kind(shift)
    if twins:
        centres[k // 2 :] = centres[: k - k // 2]
        centres[-1] = np.nextafter(centres[0], kind(np.inf))
        rows[:k] = centres[: len(rows)]
    return rows, centres


def pruned(
    rows: np.ndarray, centres: PrunedCentres | None, most: int = 1 << 30
) -> tuple[np.ndarray, np.ndarray]:
    assert centres is not None
    labels = np.full(len(rows), -7, np.int32)
    return labels, nearest_pruned(np.ascontiguousarray(rows), centres, most, labels)


@pytest.mark.kernels
@with_dot
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
# Numbers of centres for which a tile has one height: each height compiles a kernel.
@pytest.mark.parametrize(
    ("n", "d", "k", "m"), [(5, 8, 26, 1), (100, 70, 90, 8), (333, 129, 52, 20)]
)
def test_every_tile_finds_the_nearest(
    name: str, kind: type, n: int, d: int, k: int, m: int
) -> None:
    rows, centres = spectrum(n, d, 0, 0.9, kind), spectrum(k, d, 1, 0.9, kind)
    dot = best_dot(name) or instructions()[-1]
    found, counts = pruned(rows, packed(centres, orthonormal(centres, m), rows, name, dot))
    assert np.array_equal(found, truth(rows, centres))
    assert n <= counts[0] <= 2 * n * k  # some rows are in two blocks


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 90),
    k=st.sampled_from([2, 112]),  # each height of a tile compiles a kernel
    m=st.integers(1, 30),
    decay=st.sampled_from([1.0, 0.97, 0.7]),
    shift=st.sampled_from([0.0, 1.0, 1e4]),
    twins=st.booleans(),
    wide=st.booleans(),
)
def test_labels_are_those_of_all_centres(
    seed: int, d: int, k: int, m: int, decay: float, shift: float, twins: bool, wide: bool
) -> None:
    rows, centres = problem(seed, d, k, decay, shift, twins, np.float64 if wide else np.float32)
    ready = pack_or_none(centres, orthonormal(centres, min(m, d)), rows)
    assume(ready is not None)
    found, _ = pruned(rows, ready)
    expected = truth(rows, centres)
    decided = found != UNDECIDED
    assert np.array_equal(found[decided], expected[decided])
    assert decided.all() or twins


@pytest.mark.kernels
@with_dot
@pytest.mark.parametrize("dot", instructions_of_features())
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_finds_the_nearest(name: str, kind: type, dot: int) -> None:
    for n, d in ((5, 8), (100, 70), (333, 129), (70, 1)):
        rows, centres = spectrum(n, d, 0, 0.97, kind), spectrum(90, d, 1, 0.97, kind)
        found, counts = pruned(rows, quantized(centres, rows, name, dot))
        decided = found != UNDECIDED
        assert np.array_equal(found[decided], truth(rows, centres)[decided])
        assert decided.all() or (dot == MADD_SHORT and decided.mean() > 0.9)  # but for long rows
        assert n // 2 <= counts[0] <= 2 * n * 90


@pytest.mark.kernels
@with_dot
@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 90),
    k=st.sampled_from([1, 2, 28, 112]),  # each height of a tile compiles a kernel
    decay=st.sampled_from([1.0, 0.97, 0.7]),
    shift=st.sampled_from([0.0, 1.0, 1e4]),
    twins=st.booleans(),
    wide=st.booleans(),
    clipped=st.booleans(),
    dot=st.sampled_from(instructions_of_features() or [MADD]),
)
def test_quantized_labels_are_those_of_all_centres(
    seed: int,
    d: int,
    k: int,
    decay: float,
    shift: float,
    twins: bool,
    wide: bool,
    clipped: bool,
    dot: int,
) -> None:
    rows, centres = problem(seed, d, k, decay, shift, twins, np.float64 if wide else np.float32)
    # Rows beyond the levels of others are clipped.
    levelled = rows[np.abs(rows).max(axis=1).argsort(kind="stable")[:20]] if clipped else rows
    ready = pack_or_none(centres, None, levelled, tile_module.tile_name(), dot)
    assume(ready is not None)
    found, _ = pruned(rows, ready)
    expected = truth(rows, centres)
    decided = found != UNDECIDED
    assert np.array_equal(found[decided], expected[decided])
    assert decided.all() or twins or dot == MADD_SHORT


@pytest.mark.kernels
@pytest.mark.skipif(MADD not in instructions(), reason="no instruction adds products in 16 bits")
@pytest.mark.parametrize("d", [3, 40])
def test_long_rows_are_given_up_where_sums_have_16_bits(d: int) -> None:
    rows, centres = spectrum(2000, d, 0, 1.0, np.float32), spectrum(90, d, 1, 1.0, np.float32)
    ready = quantized(centres, rows, "avx2", MADD_SHORT)
    found, _ = pruned(rows, ready)
    assert (found == UNDECIDED).mean() < 0.02
    rows *= np.linspace(0.0, 300.0, 2000, dtype=np.float32)[:, None] ** 2
    found, _ = pruned(rows, ready)
    decided = found != UNDECIDED
    assert np.array_equal(found[decided], truth(rows, centres)[decided])
    assert decided[:5].all()
    assert not decided[1000:].any()


@with_dot
def test_centres_that_cannot_be_quantized_have_no_levels() -> None:
    rows = spectrum(50, 20, 0, 1.0, np.float32)
    dot = instructions()[0]

    def tried(centres: np.ndarray, rows: np.ndarray) -> QuantizedCentres | None:
        with np.errstate(all="ignore"):
            panels = tile_module.pack(centres)
            there = range_of_rows(rows, centres, panels.offset, None)
            return quantize_centres(centres, panels, there, dot)

    assert tried(rows, rows) is not None
    assert tried(np.repeat(rows[:1], 30, axis=0), rows) is None  # all the same
    assert tried(rows, rows[:1] * 0.0 + 1.0) is not None
    far = rows * np.float32(1e15)
    assert tried(np.concatenate([far, -far]), rows) is None  # sums beyond 32 bits
    assert tried(rows, rows * np.float32(np.nan)) is None
    holed = rows.copy()
    holed[3, 3] = np.inf
    assert tried(holed, rows) is None


@pytest.mark.kernels
@with_dot
def test_rows_that_are_not_finite_are_undecided() -> None:
    rows = spectrum(100, 20, 0, 1.0, np.float32)
    ready = quantized(rows, rows)
    rows = rows.copy()
    rows[5, 7], rows[50, 3], rows[70] = np.nan, np.inf, 1e30
    found, _ = pruned(rows, ready)
    assert np.flatnonzero(found == UNDECIDED).tolist() == [5, 50, 70]


def test_levels_are_exact() -> None:
    for dot, levels in LEVELS.items():
        assert levels.row - levels.shift <= (127 if levels.shift else 255)
        # Two products must fit 16 bits where an instruction adds them there.
        assert dot not in (MADD, MADD_SHORT) or 2 * levels.row * levels.centre < 2**15


@pytest.mark.kernels
def test_any_axes_will_do() -> None:
    rng = np.random.default_rng(0)
    rows, centres = spectrum(200, 40, 0, 0.9, np.float32), spectrum(60, 40, 1, 0.9, np.float32)
    for axes in (
        rng.standard_normal((40, 6)).astype(np.float32),  # not orthonormal
        np.full((40, 3), 0.01, np.float32),
        np.repeat(np.eye(40, 1, dtype=np.float32), 4, axis=1),
    ):
        found, _ = pruned(rows, packed(centres, axes, rows))
        assert np.array_equal(found, truth(rows, centres))


@pytest.mark.kernels
def test_good_axes_leave_few_centres() -> None:
    rows, centres = spectrum(500, 96, 0, 0.8, np.float32), spectrum(400, 96, 1, 0.8, np.float32)
    _, few = pruned(rows, packed(centres, orthonormal(centres, 16), rows))
    _, many = pruned(rows, packed(centres, orthonormal(centres, 2), rows))
    # Fewer where an instruction has more levels.
    assert few[0] < 6 * len(rows)
    assert few[1] < 8 * len(rows) < many[1]


@pytest.mark.kernels
def test_the_canonical_score_decides_between_equal_centres() -> None:
    centres = np.repeat(spectrum(10, 50, 1, 0.9, np.float32), 3, axis=0)
    rows = spectrum(64, 50, 0, 0.9, np.float32)
    found, counts = pruned(rows, packed(centres, orthonormal(centres, 5), rows))
    assert np.array_equal(found, truth(rows, centres))
    assert (found % 3 == 0).all()
    assert counts[2] >= 3 * len(rows)


@pytest.mark.kernels
def test_undecidable_rows_are_given_up() -> None:
    rows, centres = spectrum(40, 50, 0, 0.9, np.float32), spectrum(300, 50, 1, 0.9, np.float32)
    rows[3, 7], rows[5, 0], rows[9] = np.nan, np.inf, 1e19
    ready = packed(centres, orthonormal(centres, 12), rows)
    found, _ = pruned(rows, ready)
    assert np.array_equal(np.flatnonzero(found == UNDECIDED), [3, 5, 9])
    many = np.repeat(centres[:1], 300, axis=0)
    many[-1] += 10.0
    same = packed(many, orthonormal(centres, 12), rows[10:])
    assert (pruned(rows, same)[0] == UNDECIDED).all()  # too many that are equally near
    noise = spectrum(300, 50, 2, 1.0, np.float32)
    found, counts = pruned(noise, packed(noise[:200], orthonormal(noise, 2), 0.1 * noise), most=20)
    assert (found == UNDECIDED).any()
    assert counts[0] < 200 * len(noise)
    decided = found != UNDECIDED
    assert np.array_equal(found[decided], truth(noise, noise[:200])[decided])


@pytest.mark.kernels
@with_dot
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    d=st.integers(1, 90),
    k=st.sampled_from([2, 28, 112]),  # each height of a tile compiles a kernel
    m=st.integers(0, 30),
    decay=st.sampled_from([1.0, 0.97, 0.7]),
    shift=st.sampled_from([0.0, 1.0, 1e4]),
    twins=st.booleans(),
    wide=st.booleans(),
)
def test_the_nearest_two_are_those_of_all_centres(
    seed: int, d: int, k: int, m: int, decay: float, shift: float, twins: bool, wide: bool
) -> None:
    kind = np.float64 if wide else np.float32
    rows, centres = problem(seed, d, k, decay, shift, twins, kind)
    axes = orthonormal(centres, min(m, d)) if m else None
    ready = pack_or_none(centres, axes, rows)
    assume(ready is not None)
    assert ready is not None
    found, expected = np.full((2, 2, len(rows)), -7, np.int32)
    scores, known = np.zeros((2, len(rows), 2), kind)
    nearest_pruned(rows, ready, 1 << 30, *found, scores)
    panels = tile_module.pack(centres, tile=choose_tile(k, centres.dtype, tile_module.tile_name()))
    tile_module.nearest(rows, panels, *expected, known)
    decided = found[0] != UNDECIDED
    assert np.array_equal(found[:, decided], expected[:, decided])
    assert np.array_equal(scores[decided], known[decided])
    assert decided.all() or twins
