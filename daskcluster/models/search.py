"""The search by bounds of a fit, as its model keeps it, so that it need not be found again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskcluster.chunkwise.pruned import FixedSearch
from daskcluster.errors import ModelFormatError
from daskcluster.kernels.projected_centres import Projection
from daskcluster.kernels.quantized_centres import RowRange
from daskcluster.storage.document import read_mapping, read_number

AXES = "axes"
"""Name of the array of axes in a document."""
_NEARLY = 1e-2
"""The most that axes may lack to be orthonormal, see `daskcluster.kernels.projected_centres.Slack`."""


def body_of_search(search: FixedSearch) -> dict[str, Any]:
    """Return everything except the axes, as plain JSON values; for a search that pays."""
    found: dict[str, Any] = {"share": search.share, "short": search.short}
    for name in ("features", "heads"):
        rows: RowRange | None = getattr(search, name)
        if rows is not None:
            found[name] = rows._asdict()
    return found


def search_of(
    body: Mapping[str, Any], arrays: Mapping[str, np.ndarray], n_features: int
) -> FixedSearch:
    """Return the search that the entry ``search`` of `body`, and axes, describe.

    Raises
    ------
    ModelFormatError
        They describe none.
    """
    entry, axes = read_mapping(body, "search"), arrays.get(AXES)
    short, heads = entry.get("short"), "heads" in entry
    if not isinstance(short, bool) or heads != (axes is not None):
        raise ModelFormatError("the model's search should have axes and their range, or neither.")
    if axes is not None:
        _check_axes(axes, n_features)
    return FixedSearch(
        read_number(entry, "share"),
        axes,
        _range(read_mapping(entry, "features")),
        _range(read_mapping(entry, "heads")) if heads else None,
        short,
    )


def _range(entry: Mapping[str, Any]) -> RowRange:
    found = RowRange(*(read_number(entry, name) for name in RowRange._fields))
    if not (found.low <= found.high and found.longest >= 0.0 and found.rest >= 0.0):
        raise ModelFormatError(
            f"the range {tuple(found)} of the model's search should not be empty."
        )
    return found


def _check_axes(axes: np.ndarray, n_features: int) -> None:
    if axes.ndim != 2 or len(axes) != n_features or not 1 <= axes.shape[1] <= n_features:
        raise ModelFormatError(
            f"axes of shape {axes.shape} should be of shape ({n_features}, m), with m <= {n_features}."
        )
    if axes.dtype not in (np.float32, np.float64):
        raise ModelFormatError(f"axes of dtype {axes.dtype} should be float32 or float64.")
    with np.errstate(all="ignore"):
        is_near = Projection(axes, axes[:0], np.empty(0)).slack().square <= _NEARLY
    if not is_near:
        raise ModelFormatError("axes should be orthonormal; fit and save the model again.")
