"""One call of ``LightweightCoreset.draw``: its two passes and its checkpoints; and what a dry run says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Placement, Segment, Segments, Traffic
from daskcluster.engine.memory import Footprint
from daskcluster.engine.scaled import ScaledPlacement
from daskcluster.estimators.checkpoints import CheckpointHeader, Checkpoints, Framed, Spent
from daskcluster.estimators.inputs import check_enough_rows
from daskcluster.estimators.plan import Plan, Stage, Travel, centres_bytes
from daskcluster.methods.coreset.algorithm import (
    Coreset,
    CoresetCheckpoint,
    CoresetState,
    RowsCheckpoint,
    SavedSegment,
    coreset_shapes,
    lightweight_coreset,
)
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.methods.kmeans.initial import method_for
from daskcluster.randomness import as_seed
from daskcluster.sampling import Moments
from daskcluster.storage.document import Document
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from daskcluster.methods.coreset.estimator import LightweightCoreset

_STATE = "state_"


class CoresetDraw:
    """One call of draw.

    Parameters
    ----------
    estimator : LightweightCoreset
    dataset : Dataset
    resume : bool
        Resume from the last commit of an earlier call.

    Attributes
    ----------
    seed : int
    passes, bytes_read : int
        Cost of the draw, including the part before an interruption.
    """

    def __init__(self, estimator: LightweightCoreset, dataset: Dataset, *, resume: bool) -> None:
        self.estimator, self.dataset = estimator, dataset
        self.checkpoints = Checkpoints(estimator, dataset, estimator.callbacks, resume=resume)
        self._header: CheckpointHeader | None = None
        self._state = CoresetState()
        if self.checkpoints.found is not None:
            self._header, self._state = self._read(self.checkpoints.found)
        spent = None if self._header is None else self._header.spent
        self.seed = as_seed(estimator.random_state) if spent is None else spent.seed
        self.passes, self.bytes_read = (0, 0) if spent is None else (spent.passes, spent.bytes_read)
        self._rows: ScaledPlacement | None = None

    def run(self) -> Coreset:
        """Return the coreset."""
        drawn = self._state.coreset(self.dataset.n_features)
        if drawn is not None:
            return drawn
        estimator, dataset = self.estimator, self.dataset
        engine = choose_engine(estimator.engine, dataset)
        footprint = coreset_footprint(dataset, estimator.size)
        if self.checkpoints.commits is not None and self._header is None:
            self._keep(now=True)
        with engine.place(dataset, footprint=footprint, callbacks=estimator.callbacks) as placement:
            found = self._draw(placement)
            self.passes += placement.traffic.passes
            self.bytes_read += placement.traffic.bytes_read
        self._rows = None
        whole = estimator.size >= dataset.n_rows  # then the rows themselves are the coreset
        kept = None if whole else RowsCheckpoint.of(found.rows)
        if kept is not None:
            drawn_rows = CoresetCheckpoint(kept, found.weights, found.indices)
            self._state = CoresetState(found.moments, drawn=drawn_rows)
            self._keep(now=True)
        return found

    def _draw(self, placement: Placement) -> Coreset:
        self._rows = rows = ScaledPlacement(placement)
        if self._header is not None and self._header.data_statistics is not None:
            rows.remember(self._header.data_statistics)
        if self.checkpoints.commits is not None:
            old = self._state.segment
            rows.segments = Segments(
                self._segment_ended, None if old is None else old.segment(rows.origin.size)
            )
        return lightweight_coreset(
            rows,
            self.estimator.size,
            self.seed,
            moments=self._state.moments,
            measured=self._measured,
        )

    # -- checkpoints ------------------------------------------------------------------------------

    def _measured(self, moments: Moments) -> None:
        """Commit the state between the passes; another call starts with the second pass."""
        self._state = CoresetState(moments)
        assert self._rows is not None
        if self.checkpoints.commits is not None:
            self._rows.segments = Segments(self._segment_ended)
        self._keep(now=True)

    def _segment_ended(self, segment: Segment) -> None:
        def state() -> CoresetState:
            return replace(self._state, segment=SavedSegment.of(segment))

        self._keep(state)

    def _keep(self, state: Callable[[], CoresetState] | None = None, *, now: bool = False) -> None:
        took = Traffic() if self._rows is None else self._rows.placement.traffic

        def document() -> Document:
            passes, bytes_read = self.passes + took.passes, self.bytes_read + took.bytes_read
            spent = Spent(self.seed, "", passes, bytes_read, 0.0)  # there is no limit of time
            data_statistics = None if self._rows is None else self._rows.data_statistics
            return CheckpointHeader(spent, data_statistics).around(
                self._state if state is None else state()
            )

        self.checkpoints.keep(document, now=now, counts=False)

    def _read(self, found: Document) -> tuple[CheckpointHeader, CoresetState]:
        d = self.dataset.n_features
        commits = self.checkpoints.commits
        framed = Framed(found, "" if commits is None else commits.folder.url)
        shapes = {
            name.removeprefix(_STATE): values.shape
            for name, values in found.arrays.items()
            if name.startswith(_STATE)
        }
        return framed.header(d), framed.state(CoresetState, coreset_shapes(shapes, d))


def coreset_footprint(dataset: Dataset, size: int) -> Footprint:
    """Return the memory of drawing a coreset: tasks hold the rows that they draw, which are joined once."""
    row_bytes = dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)
    drawn = 2 * min(size, dataset.n_rows) * (row_bytes + 48)
    return Footprint(thread_bytes=drawn, keeps_rows=False)


CORESET_PASSES = 2
"""One for the mean of the rows, one for the draws."""


def plan_fit(dataset: Dataset, parameters: Mapping[str, Any]) -> Plan:
    """Return the cost of a fit with `parameters` on `dataset`, without passes over the coreset."""
    k, size = int(parameters["n_clusters"]), min(int(parameters["coreset_size"]), dataset.n_rows)
    check_enough_rows(dataset, k)
    products = 2.0 * size * dataset.n_features * k
    return Plan(
        seeding=method_for(parameters["init"], in_memory=True),
        passes_seeding=0,
        restarts=1,
        passes_at_most=CORESET_PASSES,
        footprint=coreset_footprint(dataset, size),
        flop=pass_flop(dataset, 1),
        commit_bytes=coreset_bytes(dataset, size) + centres_bytes(dataset, k),
        travel=coreset_travel(dataset, size),
        kernel="scan",
        afterwards=Stage(
            "nearest", size, dataset.n_features, products, int(parameters.get("max_iter", 1))
        ),
    )


def coreset_travel(dataset: Dataset, size: int) -> Travel:
    """Return the bytes that the passes of a coreset send: a point, sums of features, the drawn rows."""
    row_bytes = dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)
    d = dataset.n_features
    return Travel(sent=8 * d, returned=16 * d, drawn=size * (row_bytes + 48))


def coreset_bytes(dataset: Dataset, size: int) -> int:
    """Return the bytes of a commit of a coreset: its rows as they are stored, weights and indices."""
    if size >= dataset.n_rows:
        return 0  # the rows themselves
    row_bytes = dataset.bytes_of((0, dataset.n_rows)) // max(1, dataset.n_rows)
    return size * (row_bytes + 16)
