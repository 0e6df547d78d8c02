"""Predicted seconds of a pass on a cluster, by term: computing, reading, communication, waiting.

The terms follow the engine's own rules: which parameters travel within tasks and which are broadcast,
when totals are added up on workers, how many tasks a pass has. A pass takes

    max(control, compute + control / 2) + broadcast + reduction + latency

where compute is the longer of the kernel's and the decoder's time on the workers' cores and of the bytes
from the store. control is the CPU time of client and scheduler for tasks, handles and workers; half of it
(sending) overlaps with workers that already have a task, and half (fetching) with workers that have not
finished. On one host without idle cores, the total CPU time divided by the cores is a lower bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from daskcluster.engine.assignment import (
    MAX_REMAINING_TASKS,
    REMAINING_SHARE,
    count_remaining_tasks,
    min_remaining_seconds,
)
from daskcluster.engine.pass_run import (
    FAN_IN,
    FETCHED_TOGETHER,
    is_heavy,
    is_inline,
    through_driver,
)
from daskcluster.estimators.plan import DriverWork
from tests.benchmarks.scaling.model.cluster import Cluster
from tests.benchmarks.scaling.model.rates import Rates
from tests.benchmarks.scaling.model.work import FitWork, PassWork

TERMS = ("kernel", "decode", "store", "broadcast", "reduction", "client", "scheduler", "latency")
_TASK_MESSAGES, _FETCH_MESSAGES = 2, 4
"""Messages of a task (client, worker and back), and of a fetch (scheduler, worker, and back both ways)."""
_LEAST_HOME = 4
"""Least number of partitions of a slot that has remaining tasks."""


@dataclass(frozen=True)
class Forecast:
    """A pass.

    Attributes
    ----------
    seconds : float
    terms : dict of str to float
        Seconds of each of `TERMS`; they overlap, so they may add up to more than `seconds`.
    n_tasks : int
    """

    seconds: float
    terms: dict[str, float] = field(default_factory=dict)
    n_tasks: int = 0

    @property
    def bottleneck(self) -> str:
        """The largest term."""
        return max(self.terms, key=lambda name: self.terms[name])


@dataclass(frozen=True)
class FitForecast:
    """A fit.

    Attributes
    ----------
    first, later, labels : Forecast
        Passes.
    stage : float
        Seconds of the work on few rows.
    seconds : float
        Of the whole fit at most, without labels.
    """

    first: Forecast
    later: Forecast
    labels: Forecast
    stage: float
    seconds: float

    @property
    def bottleneck(self) -> str:
        """The term with most of the time, or ``"driver"`` for the work on few rows."""
        passes = self.seconds - self.stage
        return "driver" if self.stage > passes else self.later.bottleneck


def forecast_fit(work: FitWork, cluster: Cluster, rates: Rates) -> FitForecast:
    """Predict the time of a fit.

    Parameters
    ----------
    work : FitWork
    cluster : Cluster
    rates : Rates
    """
    first, later = forecast(work.first, cluster, rates), forecast(work.later, cluster, rates)
    labels = forecast(work.labels, cluster, rates)
    stage = 0.0 if work.stage is None else _stage_seconds(work.stage, cluster, rates)
    passes = first.seconds + max(0, work.passes - 1) * later.seconds if work.passes else 0.0
    return FitForecast(first, later, labels, stage, passes + stage)


def forecast(work: PassWork, cluster: Cluster, rates: Rates) -> Forecast:
    """Predict the time of a pass.

    Parameters
    ----------
    work : PassWork
    cluster : Cluster
    rates : Rates

    Examples
    --------
    >>> from tests.benchmarks.scaling.model.rates import REFERENCE
    >>> rows = PassWork("nearest", n_rows=1e9, values=128e9, products=128e12, partitions=8000)
    >>> few, many = (forecast(rows, Cluster(workers), REFERENCE) for workers in (10, 10_000))
    >>> few.bottleneck, many.bottleneck
    ('kernel', 'scheduler')
    """
    slower = rates.together if cluster.is_full else 1.0
    kernel = slower * rates.kernel(work.kernel).seconds(work.products, work.values, work.n_rows)
    decode = slower * rates.decode * work.decoded
    cores = _busy_cores(work, cluster)
    terms = dict.fromkeys(TERMS, 0.0)
    terms["kernel"], terms["decode"] = kernel / cores, decode / cores
    terms["store"] = (work.fetched + work.written) / cluster.from_store
    compute = max(terms["kernel"] + terms["decode"], terms["store"])
    if not cluster.workers:
        return Forecast(compute, terms)
    n_tasks = count_tasks(work, cluster, compute)
    counted = n_tasks, work.handles, cluster.workers
    terms["client"] = rates.client.seconds(*counted)
    terms["scheduler"] = rates.scheduler.seconds(*counted)
    talk = _Talk(work, cluster, rates, n_tasks)
    terms["broadcast"], terms["reduction"] = talk.broadcast(), talk.reduction()
    terms["latency"] = _latency(cluster, rates, n_tasks)
    control = terms["client"] + terms["scheduler"]
    nearby = terms["broadcast"] + terms["reduction"] + terms["latency"]
    seconds = nearby + max(control, compute + control / 2)
    if cluster.is_crowded:
        ours = rates.worker.a_task * n_tasks + rates.worker.a_handle * work.handles
        busy = kernel + decode + control + ours + talk.computed
        seconds = max(seconds, busy / (cluster.cores or cluster.slots))
    return Forecast(seconds, terms, n_tasks)


def count_tasks(work: PassWork, cluster: Cluster, compute: float) -> int:
    """Return the number of tasks of a pass: one per slot, and remaining tasks worth a round trip."""
    slots = min(cluster.slots, work.partitions)
    home = work.partitions // slots
    if slots == 1 or home < _LEAST_HOME:
        return slots
    tail = max(1, home // REMAINING_SHARE)
    travel = work.travel
    n_bytes = through_driver(travel.sent, travel.returned, slots * (1 + MAX_REMAINING_TASKS))
    if compute * tail / home < min_remaining_seconds(slots, tail, n_bytes):
        return slots
    return slots * (1 + count_remaining_tasks(tail))


def _busy_cores(work: PassWork, cluster: Cluster) -> float:
    """Return how many cores the work keeps busy; partitions are not divided."""
    slots = min(cluster.slots, work.partitions)
    even = work.partitions / -(-work.partitions // slots)
    return min(float(cluster.busy_cores), even)


def _latency(cluster: Cluster, rates: Rates, n_tasks: int) -> float:
    """Return the idle time: the first task is sent, and results are fetched in groups."""
    return rates.round_trip + cluster.latency * (
        _TASK_MESSAGES + _FETCH_MESSAGES * math.ceil(n_tasks / FETCHED_TOGETHER)
    )


class _Talk:
    """The bytes of a pass.

    Attributes
    ----------
    computed : float
        Seconds that all processes together compute for them.
    """

    def __init__(self, work: PassWork, cluster: Cluster, rates: Rates, n_tasks: int) -> None:
        self._travel, self._cluster, self._rates = work.travel, cluster, rates
        self._n_tasks = n_tasks
        self._middle = rates.client.a_byte + rates.scheduler.a_byte
        self.computed = 0.0

    def broadcast(self) -> float:
        """Return the seconds to broadcast the parameters."""
        sent, line = self._travel.sent, self._cluster.bandwidth
        own = self._rates.worker.a_byte
        if is_inline(sent, self._n_tasks):
            # Through the scheduler's line, once for each task.
            through = self._n_tasks * sent
            self.computed += through * (self._middle + own)
            return through * (1 / line + self._middle)
        # To one worker, and from those that have it to as many others in each round.
        rounds = 1 + math.ceil(math.log2(max(1, self._cluster.workers)))
        self.computed += sent * (self._middle + 2 * own * self._cluster.workers)
        return sent * (1 / line + self._middle + rounds * (1 / line + 2 * own))

    def reduction(self) -> float:
        """Return the seconds to fetch totals and drawn rows to the client."""
        line, own = self._cluster.bandwidth, self._rates.worker.a_byte
        returned, n_tasks = self._travel.returned, self._n_tasks
        came, added = returned * n_tasks, 0.0
        if is_heavy(returned, n_tasks):
            levels = math.ceil(math.log(max(2, n_tasks), FAN_IN))
            self.computed += 2 * own * came
            added = levels * FAN_IN * returned * (1 / line + 2 * own)
            came = returned
        came += self._travel.drawn
        self.computed += came * (own + self._middle)
        # One after the other: from the worker to the scheduler, and on from there.
        return added + came * (2 / line + own + self._middle)


def _stage_seconds(stage: DriverWork, cluster: Cluster, rates: Rates) -> float:
    values = float(stage.n_rows) * stage.n_features
    each = rates.kernel(stage.kernel).seconds(stage.flop / 2, values, stage.n_rows)
    slower = rates.together if cluster.driver_threads > 1 else 1.0
    return stage.passes_at_most * each * slower / cluster.driver_threads
