"""Rows that are pictures: side by side in one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskcluster.errors import InvalidParameterError

Shape = tuple[int, ...]
"""Height and width, and 3 or 4 channels if there is a third number."""


def check_shape(shape: Sequence[int], n_features: int) -> Shape:
    """Return a shape that rows of so many features can be pictures of.

    Raises
    ------
    InvalidParameterError
    """
    found = tuple(int(size) for size in shape)
    right = len(found) == 2 or (len(found) == 3 and found[2] in (1, 3, 4))
    if not right or min(found) < 1 or int(np.prod(found)) != n_features:
        raise InvalidParameterError(
            f"image_shape={found} should be (height, width) or (height, width, 1, 3 or 4 channels), and "
            f"its product the number of features, {n_features}."
        )
    return found


def mosaic(rows: Sequence[np.ndarray | None], shape: Shape, columns: int) -> np.ndarray:
    """Return pictures in lines of `columns`, one pixel apart.

    Parameters
    ----------
    rows : sequence of ndarrays of shape (d,), or None
        None leaves a gap.
    shape : tuple
    columns : int

    Returns
    -------
    ndarray of shape (height, width, 4)
        Of floats from 0 to 1: what is smallest in all rows is 0, what is largest 1. Gaps are transparent.
    """
    height, width = shape[:2]
    lines = -(-len(rows) // columns)
    out = np.zeros((lines * (height + 1) - 1, columns * (width + 1) - 1, 4))
    present = [row for row in rows if row is not None]
    if not present:
        return out
    low, high = min(float(r.min()) for r in present), max(float(r.max()) for r in present)
    for place, row in enumerate(rows):
        if row is None:
            continue
        y, x = place // columns * (height + 1), place % columns * (width + 1)
        scaled = (np.asarray(row, np.float64).reshape(shape) - low) / ((high - low) or 1.0)
        out[y : y + height, x : x + width] = _coloured(scaled)
    return out


def _coloured(picture: np.ndarray) -> np.ndarray:
    channels = picture[:, :, None] if picture.ndim == 2 else picture
    if channels.shape[2] == 1:
        channels = np.repeat(channels, 3, axis=2)
    if channels.shape[2] == 4:
        return channels
    return np.dstack([channels, np.ones(channels.shape[:2])])
