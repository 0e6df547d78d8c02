"""What holds for register tiles alone, and what for the portable one."""

from __future__ import annotations

from daskcluster.kernels.jit import tile_name

BOUNDS_SPARE = tile_name() != "portable"
"""Whether bounds spare rows: the portable tile looks at all of them in every pass, to the same results."""
