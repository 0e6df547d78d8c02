"""Nearest centres of dense rows by a fused tile, which never stores an n x k matrix.

The label of a row is the argmax over centres of one FMA chain in feature order that starts at
-|c - o|^2 / 2, lowest index on ties. Every tile computes the same bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from daskcluster.kernels.accumulate import fused_kernel, sum_relabelled
from daskcluster.kernels.jit import read_only, tile_name
from daskcluster.kernels.panels import (
    PORTABLE,
    Panels,
    Tile,
    choose_tile,
    common_offset,
    fill_panels,
)
from daskcluster.kernels.row_block import lanes_of
from daskcluster.kernels.search import search_kernel

_CACHE_BYTES = 192 << 10
"""Byte limit of the packed rows, and of a group of panels; both together fit small L2 caches."""
_FAR_BYTES, _BLOCKS = 4 << 20, 16
"""Centres of more bytes are read from memory or a distant cache: up to so many blocks, of no more bytes,
are packed at once, so that they share a read, though rows then leave the small caches."""

_LEAST_GROUP = 10
"""Least number of centres per group; fewer are not worth the 4 bytes of state per row."""

_TWO_STAGE_FROM, _TWO_STAGE_START = 30, 10
"""With two stages, a row is scored once more against its winner's panel, which costs d steps and about ten
more, but two of three instructions per centre are saved."""

_TRIED: dict[tuple[str, np.dtype[Any]], bool] = {}
"""Whether tiles of this name and dtype compile on this machine."""

_NO_LABELS = np.empty(0, np.int32)
_NO_SCORES = {np.dtype(kind): np.empty((0, 2), np.dtype(kind)) for kind in (np.float32, np.float64)}


def _compiles(tile: Tile, dtype: np.dtype[Any]) -> bool:
    """Return whether searches with such tiles can be compiled; warn if not.

    All heights compile alike, so only the first one requested is tried.
    """
    kind = tile.name, dtype
    if kind not in _TRIED:
        row = np.zeros((1, 1), dtype)
        try:
            nearest(row, pack(row, tile=tile), np.empty(1, np.int32))
            _TRIED[kind] = True
        except Exception as error:  # numba and LLVM raise various errors on untested CPUs
            _warn_portable(tile.name, f"{type(error).__name__}: {error}".splitlines()[0])
            _TRIED[kind] = False
    return _TRIED[kind]


@cache
def _warn_portable(name: str, reason: str) -> None:
    warnings.warn(
        f"the {name} tile does not compile here ({reason}); using the portable tile, with the same "
        "labels at about a quarter of the speed",
        RuntimeWarning,
        stacklevel=3,
    )


def working_tile(k: int, dtype: np.dtype[Any]) -> Tile:
    """Return the tile that suits k centres and this CPU."""
    tile = choose_tile(k, dtype, tile_name())
    return tile if _compiles(tile, dtype) else PORTABLE


def _blocking(panels: Panels) -> tuple[int, int]:
    """Return the number of row blocks to pack at once, and of panels per group."""
    if panels.data.nbytes <= 4 * _CACHE_BYTES:
        return 1, len(panels.data)
    block_bytes = panels.d * panels.tile.rows * panels.data.itemsize
    panel_bytes = panels.data.shape[1] * panels.data.itemsize
    blocks = max(1, _CACHE_BYTES // block_bytes)
    if panels.data.nbytes > _FAR_BYTES:
        blocks = max(blocks, min(_BLOCKS, _FAR_BYTES // block_bytes))
    return blocks, max(1, _CACHE_BYTES // panel_bytes)


def _is_two_stage(panels: Panels) -> bool:
    """Return whether to find the winning panel first: for many centres with few features."""
    return panels.tile != PORTABLE and panels.k >= _TWO_STAGE_FROM * (panels.d + _TWO_STAGE_START)


def pack(centres: np.ndarray, offset: np.ndarray | None = None, tile: Tile | None = None) -> Panels:
    """Pack centres for `nearest`.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    offset : ndarray of shape (d,), optional
        Subtracted from rows and centres. Default: `common_offset` of the centres.
    tile : Tile, optional
        Default: the one that suits this CPU and k.

    Returns
    -------
    Panels
        For use in this process only, since the layout depends on the CPU.
    """
    centres = np.ascontiguousarray(centres)
    k, d = centres.shape
    offset = common_offset(centres) if offset is None else np.asarray(offset, centres.dtype)
    if tile is None:
        tile = working_tile(k, centres.dtype)
    data = np.empty((-(-k // tile.height), (d + 1) * tile.height), centres.dtype)
    fill_panels(centres, np.ascontiguousarray(offset), data, tile.height)
    return Panels(data, offset, k, d, tile)


def group_size(k: int, dtype: np.dtype[Any]) -> int:
    """Return the number of centres per group for k centres: whole panels, about ten centres."""
    height = working_tile(k, dtype).height
    return height * -(-_LEAST_GROUP // height)


def pack_groups(
    centres: np.ndarray, groups: Sequence[np.ndarray]
) -> tuple[Panels, np.ndarray, int]:
    """Pack centres so that each group has its own panels.

    Parameters
    ----------
    centres : ndarray of shape (k, d), float32 or float64
    groups : sequence of ndarray of int
        Centres of each group, ascending, so that ties go to the lowest index.

    Returns
    -------
    panels : Panels
    order : ndarray of int32
        The centre in each lane; -1 where there is none.
    per_group : int
        Panels of each group.
    """
    centres = np.ascontiguousarray(centres)
    k, d = centres.shape
    offset = common_offset(centres)
    most = max(len(group) for group in groups)
    tile = working_tile(most, centres.dtype)
    per_group = -(-most // tile.height)
    data = np.empty((len(groups) * per_group, (d + 1) * tile.height), centres.dtype)
    order = np.full(len(data) * tile.height, -1, np.int32)
    for number, group in enumerate(groups):
        part = slice(number * per_group, (number + 1) * per_group)
        fill_panels(np.ascontiguousarray(centres[group]), offset, data[part], tile.height)
        order[part.start * tile.height :][: len(group)] = group
    return Panels(data, offset, k, d, tile), order, per_group


def nearest(
    X: np.ndarray,
    panels: Panels,
    labels: np.ndarray,
    second: np.ndarray | None = None,
    scores: np.ndarray | None = None,
) -> None:
    """Label every row with its nearest centre, or its nearest two.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, dtype of the panels
    panels : Panels
    labels : ndarray of shape (n,), int32
        OUT. In ``[0, k)`` for any input; a row with NaN has no meaningful label.
    second : ndarray of shape (n,), int32, optional
        OUT. The runner-up, lowest index on ties; -1 where there is none (k = 1).
    scores : ndarray of shape (n, 2), dtype of the panels, optional
        OUT, with `second`. The scores x'.c' - |c'|^2 / 2 of both (-inf for no runner-up), so that the
        squared distance is |x'|^2 - 2 score up to rounding; x' and c' have ``panels.offset`` subtracted.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.empty(3, np.int32)
    >>> nearest(np.array([[0.1], [2.9], [5.0]]), pack(np.array([[0.0], [3.0]])), labels)
    >>> labels
    array([0, 1, 1], dtype=int32)
    """
    keep = 1 if second is None else 2
    two_stage = keep == 1 and _is_two_stage(panels)
    search = search_kernel(panels.tile, lanes_of(panels.dtype), keep, two_stage=two_stage)
    more = (
        _NO_LABELS if second is None else second,
        _NO_SCORES[panels.dtype] if scores is None else scores,
    )
    search(read_only(X), panels.data, panels.offset, labels, *more, *_blocking(panels))


def nearest_and_sum(
    X: np.ndarray,
    panels: Panels,
    labels: np.ndarray,
    shift: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
    *,
    moving: bool = False,
) -> None:
    """Label rows and add them to the sums of their clusters, in one sweep.

    The same as `nearest` followed by `daskcluster.kernels.accumulate.accumulate`, to the bit; or with
    `moving` by `daskcluster.kernels.accumulate.move`, so that the sums for the old labels become those for
    the new ones.

    Parameters
    ----------
    X : ndarray of shape (n, d), C-contiguous, dtype of the panels
    panels : Panels
    labels : ndarray of shape (n,), int32
        OUT. With `moving`, IN/OUT, in ``[0, k)``: not checked.
    shift : ndarray of shape (d,), float64
    sums : ndarray of shape (k, d), float64, C-contiguous
        IN/OUT.
    counts : ndarray of shape (k,), int64
        IN/OUT.
    moving : bool
        Move rows whose label changes from one cluster's sums to the other's, instead of adding all rows.

    Examples
    --------
    >>> import numpy as np
    >>> labels, sums, counts = np.empty(3, np.int32), np.zeros((2, 1)), np.zeros(2, np.int64)
    >>> rows, panels = np.array([[0.0], [3.0], [5.0]]), pack(np.array([[0.0], [3.0]]))
    >>> nearest_and_sum(rows, panels, labels, np.array([1.5 * 2.0**20]), sums, counts)
    >>> labels, sums.ravel(), counts
    (array([0, 1, 1], dtype=int32), array([0., 8.]), array([1, 2]))
    >>> labels[:] = 0
    >>> sums, counts = np.array([[8.0], [0.0]]), np.array([3, 0])
    >>> nearest_and_sum(rows, panels, labels, np.array([1.5 * 2.0**20]), sums, counts, moving=True)
    >>> labels, sums.ravel(), counts
    (array([0, 1, 1], dtype=int32), array([0., 8.]), array([1, 2]))
    """
    if panels.tile == PORTABLE or _blocking(panels)[0] > 1:
        sum_relabelled(
            X, lambda out: nearest(X, panels, out), labels, shift, sums, counts, moving=moving
        )
        return
    fused = fused_kernel(panels.tile, lanes_of(panels.dtype), two_stage=_is_two_stage(panels))
    fused(read_only(X), panels.data, panels.offset, labels, shift, sums, counts, moving)
