"""The work of a pass in rows, products and bytes, from the plan of a fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from daskcluster.chunk import compute_dtype
from daskcluster.engine.memory import MemoryPlan
from daskcluster.estimators.plan import DriverWork, PassTraffic, Plan, centres_bytes
from daskcluster.methods.kmeans.chunkwise.kind import CostModel, Counts
from daskcluster.methods.kmeans.fit import pass_flop
from daskcluster.typing import Dataset


@dataclass(frozen=True)
class PassWork:
    """One pass over all rows.

    Attributes
    ----------
    kernel : str
        One of `daskcluster.estimators.plan.KERNELS`.
    n_rows, values, products : float
        Rows; features of all rows; those times the centres that they meet.
    partitions : int
    decoded : float
        Bytes that are read and decoded; rows that stay in memory cost none.
    fetched, written : float
        Bytes that come from the store as it keeps them, and that go there.
    handles : int
        Partitions that are held between passes, as rows or as state.
    travel : PassTraffic
    """

    kernel: str
    n_rows: float
    values: float
    products: float
    partitions: int
    decoded: float = 0.0
    fetched: float = 0.0
    written: float = 0.0
    handles: int = 0
    travel: PassTraffic = field(default_factory=PassTraffic)


@dataclass(frozen=True)
class FitWork:
    """The work of a fit: its first pass, its later passes, and the work after them.

    Attributes
    ----------
    first, later : PassWork
        The first finds no row in memory.
    passes : int
        At most; with those of seeding.
    stage : DriverWork or None
    labels : PassWork
        The pass that labels all rows.
    """

    first: PassWork
    later: PassWork
    passes: int
    stage: DriverWork | None
    labels: PassWork


def fit_work(
    dataset: Dataset,
    plan: Plan,
    memory: MemoryPlan,
    n_clusters: int,
    *,
    stored: float = 1.0,
    touched: float = 1.0,
) -> FitWork:
    """Return the work of a fit.

    Parameters
    ----------
    dataset : Dataset
    plan : Plan
        Of the fit.
    memory : MemoryPlan
        Which says how many rows stay in memory.
    n_clusters : int
    stored : float
        Bytes in the store for each decoded one.
    touched : float
        Share of the rows that later passes look at, on average, where bounds are kept. What
        bounds leave unread is not counted: rows in random order leave no chunk unread.
    """
    decoded = 0 if dataset.in_memory else dataset.bytes_of((0, dataset.n_rows))
    first = PassWork(
        kernel=plan.kernel,
        n_rows=dataset.n_rows,
        values=pass_flop(dataset, 1) / 2,
        products=plan.flop / 2,
        partitions=max(1, len(dataset.partitions)),
        decoded=decoded,
        fetched=decoded * stored,
        travel=plan.travel,
    )
    again = max(0, decoded - memory.resident)
    bounded = bool(plan.states) and min(plan.states.values()) <= memory.state_room
    saved = _saved(dataset, n_clusters, touched) if bounded else 1.0
    later = replace(
        first,
        products=first.products * saved,
        values=first.values * saved,
        n_rows=first.n_rows * saved,
        decoded=again,
        fetched=again * stored,
        handles=memory.residents + (first.partitions if bounded else 0),
    )
    labels = replace(
        first,
        kernel="nearest",
        products=pass_flop(dataset, n_clusters) / 2,
        written=4 * dataset.n_rows,
        travel=PassTraffic(sent=centres_bytes(dataset, n_clusters)),
    )
    return FitWork(first, later, plan.passes_at_most, plan.afterwards, labels)


def _saved(dataset: Dataset, n_clusters: int, touched: float) -> float:
    """Return the cost of a pass with bounds relative to a plain one; at most 1, because of `auto`."""
    size = compute_dtype(dataset.dtype).itemsize * dataset.n_features
    shape = CostModel(dataset.n_features, n_clusters, size, group=1)
    within = shape.one_bound(Counts(touched, touched * (1 + n_clusters)))
    return min(1.0, within / shape.plain())
