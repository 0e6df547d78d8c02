"""A source that is an iterator of chunks in this program."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from daskcluster.data.open import open_dataset
from daskcluster.errors import DatasetNotFoundError
from daskcluster.methods.streaming.service.arrival import Arrival, Taken
from daskcluster.typing import Dataset, Range


class Portions:
    """Chunks of rows, one after the other.

    Parameters
    ----------
    chunks : iterable
        Of anything `open_dataset` takes, or of pairs of a name and such a thing. Without names they are
        numbered. One that is given again under the same name, as by a program that starts anew from
        its beginning, is not folded again.
    most : int
        How many are taken at a time.

    Examples
    --------
    >>> import numpy as np
    >>> source = Portions([np.zeros((3, 2)), np.ones((4, 2))])
    >>> [(arrival.name, arrival.n_rows) for arrival in source.look({})]
    [('00000000', 3), ('00000001', 4)]
    >>> source.look({})
    []
    """

    has_times: ClassVar[bool] = False

    def __init__(self, chunks: Iterable[Any], most: int = 64) -> None:
        self._chunks: Iterator[Any] = iter(chunks)
        self._most = most
        self._number = 0
        self._held: dict[str, Dataset] = {}

    def look(self, taken: Mapping[str, Taken]) -> list[Arrival]:
        """Draw the next chunks; those that were taken before are let go at once."""
        self._held.clear()
        found: list[Arrival] = []
        while len(found) < self._most:
            try:
                item = next(self._chunks)
            except StopIteration:
                break
            name, rows = item if _is_named(item) else (f"{self._number:08d}", item)
            self._number += 1
            if name in taken:
                continue
            dataset = open_dataset(rows)
            self._held[name] = dataset
            digest = hashlib.sha256(f"{name} {dataset.n_rows}".encode()).hexdigest()[:16]
            found.append(Arrival(name, digest, dataset.n_rows))
        return found

    def open(self, arrival: Arrival, span: Range) -> Dataset:
        if arrival.name not in self._held:
            raise DatasetNotFoundError(f"the chunk {arrival.name!r} is gone; give it again.")
        return self._held[arrival.name]

    def facts(self) -> dict[str, Any]:
        return {"kind": "iterator"}


def _is_named(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
