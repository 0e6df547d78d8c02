"""Under what a result keeps its bits: what estimators and functions declare, and the documentation prints.

A result follows from its rows, its parameters and its seed. It keeps its bits under every circumstance that
its declaration does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

CIRCUMSTANCES = {
    "engine": "threads of this process, or a Dask cluster",
    "threads": "number of threads",
    "workers": "number of workers",
    "cpu": "kind of processor",
    "chunks": "chunks and files of stored rows",
    "storage": "rows in memory, or stored",
    "memory_limit": "memory limit",
    "order": "order of rows",
}
"""What a result may depend on, besides rows, parameters and seed."""

ADDED = "Distances are added up in the order of rows, and samples are drawn by their numbers."
DRAWN = "Rows are drawn by their numbers."
FIRST = "The first row of a group is kept where others are as good."
POOLS = "Batches of stored rows above 256 MB come from pools of whole chunks."
ROOM = "A limit that leaves less than 256 MB makes the pools of stored rows smaller."
AS_ITS_ESTIMATOR = "As the estimator does."
SEEDING = '`init="auto"` is k-means++ for rows in memory and k-means|| for stored rows.'


def varies_with(**reasons: str) -> Callable[[T], T]:
    """Return a decorator that declares under which circumstances an estimator or function changes its bits.

    Parameters
    ----------
    **reasons : str
        A sentence for each of the `CIRCUMSTANCES`. Without any, the bits depend on rows, parameters and
        seed alone.

    Raises
    ------
    ValueError
        A name is no circumstance.

    Examples
    --------
    >>> @varies_with(order="Rows are drawn by their numbers.")
    ... def draw(rows): ...
    >>> declared(draw)
    {'order': 'Rows are drawn by their numbers.'}
    """
    unknown = reasons.keys() - CIRCUMSTANCES.keys()
    if unknown:
        raise ValueError(f"{sorted(unknown)} are none of {list(CIRCUMSTANCES)}.")

    def decorated(subject: T) -> T:
        setattr(subject, _NAME, dict(reasons))
        return subject

    return decorated


def declared(subject: object) -> Mapping[str, str] | None:
    """Return what an estimator or function declares; None if it declares nothing itself."""
    found: Mapping[str, str] | None = vars(subject).get(_NAME)
    return found


_NAME = "_varies_with"
