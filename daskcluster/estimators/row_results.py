"""Per-row results as one array of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.assign import prepare_rows
from daskcluster.data.sink import ArraySink
from daskcluster.engine.engine import Placement


def results_of_rows(
    placement: Placement,
    fn: Callable[[Chunk, Any], np.ndarray],
    params: Any,
    dtype: Any,
    width: int = 0,
    *,
    name: str = "rows",
) -> np.ndarray:
    """Return ``fn(chunk, prepared)`` of all rows, shape (n,) or (n, width). One pass.

    Parameters
    ----------
    placement : Placement
    fn : callable
        At module level, e.g. `daskcluster.chunkwise.assign.label_rows`.
    params : RowParams, or what else `prepare_rows` takes
    dtype : dtype
    width : int
        Columns of the result; 0 makes it 1-D.
    name : str
        What the pass is called in events.
    """
    n_rows = placement.dataset.n_rows
    sink = ArraySink(np.empty((n_rows, width) if width else (n_rows,), dtype))
    placement.map_rows(fn, sink, params, prepare=prepare_rows, name=name)
    return sink.array
