"""What the search by bounds of quantized rows and centres would cost."""

from __future__ import annotations

import numpy as np

from daskcluster.chunkwise.bound_costs import Sample, survivors
from daskcluster.kernels.candidates import errors_of
from daskcluster.kernels.dot_product import LEVELS, MADD, SDOT, VNNI

_LEAST_CENTRES, _LEAST_PRODUCTS = 128, 1 << 14
"""With fewer, the search of all centres is over before a sample would be taken."""

_PRODUCT = {MADD: 0.48, VNNI: 0.24, SDOT: 0.3}
"""Of a product, in each instruction."""
_BOUND, _ROW, _FEATURE = 1.0, 3300, 30
"""Of a bound, a row, and a feature of a row, besides products."""
_LOOKED, _LOOKED_FEATURE, _MEASURED, _MEASURED_FEATURE = 660, 9, 800, 17
"""Of a panel that is looked through, and of a centre that is measured."""

_RANGE = 1.3
"""The range of the coordinates of most rows, over that of a typical row."""
_UNEVEN = 1.25
"""The largest loss of a centre, over what is expected of losses that are uniform."""


def may_quantize(n_clusters: int, n_features: int) -> bool:
    """Return whether there are enough centres and features."""
    return n_clusters >= _LEAST_CENTRES and n_clusters * n_features >= _LEAST_PRODUCTS


def quantized_cost(sample: Sample, height: int, dot: int) -> float:
    """Return the cost of the search per row, see `daskcluster.chunkwise.bound_costs`.

    Bounds are taken to be the scores plus what quantizing may take from them.
    """
    (k, d), levels = sample.centres.shape, LEVELS[dot]
    mean = sample.centres.mean(axis=0)
    extent = float(
        np.maximum(sample.centres.max(axis=0) - mean, mean - sample.centres.min(axis=0)).max()
    )
    about = sample.rows - mean
    squares = sample.squares - 2.0 * (sample.centres @ mean) + float(np.square(mean).sum())
    reach = np.median(about.max(axis=1)) - np.median(about.min(axis=1))
    lost = _RANGE * np.sqrt(d / 12) * reach / levels.row
    rest = _UNEVEN * np.sqrt(d / 12) * extent / levels.centre
    lengths = np.sqrt(np.square(about, dtype=np.float64).sum(axis=1))
    margins = lost * (np.sqrt(max(float(squares.max()), 0.0)) + rest) + lengths * rest
    limits = sample.limits(errors_of(d, about.dtype, float(np.sqrt(sample.squares.max())), 0.0))
    measured, looked = survivors(sample.scores, limits - margins, height)
    cost = _ROW + _FEATURE * d + k * (_PRODUCT[dot] * (d + 3) + _BOUND)
    cost += looked * (_LOOKED + _LOOKED_FEATURE * d)
    return cost + measured * (_MEASURED + _MEASURED_FEATURE * d)
