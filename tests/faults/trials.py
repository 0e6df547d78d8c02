"""Trials: kill a worker, the scheduler or the client of a fit at a random moment, and check its result.

In half of the trials a supervisor replaces lost workers while the fit continues; in the others the fit
continues with the remaining workers, at least one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.faults.fits import TIMEOUT, Work, write_rows
from tests.faults.processes import Cluster, Command, kill
from tests.faults.works import work

KINDS = ("worker", "client", "scheduler")
EARLIEST, LATEST = 0.02, 0.98
"""Range of the moment of the kill, as shares of the time of an undisturbed fit."""
_SOONER = 0.6
_TRIES = 4
_PATIENCE = 300.0
NOTICE_SECONDS = 3.0


@dataclass(frozen=True)
class Plan:
    """One trial, drawn from a seed.

    Attributes
    ----------
    number : int
    kind : {"worker", "client", "scheduler"}
    algorithm : str
        Algorithm of a fit, or name of another command.
    moment : float
        Time of the kill, as a share of the time of an undisturbed fit.
    victims : tuple of int
        Indices of the killed workers.
    supervised : bool
        Whether lost workers are replaced at once.
    """

    number: int
    kind: str
    algorithm: str
    moment: float
    victims: tuple[int, ...] = ()
    supervised: bool = True


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial.

    Attributes
    ----------
    plan : Plan
    landed : bool
        The fit was still running at the kill; other trials are not counted.
    recovered : bool
        The fit gave a result in the end; after the loss of a scheduler, also the expected error.
    right : bool
        The result has the same bits as that of an undisturbed fit.
    resumed : bool
        The fit resumed from a checkpoint; otherwise it started again, or just continued.
    undisturbed, recovery, noticed : float
        Seconds of an undisturbed fit; from the kill to the result; from the kill of a scheduler to the
        error.
    trouble : str
        Description of the problem.
    """

    plan: Plan
    landed: bool = True
    recovered: bool = False
    right: bool = False
    resumed: bool = False
    undisturbed: float = 0.0
    recovery: float = 0.0
    noticed: float = 0.0
    trouble: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, record: dict[str, Any]) -> Outcome:
        plan = dict(record["plan"])
        plan["victims"] = tuple(plan["victims"])
        return cls(**{**record, "plan": Plan(**plan)})


def plans(
    count: int, seed: int, algorithms: Sequence[str], kinds: Sequence[str], n_workers: int
) -> Iterator[Plan]:
    """Yield `count` trials; trial i depends only on the seed and i."""
    for number in range(count):
        rng = random.Random(f"{seed}-{number}")
        kind = kinds[number % len(kinds)]
        algorithm = algorithms[number // len(kinds) % len(algorithms)]
        moment = rng.uniform(EARLIEST, LATEST)
        lost = rng.randint(1, n_workers - 1)
        victims = tuple(sorted(rng.sample(range(n_workers), lost))) if kind == "worker" else ()
        yield Plan(number, kind, algorithm, moment, victims, rng.random() < 0.5)


@dataclass
class Undisturbed:
    """Reference result of an undisturbed fit."""

    digest: str
    seconds: float


@dataclass
class Arena:
    """Data and a cluster for trials; the cluster is restarted after its scheduler was killed.

    Parameters
    ----------
    folder : Path
    n_workers : int
    notice : float
        ``--timeout`` of commands that will lose their scheduler; they must end after it.
    """

    folder: Path
    n_workers: int = 3
    notice: float = NOTICE_SECONDS
    _cluster: Cluster | None = None
    _known: dict[str, Undisturbed] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        write_rows(self.folder)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cluster(self) -> Cluster:
        """The cluster, with all its workers."""
        if self._cluster is not None and not self._cluster.scheduler.is_alive():
            self.close()
        if self._cluster is None:
            self._count += 1
            self._cluster = Cluster(self.folder / f"cluster-{self._count}", self.n_workers)
        self._cluster.replace_lost_workers()
        self._cluster.wait_for_workers()
        return self._cluster

    def undisturbed(self, algorithm: str) -> Undisturbed:
        """Return digest and seconds of an undisturbed fit; two such fits must agree."""
        if algorithm not in self._known:
            found = [self._whole(algorithm) for _ in range(2)]
            if found[0].digest != found[1].digest:
                raise AssertionError(f"two undisturbed fits of {algorithm} have different results")
            self._known[algorithm] = found[1]
        return self._known[algorithm]

    def _whole(self, algorithm: str) -> Undisturbed:
        fit = self.fit(algorithm)
        command = Command(fit.arguments(self.cluster.address, timeout=TIMEOUT), fit.folder, "whole")
        code, seconds = command.end(_PATIENCE)
        if code:
            raise AssertionError(f"an undisturbed fit of {algorithm} failed: {command.stderr}")
        return Undisturbed(fit.digest(), seconds)

    def fit(self, algorithm: str) -> Work:
        """Return a fit, or another command, with its own folder."""
        self._count += 1
        folder = self.folder / f"fit-{self._count}"
        folder.mkdir()
        return work(algorithm, self.folder, folder)

    def run(self, plan: Plan) -> Outcome:
        """Run a trial; if the fit ends before the kill, try again with an earlier kill."""
        undisturbed = self.undisturbed(plan.algorithm)
        outcome = Outcome(plan, landed=False)
        for _ in range(_TRIES):
            outcome = self._try(plan, undisturbed)
            if outcome.landed:
                break
            plan = replace(plan, moment=plan.moment * _SOONER)
        return outcome

    def _try(self, plan: Plan, undisturbed: Undisturbed) -> Outcome:
        fit, cluster = self.fit(plan.algorithm), self.cluster
        timeout = self.notice if plan.kind == "scheduler" else TIMEOUT
        arguments = fit.arguments(cluster.address, timeout=timeout)
        command = Command(arguments, fit.folder, "hit")
        if not command.running_after(plan.moment * undisturbed.seconds):
            failed = command.process.exitcode != 0
            return Outcome(plan, landed=failed, trouble=command.stderr if failed else "")
        hit: Callable[..., Outcome] = getattr(self, f"_{plan.kind}")
        outcome = Outcome(plan, undisturbed=undisturbed.seconds)
        try:
            outcome = hit(outcome, fit, command, cluster)
        except (TimeoutError, OSError, ValueError) as error:
            return replace(outcome, trouble=f"{type(error).__name__}: {error}")
        finally:
            kill(command.process)
        if not outcome.recovered:
            return outcome
        right = fit.digest() == undisturbed.digest
        return replace(outcome, right=right, trouble="" if right else "other bits")

    def _worker(self, outcome: Outcome, fit: Work, command: Command, cluster: Cluster) -> Outcome:
        plan, killed = outcome.plan, time.monotonic()
        cluster.kill_workers(list(plan.victims))
        if plan.supervised:
            cluster.replace_lost_workers()
        code, _ = command.end(_PATIENCE)
        trouble = command.stderr if code else ""
        recovery = time.monotonic() - killed
        return replace(outcome, recovered=code == 0, recovery=recovery, trouble=trouble)

    def _client(self, outcome: Outcome, fit: Work, command: Command, cluster: Cluster) -> Outcome:
        killed = time.monotonic()
        kill(command.process)
        return self._again(outcome, fit, cluster, killed)

    def _scheduler(
        self, outcome: Outcome, fit: Work, command: Command, cluster: Cluster
    ) -> Outcome:
        killed = time.monotonic()
        kill(cluster.scheduler)
        code, _ = command.end(_PATIENCE)
        if code == 0:  # the fit already had everything it needed
            return replace(outcome, landed=False)
        outcome = replace(outcome, noticed=time.monotonic() - killed)
        trouble = unclean(code, command.stderr, fit)
        if trouble:
            return replace(outcome, trouble=trouble)
        return self._again(outcome, fit, self.cluster, time.monotonic())

    def _again(self, outcome: Outcome, fit: Work, cluster: Cluster, since: float) -> Outcome:
        """Run the command again, as a user or a supervisor would."""
        half = fit.half_written()
        if half:
            return replace(outcome, trouble=f"half-written {half}")
        resumed = fit.has_committed()
        command = Command(
            fit.arguments(cluster.address, resume=True, timeout=TIMEOUT), fit.folder, "again"
        )
        code, _ = command.end(_PATIENCE)
        trouble = command.stderr if code else ""
        seconds = time.monotonic() - since
        return replace(
            outcome, recovered=code == 0, recovery=seconds, resumed=resumed, trouble=trouble
        )


def unclean(code: int, text: str, fit: Work) -> str:
    """Check the end of a fit that lost its scheduler; return the problem, or an empty text."""
    # Log lines of Dask about lost connections may come first.
    message = any(line.startswith("Error: ") for line in text.splitlines())
    if code != 1 or "Traceback" in text or not message:
        return f"expected exit code 1 and an error message, found exit code {code}: {text}"
    if fit.has_committed() and fit.kept_at not in text:
        return f"the error does not name the checkpoint: {text}"
    return fit.half_written() and f"half-written {fit.half_written()}"
