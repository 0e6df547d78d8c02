"""Loop of the service: list the source, fold new objects, commit, wait.

After a killed cycle, the state is that of the last commit, and the next cycle folds the same rows again, to
identical bits. Each wave of objects is committed. The state does not depend on how rows are divided among
cycles and waves.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from daskcluster.engine.choose import choose_engine
from daskcluster.errors import InvalidParameterError
from daskcluster.events import Callback, CycleEnded, DriftFound, Event, Notice, publish
from daskcluster.methods.streaming.service.folding import Folded, fold_wave, waves, write_labels
from daskcluster.methods.streaming.service.ledger import Finding, Settling, Source, sort_out
from daskcluster.methods.streaming.service.sources import Portions
from daskcluster.methods.streaming.service.state import Cycle, StateStore, StreamState, status_of
from daskcluster.methods.streaming.streams import Learner
from daskcluster.randomness import as_seed
from daskcluster.storage.location import locate

_SECONDS = 60.0


@dataclass
class DriftCommand:
    """A callback that runs a command when new rows no longer fit (`DriftFound`).

    The command runs without a shell. It gets a JSON object on its standard input, with keys ``rows_seen``,
    ``error``, ``baseline``, ``ratio`` and ``counts``. The stream waits for it, at most a minute, and
    continues whether it succeeds or not.

    Parameters
    ----------
    command : tuple of str
        Program and arguments.

    Attributes
    ----------
    failures : list of str
        Messages of failed runs.

    Examples
    --------
    >>> command = DriftCommand(("false",))
    >>> command(DriftFound(100, 3.0, 1.0, (60.0, 40.0)))
    >>> command.failures
    ['the drift command exited with code 1']
    """

    command: tuple[str, ...]

    def __post_init__(self) -> None:
        self.failures: list[str] = []

    def __call__(self, event: Event) -> None:
        if not isinstance(event, DriftFound):
            return
        try:
            done = subprocess.run(
                self.command,
                input=json.dumps(drift_facts(event)),
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.failures.append(f"the drift command could not be run ({error})")
            return
        if done.returncode:
            self.failures.append(f"the drift command exited with code {done.returncode}")


def drift_facts(event: DriftFound) -> dict[str, object]:
    """Return a drift as plain values."""
    return {
        "rows_seen": event.n_rows,
        "error": event.error,
        "baseline": event.baseline,
        "ratio": event.error / event.baseline if event.baseline else None,
        "counts": list(event.counts),
    }


@dataclass
class StreamLoop:
    """Keeps the state of a stream up to date.

    Attributes
    ----------
    source : Source
    learner : Learner
        The algorithm and its parameters.
    state_url : str
    labels, distances : str or None
        URLs under which labels and distances of new rows are written.
    settle : float
        Seconds without a change after which an object is folded.
    storage_options : mapping or None
        Options of the file systems of state, labels and distances.
    engine : object
    callbacks : sequence of callables
        Called with the events of `daskcluster.events`.
    """

    source: Source
    learner: Learner
    state_url: str
    labels: str | None = None
    distances: str | None = None
    settle: float = 0.0
    storage_options: Mapping[str, Any] | None = None
    engine: Any = None
    callbacks: Sequence[Callback] = ()
    _drifts: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.distances is not None and self.labels is None:
            raise InvalidParameterError(
                f"distances={self.distances!r} are written together with labels; pass labels= as well."
            )
        if self.learner.forgetting.by_time and not self.source.has_times:
            raise InvalidParameterError(
                "half_life or window is a time, but rows of this source have no timestamps (only objects "
                "below a prefix do); pass a number of rows instead."
            )
        facts = {
            "source": self.source.facts(),
            "algorithm": self.learner.algorithm,
            "parameters": self.learner.facts(),
        }
        self.store = StateStore(self.state_url, facts, self.storage_options)
        self.state = self._loaded()
        self._settling = Settling(self.settle)
        self._watchers = (*self.callbacks, self._hear)
        self._reported: set[Finding] = set()

    def _loaded(self) -> StreamState:
        given = self.learner.parameters["random_state"]
        return self.store.load(self.learner, as_seed(0 if given is None else given))

    @property
    def is_drawn(self) -> bool:
        """Whether the source is an iterator, read some chunks at a time, which may end."""
        return isinstance(self.source, Portions)

    # -- one cycle ----------------------------------------------------------------------------------

    def cycle(self) -> Cycle:
        """Fold the new objects of the source, and commit.

        Raises
        ------
        DaskClusterError
            The source or the state cannot be accessed. The state is then that of the last commit.
        """
        began, before = time.perf_counter(), (self.state.rows_seen, len(self.state.ledger))
        self._drifts.clear()
        try:
            findings = self._fold_new()
        except BaseException:
            self.state = self._loaded()  # discards what was not committed
            raise
        self._tell(findings)
        state, fold, version = self.state, self.state.fold, self.state.version
        fitted = None if fold is None else fold.current()
        cycle = Cycle(
            state.rows_seen,
            state.rows_seen - before[0],
            len(state.ledger),
            len(state.ledger) - before[1],
            version,
            None if version is None else self.store.model(version).url,
            tuple(findings),
            tuple(self._drifts),
            {} if fold is None else {**fold.drift.body(), "counts": fold.drift.counts.tolist()},
            0.0 if fold is None else fold.remembered,
            None if fitted is None else len(fitted.centres),
            self.learner.algorithm,
            time.perf_counter() - began,
        )
        self.store.show(status_of(cycle, self.state.ledger))
        counters = cycle.rows_seen, cycle.new_rows, cycle.new_objects, cycle.model_version
        publish(self.callbacks, CycleEnded(*counters, cycle.seconds))
        return cycle

    def _fold_new(self) -> list[Finding]:
        arrivals = self.source.look(self.state.ledger.taken)
        settled = getattr(self.source, "settled_rows", None)
        by_time = getattr(self.source, "order", "name") == "time"
        new, findings = sort_out(
            arrivals, self.state.ledger, self._settling, settled, by_time=by_time
        )
        for wanted in waves(new, 8 * self.state.n_features):
            wave = fold_wave(
                self.state, wanted, self.source, self.learner, self.engine, self._watchers
            )
            findings += wave.findings
            if self.labels is not None:
                self._write_labels(wave.folded)
            self.store.commit(self.state, self.learner)
            if wave.is_stopped:
                break
        return findings

    def _write_labels(self, folded: Sequence[Folded]) -> None:
        urls = {"label": self.labels, "distance": self.distances}
        places = {
            field: locate(url, self.storage_options)
            for field, url in urls.items()
            if url is not None
        }
        for each in folded:
            if not write_labels(each, places, choose_engine(self.engine, each.dataset)):
                text = (
                    f"{each.new.arrival.name!r} has no labels: there are fewer rows than clusters"
                )
                publish(self.callbacks, Notice(text))

    def _hear(self, event: Event) -> None:
        if isinstance(event, DriftFound):
            self._drifts.append(drift_facts(event))

    def _tell(self, findings: Sequence[Finding]) -> None:
        """Publish each finding, unless the previous cycle had it."""
        for finding in findings:
            if finding not in self._reported:
                detail = {"what": str(finding.oddity), "name": finding.name}
                publish(self.callbacks, Notice(finding.text, detail))
        self._reported = set(findings)

    def run(
        self,
        every: float,
        heard: Callable[[Cycle], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
        before: Callable[[], None] = lambda: None,
    ) -> NoReturn:
        """Make a cycle every `every` seconds and pass its results to `heard`.

        Parameters
        ----------
        every : float
        heard : callable (Cycle) -> None
        sleep : callable (seconds) -> None
        before : callable () -> None
            Called before each cycle. The loop ends when this, `sleep` or `heard` raises.
        """
        while True:
            before()
            began = time.monotonic()
            heard(self.cycle())
            sleep(max(0.0, every - (time.monotonic() - began)))
