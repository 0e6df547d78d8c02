"""Which centre of a panel has a score; and a centre of it, whatever the score."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from daskcluster.kernels.panels import choose_tile, place_in_panel
from daskcluster.kernels.tile import pack
from tests.kernels.chain import scores

_ROWS, _FEATURES = 8, 3


def placed(rows: np.ndarray, panel: np.ndarray, best: np.ndarray, height: int) -> np.ndarray:
    """Return what `place_in_panel` says of each row of a block."""
    block = _ROWS

    @njit
    def place(packed, panel, d, best, out):  # type: ignore[no-untyped-def]
        for r in range(block):
            out[r] = place_in_panel(packed, r, panel, 0, d, best, r, height, block)

    out = np.full(_ROWS, -7, np.int32)
    place(np.ascontiguousarray(rows.T).ravel(), panel, _FEATURES, best, out)
    return out


@pytest.mark.kernels
@pytest.mark.parametrize(("kind", "k"), [(np.float32, 4), (np.float64, 5), (np.float32, 13)])
def test_the_first_centre_of_a_score_and_never_one_beyond_the_panel(kind: type, k: int) -> None:
    rng = np.random.default_rng(k)
    rows, centres = (rng.standard_normal((n, _FEATURES)).astype(kind) for n in (_ROWS, k))
    centres[3] = centres[1]  # a tie: the first of them
    tile = choose_tile(k, np.dtype(kind), "avx512" if k == 13 else "avx2")
    assert tile.height == k
    panel = pack(centres, np.zeros(_FEATURES), tile).data[0]
    table = scores(rows, centres, np.zeros(_FEATURES, kind))
    for lane in range(k):
        found = placed(rows, panel, np.ascontiguousarray(table[:, lane]), k)
        assert (found == (1 if lane == 3 else lane)).all()
    # Scores that no centre has, and rows whose scores are not finite.
    assert (placed(rows, panel, np.full(_ROWS, 1e9, kind), k) == k - 1).all()
    rows[0, 1], rows[1, 0], rows[2, 2] = np.nan, np.inf, np.finfo(kind).max
    for score in (np.nan, -np.inf, np.inf, 0.0):
        found = placed(rows, panel, np.full(_ROWS, score, kind), k)
        assert found.min() >= 0
        assert found.max() < k
