"""One pass in flight: heads and tails go out, outcomes come in, what was lost is sent again.

Every partition is settled exactly once a pass, by one batch; a batch that Dask runs twice, or that
is sent again because what it depends on was lost, still counts once.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future as Fetched
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from daskcluster.engine.homes import Lane, Tails
from daskcluster.engine.wire import FETCHED_TOGETHER
from daskcluster.engine.worker import Outcome
from daskcluster.errors import EngineError
from daskcluster.typing import Range

if TYPE_CHECKING:
    from distributed import Future

POLL_SECONDS = 0.5
_MOST_SENDS = 8
_MOST_DEATHS = 3
"""As many workers may end without notice while they have a batch; Dask's own count is of one task,
which starts again when a batch is sent again."""


@dataclass(frozen=True)
class Batch:
    """The partitions of one task.

    Attributes
    ----------
    lane : Lane
    indices : tuple of int
    is_head : bool
        The first task of the lane in this pass: its speed is the lane's.
    alone : bool
        One partition of a batch that killed its workers, run while nothing else runs.
    sends : int
        How often it was sent before.
    deaths : int
        How many workers have ended without notice while they had it.
    """

    lane: Lane
    indices: tuple[int, ...]
    is_head: bool = False
    alone: bool = False
    sends: int = 0
    deaths: int = 0


@dataclass(frozen=True)
class Port:
    """What a dispatch needs from the cluster.

    Attributes
    ----------
    send : callable (Batch) -> Future
    fetch : callable (Future) -> Outcome
        Waits for the part of the outcome that the driver needs now. `LostError` if it is gone. Called
        in several threads at a time.
    locate : callable (Lane) -> Lane
        The lane itself, or one of a worker that is there if its own has gone.
    idle : callable (mapping of key to Batch) -> keys
        Called with all that is in flight while nothing arrives. Returns what no worker will ever
        take, to be sent again; raises when there is nobody to take anything.
    deaths : callable (key) -> int
        How many workers ended without notice while they had this task. One that leaves as planned,
        because a cluster is scaled down, does not count.
    renew : callable () -> None
        Called when workers were lost, and with them perhaps what tasks depend on: provides it again.
    cancel : callable (futures) -> None
    killed : type
        The error of a task that killed its workers.
    """

    send: Callable[[Batch], Future]
    fetch: Callable[[Future], Outcome]
    locate: Callable[[Lane], Lane]
    idle: Callable[[Mapping[str, Batch]], Collection[str]]
    deaths: Callable[[str], int]
    renew: Callable[[], None]
    cancel: Callable[[Sequence[Future]], None]
    killed: type[BaseException]


class Dispatch:
    """Runs one pass.

    Parameters
    ----------
    port : Port
    tails : Tails
    spans : sequence of (start, stop)
        By partition, for messages.
    on_outcome : callable (Batch, Outcome, Future) -> None
        Hears every outcome once, in the driver's thread.
    """

    def __init__(
        self,
        port: Port,
        tails: Tails,
        spans: Sequence[Range],
        on_outcome: Callable[[Batch, Outcome, Future], None],
    ) -> None:
        self._port = port
        self._tails = tails
        self._spans = spans
        self._on_outcome = on_outcome
        self._flying: dict[str, tuple[Future, Batch]] = {}
        self._suspects: deque[Batch] = deque()
        self._arrived: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._fetched: dict[str, Fetched[Outcome]] = {}
        self._pool = ThreadPoolExecutor(FETCHED_TOGETHER, thread_name_prefix="daskcluster-fetch")

    def run(self) -> None:
        """Return when every partition is settled."""
        try:
            for lane, head in self._tails.heads.items():
                if head:
                    self._send(Batch(lane, head, is_head=True))
                else:
                    self._feed(lane)
            # From now on a tail waits behind the task that a lane works on, and no lane for a round trip.
            for lane in self._tails.heads:
                self._feed(lane)
            while self._flying or self._send_rest() or self._send_suspect():
                for future in self._next():
                    self._settle(future)
        except BaseException:
            self._port.cancel([future for future, _ in self._flying.values()])
            raise
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, batch: Batch) -> None:
        if batch.sends >= _MOST_SENDS:
            raise EngineError(
                f"{self._rows(batch)} were sent to workers {batch.sends} times and lost each time, "
                "because workers left; start workers that stay."
            )
        batch = replace(batch, lane=self._port.locate(batch.lane))
        future = self._port.send(batch)
        self._flying[future.key] = (future, batch)
        future.add_done_callback(self._arrived.put)

    def _feed(self, lane: Lane) -> None:
        indices = self._tails.take(lane)
        if indices:
            self._send(Batch(lane, indices))

    def _send_rest(self) -> bool:
        rest = self._tails.take_rest()
        for lane, indices in rest.items():
            self._send(Batch(lane, indices))
        return bool(rest)

    def _send_suspect(self) -> bool:
        if not self._suspects:
            return False
        self._send(self._suspects.popleft())
        return True

    def _next(self) -> Sequence[Future]:
        """Return what has arrived, at least one; of several all outcomes set out at once."""
        while True:
            try:
                arrived = [self._arrived.get(timeout=POLL_SECONDS)]
                break
            except queue.Empty:
                self._send_stranded()
        while len(arrived) < FETCHED_TOGETHER and not self._arrived.empty():
            arrived.append(self._arrived.get())
        for future in arrived if len(arrived) > 1 else ():
            if future.key in self._flying and future.status == "finished":
                self._fetched[future.key] = self._pool.submit(self._port.fetch, future)
        return arrived

    def _send_stranded(self) -> None:
        for key in self._idle():
            future, batch = self._flying.pop(key)
            self._port.cancel([future])
            self._resend(batch, key)

    def _idle(self) -> Collection[str]:
        flying = {key: batch for key, (_, batch) in self._flying.items()}
        with self._naming_rows(flying.values()):
            return self._port.idle(flying)

    @contextmanager
    def _naming_rows(self, batches: Collection[Batch]) -> Iterator[None]:
        """Where nobody comes any more, say what the last workers had."""
        try:
            yield
        except EngineError as error:
            worst = max(batches, key=lambda batch: batch.deaths)
            if not worst.deaths:
                raise
            raise EngineError(
                f"{error} Before, {worst.deaths} worker(s) ended without notice while they had "
                f"{self._rows(worst)}; if that repeats itself, give workers more memory."
            ) from error

    def _settle(self, future: Future) -> None:
        if future.key not in self._flying:
            return
        status = future.status
        if status == "pending":
            # Lost after it had finished, and running again: it will be back.
            self._fetched.pop(future.key, None)
            future.add_done_callback(self._arrived.put)
            return
        _, batch = self._flying.pop(future.key)
        if status == "finished":
            self._accept(batch, future)
        elif status == "error":
            self._refuse(batch, future)
        else:
            self._resend(batch, future.key)

    def _accept(self, batch: Batch, future: Future) -> None:
        under_way = self._fetched.pop(future.key, None)
        try:
            outcome = self._port.fetch(future) if under_way is None else under_way.result()
        except LostError:
            self._recover(batch, future)
            return
        if outcome.error is not None:
            raise outcome.error
        self._on_outcome(batch, outcome, future)
        if not batch.alone:
            self._feed(batch.lane)

    def _recover(self, batch: Batch, future: Future) -> None:
        """Wait for a task whose outcome was lost and that runs again, or send it if it does not."""
        if future.status in ("cancelled", "lost"):
            self._resend(batch, future.key)
            return
        self._flying[future.key] = (future, batch)
        future.add_done_callback(self._arrived.put)

    def _resend(self, batch: Batch, key: str) -> None:
        """Send what was lost again, unless it is what ends the workers."""
        with self._naming_rows([batch]):
            self._port.renew()
        deaths = batch.deaths + self._port.deaths(key)
        if deaths >= _MOST_DEATHS:
            self._suspect(batch, None)
            return
        self._send(replace(batch, sends=batch.sends + 1, deaths=deaths, is_head=False))

    def _refuse(self, batch: Batch, future: Future) -> None:
        error = future.exception()
        if not isinstance(error, self._port.killed):
            raise error
        self._suspect(batch, error)

    def _suspect(self, batch: Batch, error: BaseException | None) -> None:
        """Find out one by one which partitions end workers, while nothing else can be hit."""
        if batch.alone:
            raise EngineError(
                f"{self._rows(batch)} end every worker that works on them, also alone; most often the "
                "memory of a worker is too small for them: give workers more memory, or rewrite the "
                "data with smaller chunks (`daskcluster convert`)."
            ) from error
        self._port.renew()
        self._suspects.extend(Batch(batch.lane, (i,), alone=True) for i in batch.indices)
        self._feed(batch.lane)

    def _rows(self, batch: Batch) -> str:
        parts = [self._spans[index] for index in batch.indices]
        return f"rows {parts[0][0]} to {parts[-1][1] - 1}"


class LostError(Exception):
    """What a finished task left behind is gone."""
