"""Rows that are in the memory of this process, dense or sparse: handed over as views, pickled whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from daskcluster.chunk import Chunk
from daskcluster.data.dataset import OnRead, RowDataset
from daskcluster.data.recipes import HeldRecipe
from daskcluster.sparse_rows import Rows
from daskcluster.typing import Range, Reach, Recipe


class MemoryDataset(RowDataset):
    """Base of datasets in memory; a subclass can be made of its rows alone."""

    _recipe: HeldRecipe

    @property
    @abstractmethod
    def held(self) -> Rows:
        """All rows, as they are in memory."""

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def own_reach(self) -> Reach:
        return Reach.PROCESS

    def own_recipe(self) -> Recipe:
        return self._recipe

    def __getstate__(self) -> dict[str, Any]:
        # A pickled dataset in memory carries its rows; only its recipe is bound to the process.
        shown = {"weights": self.own_weights, "scaling": self.scaling, "normalize": self.normalize}
        return {"rows": self.held, **shown}

    def __setstate__(self, state: dict[str, Any]) -> None:
        kind: Any = type(self)
        kind.__init__(self, state["rows"])
        self.own_weights = state["weights"]
        self.scaling, self.normalize = state["scaling"], state["normalize"]

    def fetch(self, start: int, stop: int) -> Any:
        return self.held[start:stop]

    def chunks(self, ranges: Iterable[Range], *, on_read: OnRead | None = None) -> Iterator[Chunk]:
        """Yield one view per range; nothing is read, so `on_read` hears nothing."""
        return (self.read(span) for span in ranges if span[1] > span[0])
