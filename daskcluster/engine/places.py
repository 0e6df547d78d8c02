"""Where the rows and the state of one unit rest between passes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from daskcluster.chunk import Chunk


class Place:
    """What stays of one unit: its rows where those are resident, and the state of one reduction.

    State carries a stamp, which says after which call it is valid. It is taken out while a task
    works on it, so that a task that dies half-way leaves nothing behind.

    Examples
    --------
    >>> place = Place()
    >>> place.keep_state("bounds", 1, "state")
    >>> place.pop_state("bounds"), place.pop_state("bounds")
    ((1, 'state'), (-1, None))
    """

    keeps = True
    """False: whatever is put here is forgotten."""

    def __init__(self) -> None:
        self._rows: list[Chunk] | None = None
        self._state: tuple[str, int, Any] = ("", -1, None)
        self._lock = threading.Lock()

    def rows(self) -> list[Chunk] | None:
        """Return the resident chunks, or None."""
        return self._rows

    def keep_rows(self, chunks: Sequence[Chunk]) -> None:
        if self.keeps and self._rows is None:
            self._rows = list(chunks)

    def drop_rows(self) -> None:
        self._rows = None

    def pop_state(self, name: str) -> tuple[int, Any]:
        """Take the state of a reduction out, with its stamp; that of another is given up."""
        with self._lock:
            found, self._state = self._state, ("", -1, None)
        return found[1:] if found[0] == name else (-1, None)

    def peek_state(self, name: str) -> tuple[int, Any]:
        """Return the state and its stamp, and leave it there."""
        found = self._state
        return found[1:] if found[0] == name else (-1, None)

    def keep_state(self, name: str, stamp: int, state: Any) -> None:
        if self.keeps:
            self._state = (name, stamp, state)

    def drop_state(self) -> None:
        self._state = ("", -1, None)
