"""The knee of a falling curve, such as cost against the number of clusters.

The rule of Kneedle (Satopaa et al., "Finding a 'Kneedle' in a Haystack", ICDCSW 2011): scale both axes to
[0, 1] and take the point farthest below the chord between the ends. Unlike in the paper, both axes are
logarithmic. The cost of rows without clusters falls as a power of k, k^(-2/d) (Zador, 1982). On logarithmic
axes this is a straight line without a knee; on linear axes it has a knee that depends on the range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskcluster.elementary import log

LEAST_HEIGHT = 0.05
"""Bends below this share of the total fall count as noise."""
_LEAST_COST = 1e-12


@dataclass(frozen=True)
class Knee:
    """The point of a curve that lies farthest below its chord.

    Attributes
    ----------
    index : int
    height : float
        Its distance below the chord, as a share of the total fall; 0 for a straight line, negative if the
        whole curve is above its chord.
    """

    index: int
    height: float

    @property
    def is_clear(self) -> bool:
        return self.height >= LEAST_HEIGHT


def find_knee(ks: np.ndarray, costs: np.ndarray) -> Knee:
    """Return the knee of `costs` against `ks`.

    Parameters
    ----------
    ks : ndarray of shape (m,)
        Numbers of clusters, ascending, at least 1.
    costs : ndarray of shape (m,)
        At least 0. Costs below 1e-12 times the first are raised to that value.

    Examples
    --------
    >>> import numpy as np
    >>> ks = np.arange(1, 9)
    >>> find_knee(ks, np.array([100, 60, 30, 5, 4.6, 4.3, 4.1, 4.0])).index
    3
    >>> find_knee(ks, 7.0 / ks).is_clear
    False
    """
    if len(ks) < 3 or costs[0] <= 0.0:
        return Knee(0, 0.0)
    across = log(np.asarray(ks, np.float64))
    down = log(np.maximum(np.asarray(costs, np.float64) / costs[0], _LEAST_COST))
    fall = down[0] - down[-1]
    if fall <= 0.0:
        return Knee(0, 0.0)
    chord = 1.0 - (across - across[0]) / (across[-1] - across[0])
    height = chord - (down - down[-1]) / fall
    index = 1 + int(np.argmax(height[1:-1]))
    return Knee(index, float(height[index]))
