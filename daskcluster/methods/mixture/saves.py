"""Saves of K(n), the sets of rows: what rows begin again from where their sets are lost.

A save is made by the tasks themselves in a step that is made anyway: each writes the sets of its rows.
"""

from __future__ import annotations

from daskcluster.engine.engine import Placement
from daskcluster.storage.location import locate
from daskcluster.storage.row_state import StateFiles

SAVE_EVERY = 8
"""Steps between two saves of K(n): a lost worker costs its rows half of these again on average."""


class Saves:
    """Saves every `SAVE_EVERY` steps where sets may be lost, and those that are asked for.

    On threads nothing is lost. On a cluster sets are saved if there is a folder that all workers see.

    Parameters
    ----------
    placement : Placement
    width : int
        Clusters in a set.
    last : StateFiles, optional
        A save that is whole, of an earlier fit.

    Attributes
    ----------
    last : StateFiles or None
        The last save that is whole.
    """

    def __init__(self, placement: Placement, width: int, last: StateFiles | None = None) -> None:
        self._placement, self._width = placement, width
        self._count = 0
        self.last = last
        self._next: StateFiles | None = None

    def next(self, n_steps: int, asked: StateFiles | None = None) -> StateFiles | None:
        """Return where to save sets in the step that makes a journal of `n_steps`, None for not at all.

        Parameters
        ----------
        n_steps : int
        asked : StateFiles, optional
            Where somebody wants them in any case.
        """
        self._next = asked
        if asked is not None or n_steps < SAVE_EVERY:
            return asked
        folder = self._placement.shared_folder()
        if folder is not None:
            self._count += 1
            self._next = StateFiles(locate(f"{folder}/{self._count}"), self._width)
        return self._next

    def done(self, n_rows: int) -> bool:
        """Return True if the sets of all rows were saved; the save before is removed, unless it is kept.

        Raises
        ------
        CheckpointError
            Workers have written what is kept where the driver does not see it.
        """
        if self._next is None:
            return False
        whole = n_rows == self._placement.dataset.n_rows
        if self._next.kept:
            self._next.check(self._placement.dataset.n_rows, whole=False)
        useless = self.last if whole else self._next
        if useless is not None and not useless.kept:
            useless.remove()
        if whole:
            self.last = self._next
        return whole
