"""Few rows in memory, gone through by the thread that has them: nothing is planned, queued or shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskcluster.chunkwise.reduction import Reduction
from daskcluster.engine.local import LocalEngine, LocalPlacement
from daskcluster.engine.memory import Footprint, MemoryPlan
from daskcluster.events import Callback
from daskcluster.typing import Dataset

_NO_PLAN = MemoryPlan(0, 0, 0, 0, 0, 0)


class InHand(LocalPlacement):
    """Makes passes at once, in the calling thread.

    For rows of which a pass takes less than its arrangement on an engine would, such as a leaf of a
    stream; the results are those of an engine to the bit.

    Parameters
    ----------
    dataset : Dataset
        In memory.

    Examples
    --------
    >>> import numpy as np
    >>> from daskcluster.data.open import open_dataset
    >>> from daskcluster.engine.scaled import ScaledPlacement
    >>> with InHand(open_dataset(np.eye(3))) as placement:
    ...     survey = ScaledPlacement(placement).known()
    >>> survey.n_rows
    3
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset, 1, _NO_PLAN, (), spans=[(0, dataset.n_rows)])
        self._chunks = list(dataset.chunks(self.units))

    def reduce(self, reduction: Reduction, params: Any) -> Any:
        prepared = reduction.prepare(params)
        found = reduction.zero(prepared)
        for chunk in self._chunks:
            reduction.chunk(chunk, prepared, found)
        self.traffic.passes += 1
        return found


class InHandEngine(LocalEngine):
    """Fits few rows in memory in the calling thread: every placement is `InHand`."""

    def __init__(self) -> None:
        super().__init__(1)

    def place(
        self,
        dataset: Dataset,
        *,
        footprint: Footprint | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> InHand:
        return InHand(dataset)
