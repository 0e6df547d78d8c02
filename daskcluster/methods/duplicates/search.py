"""One search for near-duplicates: centres, a pass that sorts rows by cell, blocks, pairs, groups."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from daskcluster.chunk import Chunk
from daskcluster.chunkwise.centres import PreparedCentres
from daskcluster.data.shuffle_passes import one_pass
from daskcluster.data.writer import ArraySink
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import home_engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.errors import ReachError
from daskcluster.events import Callback
from daskcluster.methods.duplicates.axes import choose_axes
from daskcluster.methods.duplicates.blocks import INDEX, SortedRows, sort_rows
from daskcluster.methods.duplicates.chunkwise import (
    DESCRIBED,
    ROUNDING,
    Rule,
    describe_rows,
)
from daskcluster.methods.duplicates.pairs import (
    BLOCKS,
    CENTRES,
    PAIRS,
    Reach,
    Search,
    Unit,
    find_pairs,
    measure,
    prepare,
)
from daskcluster.methods.duplicates.plan import DuplicatesPlan
from daskcluster.methods.duplicates.scratch import RowFiles, Scratch
from daskcluster.methods.hierarchical.cells import CellParameters, fit_centres
from daskcluster.randomness import Key
from daskcluster.seeding.methods import draw_rows
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import Document
from daskcluster.storage.location import locate
from daskcluster.typing import Dataset

_ITERATIONS = 5
"""Iterations of k-means: better centres rule out more pairs, but change none."""
_UNIT_ROWS = 1 << 17
"""Rows of the blocks that one task compares a block with, at most: a task takes seconds."""
KIND = "near-duplicates"
_CELLS = "cells"
"""Kind of files on scratch: what is known of rows before they are sorted."""


@dataclass
class DuplicateSearch:
    """A search for all pairs of near-duplicates.

    Parameters
    ----------
    dataset : Dataset
        Normalized for cosine.
    rule : Rule
    plan : DuplicatesPlan
    engine : Engine
    callbacks : sequence of callables
    seed : int
    forest : bool
        Pairs need only connect the same rows as all pairs do.

    Attributes
    ----------
    bytes_read, passes : int
        Decoded bytes of the source that were read, and passes over it.
    """

    dataset: Dataset
    rule: Rule
    plan: DuplicatesPlan
    engine: Engine
    callbacks: Sequence[Callback]
    seed: int
    forest: bool
    bytes_read: int = 0
    passes: int = 0
    search: Search = field(init=False)
    sorted: SortedRows = field(init=False)

    @contextmanager
    def on_scratch(
        self, checkpoint: CheckpointFolder | None, folder: str, *, resume: bool
    ) -> Iterator[None]:
        """Sort rows into blocks, in the folder of a checkpoint or a temporary one below `folder`.

        An earlier run that has a checkpoint is resumed. The folder is removed at the end of the block; that
        of a checkpoint stays if the block raises.
        """
        with threadpool_limits(1, user_api="blas"):
            if checkpoint is not None:
                self._resume(checkpoint, folder, resume=resume)
                yield
                checkpoint.clear()
                return
            below = tempfile.mkdtemp(prefix="daskcluster-duplicates-", dir=folder)
            try:
                self._begin(Scratch(locate(below)), folder)
                yield
            finally:
                shutil.rmtree(below, ignore_errors=True)

    def _resume(self, checkpoint: CheckpointFolder, folder: str, *, resume: bool) -> None:
        state = checkpoint.latest() if resume else None
        if state is None:
            checkpoint.clear()
            name = checkpoint.new_attachment("blocks")
            body: dict[str, Any] = {"attached": {"blocks": name}}
            # Its files show how far the search has come.
            checkpoint.commit(Document(KIND, body, {}))
        else:
            name = state.body["attached"]["blocks"]
        scratch = Scratch(checkpoint.attachment(name), durable=True)
        if scratch.finished(INDEX):
            self._use(scratch)
            self.sorted = SortedRows(*scratch.read(INDEX, 0))
        else:
            self._begin(scratch, folder)

    def _use(self, scratch: Scratch) -> None:
        if not self.engine.can_read(scratch):
            raise ReachError(
                f"The workers cannot reach the scratch folder {scratch.place.url!r}; give checkpoint= a "
                "URL that all of them can read and write, such as s3://bucket/scratch."
            )
        self.search = Search(scratch, self.rule, self.forest)

    def _begin(self, scratch: Scratch, folder: str) -> None:
        self._use(scratch)
        if not scratch.finished(CENTRES):
            scratch.write(CENTRES, 0, *self._centres())
        described = self._described(scratch)
        self.sorted, n_bytes = sort_rows(
            self.dataset, described, scratch,
            block_rows=self.plan.block_rows, folder=folder, callbacks=self.callbacks,
        )  # fmt: skip
        self.passes += 1
        self.bytes_read += n_bytes
        scratch.write(INDEX, 0, *vars(self.sorted).values())

    def _described(self, scratch: Scratch) -> np.ndarray:
        """Return what rows are sorted by, (n,); one pass over those that no earlier run has described."""
        described, n = np.empty(self.dataset.n_rows, DESCRIBED), self.dataset.n_rows
        files = RowFiles.found(scratch, _CELLS) if scratch.durable else None
        if files is None or not files.has((0, n)):
            centres = scratch.read(CENTRES, 0)[0]
            with self.engine.place(
                self.dataset, footprint=ONE_PASS, callbacks=self.callbacks
            ) as placement:
                sink = files or ArraySink(described)
                placement.map_rows(
                    describe_rows, sink, centres, prepare=PreparedCentres, name="cells"
                )
                self.bytes_read += placement.traffic.bytes_read
            self.passes += 1
        if files is not None:
            files.read(described)
        return described

    def _centres(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the centres of the cells, k-means of a sample of rows, and axes."""
        key = Key(self.seed, "near-duplicates")
        drawn = np.sort(draw_rows(self.dataset, self.plan.sample_rows, key, fewer=True))
        rows = Chunk(self.dataset.take(drawn), normalize=self.dataset.normalize)
        self.passes += 1
        none = np.empty(0, np.int64)
        no_rows = np.empty((0, self.plan.n_features))
        parameters = CellParameters(no_rows, none, none, "random", 1, _ITERATIONS, 0.0, self.seed)
        k = min(self.plan.n_cells, len(drawn))
        centres = fit_centres(home_engine(self.engine), rows, k, key, parameters)
        return centres, choose_axes(np.asarray(rows.computed()), centres, self.rule)

    # -- pairs ------------------------------------------------------------------------------------

    def pairs(self) -> np.ndarray:
        """Return the pairs of near-duplicates among rows that equal no earlier row, int64 (m, 2)."""
        units = self._units(self._prepare())
        finished = self.search.scratch.finished(PAIRS)
        tasks = [
            partial(find_pairs, self.search, number, unit) for number, unit in enumerate(units)
        ]
        self._run("pairs", tasks, [self._work(unit) for unit in units], finished)
        parts = [self.search.scratch.read(PAIRS, number)[0] for number in range(len(units))]
        return np.concatenate([np.empty((0, 2), np.int64), *parts])

    def _prepare(self) -> list[Reach]:
        finished = self.search.scratch.finished(BLOCKS)
        cells, sizes = self.sorted.cells.tolist(), self.sorted.sizes.tolist()
        tasks = [
            partial(prepare, self.search, number, cell, finished=number in finished)
            for number, cell in enumerate(cells)
        ]
        return self._run("blocks", tasks, sizes)

    def _units(self, reaches: list[Reach]) -> list[Unit]:
        """Return the blocks that have to meet, the most work first."""
        cells = self.sorted.cells
        gaps = np.stack([each.gaps for each in reaches])
        least, most = (
            np.array([getattr(each, name) for each in reaches]) for name in ("least", "most")
        )
        units = []
        for block, cell in enumerate(cells.tolist()):
            # The distances of two rows to the bisector add up to no more than that between them.
            radius = self.rule.radius * ROUNDING  # gaps are rounded to float32
            meets = gaps[block, cells] + gaps[:, cell] <= radius
            far = (least > most[block] + radius) | (most < least[block] - radius)
            meets &= ~((cells == cell) & far)
            meets[:block] = False
            others = np.flatnonzero(meets)
            turns = np.cumsum(self.sorted.sizes[others]) // _UNIT_ROWS
            for part in np.split(others, np.flatnonzero(np.diff(turns)) + 1):
                units.append(Unit(block, cell, np.stack([part, cells[part]], axis=1)))
        return sorted(units, key=self._work, reverse=True)

    def _work(self, unit: Unit) -> int:
        """Return how many pairs of rows the blocks of a unit have."""
        sizes = self.sorted.sizes
        return int(sizes[unit.block] * sizes[unit.others[:, 0]].sum())

    def measured(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the similarity or distance of pairs of rows, float64 (m,)."""
        at = self.sorted.leaders[rows], self.sorted.leaders[others]
        places = [np.divmod(self.sorted.places[each], self.plan.block_rows) for each in at]
        found = np.full(len(rows), 1.0 if self.rule.cosine else 0.0)
        differ = np.flatnonzero(at[0] != at[1])
        order = differ[np.argsort(places[0][0][differ], kind="stable")]
        blocks = places[0][0][order]
        parts = [part for part in np.split(order, np.flatnonzero(np.diff(blocks)) + 1) if len(part)]
        tasks = [
            partial(
                measure, self.search, int(places[0][0][part[0]]), places[0][1][part],
                np.stack([each[part] for each in places[1]], axis=1),
            )
            for part in parts
        ]  # fmt: skip
        values = self._run("kept rows", tasks, [len(part) for part in parts])
        for part, value in zip(parts, values, strict=True):
            found[part] = value
        return found

    def _run(
        self,
        name: str,
        tasks: Sequence[Callable[[], Any]],
        costs: Sequence[Any],
        finished: frozenset[int] = frozenset(),
    ) -> list[Any]:
        """Run tasks but those that are finished; progress counts rows, by their cost."""
        n, found = self.dataset.n_rows, []
        shares = np.cumsum(np.asarray(costs, np.float64)) if len(costs) else np.ones(1)
        rows = np.diff(np.floor(shares / max(1.0, shares[-1]) * n), prepend=0.0).astype(np.int64)
        left = [number for number in range(len(tasks)) if number not in finished]
        with one_pass(name, n, self.callbacks) as running:
            running.advance(n - int(rows[left].sum()) if len(tasks) else n)
            for number, value in zip(
                left, self.engine.run_ahead([tasks[number] for number in left]), strict=True
            ):
                found.append(value)
                running.advance(int(rows[number]))
        return found
