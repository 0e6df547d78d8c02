"""A table: rows to be read once, front to back, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.storage.files import open_file
from daskcluster.storage.location import Location, explain

Block = tuple[Any, np.ndarray | None]
"""Rows, (m, d) or `SparseRows`, and their weights (m,), or None."""


@dataclass(frozen=True)
class Table:
    """Rows to be read once, front to back.

    Attributes
    ----------
    n_rows : int or None
        None where only reading tells.
    n_features : int
    dtype : dtype
        What holds every value of the source.
    weighted : bool
    blocks : callable () -> iterator of (rows, weights or None)
    n_entries : int or None
        Stored values of CSR rows; None for dense ones.
    """

    n_rows: int | None
    n_features: int
    dtype: np.dtype[Any]
    weighted: bool
    blocks: Callable[[], Iterator[Block]]
    n_entries: int | None = None


def open_binary(location: Location) -> Any:
    """Open a file for reading bytes."""
    try:
        return open_file(location)
    except OSError as error:
        raise explain(error, location, "file") from error
