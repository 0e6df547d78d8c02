"""Rows scaled to length one."""

from __future__ import annotations

import numpy as np
import pytest

from daskcluster.chunk import Chunk
from daskcluster.kernels.data_statistics import scaled_to_unit_length


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_have_length_one_and_lengths_are_found_once(dtype: type) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 77)).astype(dtype)
    rows[3], rows[4], rows[5, 0] = 0.0, np.finfo(dtype).max, np.nan
    lengths = np.zeros(len(rows))
    scaled = scaled_to_unit_length(rows, lengths)
    wide = rows.astype(np.longdouble)
    expected = wide / np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    ordinary = [row for row in range(len(rows)) if row not in (3, 5)]
    np.testing.assert_allclose(scaled[ordinary], expected[ordinary], rtol=4 * np.finfo(dtype).eps)
    assert (scaled[3] == 0.0).all()
    assert np.isnan(scaled[5]).all()
    again = scaled_to_unit_length(rows, lengths)
    assert again.tobytes() == scaled.tobytes()


def test_blocks_share_the_lengths_of_their_chunk() -> None:
    rows = np.random.default_rng(1).normal(size=(5000, 100)).astype(np.float32)
    chunk = Chunk(rows, normalize=True, lengths=np.zeros(len(rows)))
    first = chunk.computed()
    assert (chunk.lengths > 0.0).all()
    assert (chunk.slice(700, 900).computed() == first[700:900]).all()
    assert (Chunk(rows, normalize=True).computed() == first).all()
