"""One run of a job: its name, lease, stored state, and reports to the scheduler."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.errors import (
    DaskClusterError,
    InvalidParameterError,
    JobCancelledError,
    LeaseError,
)
from daskcluster.events import Callback
from daskcluster.jobs.arguments import (
    PACE,
    check_name,
    located,
    name_of_key,
    output_name,
    plain_arguments,
)
from daskcluster.jobs.monitor import JobCounters, JobMonitor
from daskcluster.jobs.outputs import check_outputs
from daskcluster.jobs.spec import spec_of
from daskcluster.methods.catalogue import ALGORITHMS
from daskcluster.models.record import Record
from daskcluster.storage.checkpoint import tell_where
from daskcluster.storage.files import list_names, remove_folder
from daskcluster.storage.lease import Holder, Lease, folder_of
from daskcluster.storage.location import Location, locate
from daskcluster.typing import Dataset, Visibility

if TYPE_CHECKING:
    from distributed import Client

    from daskcluster.jobs.registry import JobRegistry


def in_task() -> bool:
    """Return whether this thread runs a Dask task."""
    if "distributed" not in sys.modules:
        return False
    from daskcluster.engine import connect

    return connect.in_task()


def task_key() -> str | None:
    """Return the key of the Dask task of this thread; None outside tasks."""
    if not in_task():
        return None
    from daskcluster.engine.connect import key_of_task

    return str(key_of_task())


def worker_here() -> str:
    """Return the address of the worker that runs this task; empty outside tasks."""
    if not in_task():
        return ""
    from daskcluster.engine.connect import worker_of_task

    return worker_of_task()


def registry_of(engine: Any) -> JobRegistry | None:
    """Return the job registry of the scheduler that the job uses or runs on; None if there is none."""
    client: Client | None = None
    if in_task():
        from daskcluster.engine.connect import client_here

        client = client_here()
    elif "distributed" in sys.modules:
        from daskcluster.engine.connect import Client as AnyClient

        given = getattr(engine, "client", engine)
        client = given if isinstance(given, AnyClient) else None
    if client is None:
        return None
    from daskcluster.jobs.registry import JobRegistry

    return JobRegistry(client)


class JobResult(Protocol):
    """The record that a job returns."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        ...


R = TypeVar("R", bound=Record)
T = TypeVar("T", bound=JobResult)


class Run:
    """One run of a job; as a context manager, makes the job re-entrant.

    A job has a name if the caller gives one or if it runs as a Dask task; then the name is the task's key,
    which stays the same when Dask restarts the task. Without a name, nothing is stored or reported.

    Parameters
    ----------
    kind : str
        Name of the job's function.
    given : mapping
        Arguments of the job's function by parameter, as `locals()` at its start has them. A later run of
        the same name must have the same; see `daskcluster.jobs.arguments`.

    Raises
    ------
    InvalidParameterError
        The scheduler knows the name as that of another job, or of one with other arguments.

    Attributes
    ----------
    given : mapping
    name : str or None
    counters : JobCounters
    callbacks : tuple of callables
        The given callbacks and the run's own.
    is_resumed : bool
        Whether an earlier run of the same job left state; known after `hold`.
    outputs : dict of str to Location
        What the job writes, by the names of its arguments; known after `begin`.
    overwrite : bool
        Whether existing outputs are to be replaced; known after `begin`.
    """

    def __init__(
        self,
        kind: str,
        given: Mapping[str, Any],
    ) -> None:
        key, name = task_key(), given["name"]
        if name is None and key is not None:
            name = name_of_key(key)
        self.name = None if name is None else check_name(name)
        self.kind, self.given = kind, given
        self.counters = JobCounters()
        self.callbacks: tuple[Callback, ...] = (*given["callbacks"], self.counters)
        self.is_resumed = False
        self.outputs: dict[str, Location] = {}
        self.overwrite = False
        self._keeps = False
        output = given.get(output_name(kind))
        self._output = "" if output is None else str(output)
        self._lease: Lease | None = None
        self._monitor: JobMonitor | None = None
        self._registry: JobRegistry | None = None
        self._earlier: Holder | None = None
        self._record: JobResult | None = None
        self._is_refused = False
        self._is_own = key is not None
        if self.name is None:
            return
        self._arguments = located(plain_arguments(kind, given))
        if output is not None:
            options = given.get("storage_options")
            self._lease = lease_of(kind, self.name, output, self._arguments, options)
        self._registry = registry_of(given["engine"])
        if self._registry is not None:
            self._look_up(self._registry, key)
        self._monitor = JobMonitor(self.name, self._registry, self._lease)
        self.callbacks = (*self.callbacks, self._monitor)

    def _look_up(self, registry: JobRegistry, key: str | None) -> None:
        """Raise if the scheduler knows the name as that of another job."""
        from daskcluster.jobs.registry import refuse_other

        assert self.name is not None
        before = registry.find(self.name)
        if before is not None and (key is None or before.key != key):
            refuse_other(before, self.kind, self._arguments)
            self._is_own = False
        if key is None:
            registry.clear(self.name)

    # -- from the arguments to the record ---------------------------------------------------------------

    def earlier(self, kind: type[R]) -> R | None:
        """Return the record of an earlier run of the same job, if that run was done.

        Raises
        ------
        LeaseError, InvalidParameterError
        """
        if self._lease is None:
            return None
        with self._refusable():
            self._earlier = self._lease.earlier()
        if self._earlier is None or self._earlier.state != "done" or not self._earlier.record:
            return None
        found = self._record = kind(**self._earlier.record)
        return found

    def begin(self, kind: type[R], **inputs: Any) -> R | None:
        """Return the record of an earlier run that was done, or check the outputs and take the lease.

        Outputs and inputs are those of the declaration of the job; see `check_outputs` and `hold`.

        Parameters
        ----------
        kind : type of Record
        **inputs
            Further inputs that may be URLs.

        Raises
        ------
        OutputExistsError, InvalidParameterError, LeaseError
        """
        before = self.earlier(kind)
        if before is not None:
            return before
        spec, given = spec_of(self.kind), self.given
        assert spec is not None
        inputs |= {name: given.get(name) for name in (*spec.arguments, "weights")}
        self.overwrite = self.may_replace(given["overwrite"])
        options, outputs = given["storage_options"], spec.of_outputs(given)
        check_outputs(outputs, inputs, options, self.overwrite, kinds=spec.kinds_of(given))
        self.outputs = {n: locate(url, options) for n, url in outputs.items() if url is not None}
        self.hold()
        return None

    def may_replace(self, overwrite: bool) -> bool:
        """Return whether existing outputs may be replaced, as those of an earlier run always may."""
        return overwrite or (self._earlier is not None and self._earlier.started)

    def hold(self) -> None:
        """Take the lease; call this after checking the arguments.

        Raises
        ------
        LeaseError
            Another job writes the output.
        """
        if self._lease is not None:
            with self._refusable():
                self._lease.take()
            self.is_resumed = self._lease.attempt > 1
        self._announce("running", attempt=self._lease.attempt if self._lease is not None else 1)
        if self._monitor is not None:
            self._monitor.look()

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        try:
            yield
        except (InvalidParameterError, LeaseError):
            self._is_refused = True
            raise

    def engine(self, dataset: Dataset) -> Engine:
        """Return the engine to use for work on `dataset`; see `drives`."""
        chosen = choose_engine(self.drives(dataset.visibility), dataset)
        return chosen if self.name is None else chosen.named(self.name)

    def drives(self, visibility: Visibility) -> Any:
        """Return the given engine; if it is None inside a Dask task, the workers of that cluster.

        Rows that only this process can read are processed by one thread of it.
        """
        engine = self.given["engine"]
        if engine is not None or not in_task() or visibility is Visibility.PROCESS:
            return engine
        from daskcluster.engine.connect import client_of_task
        from daskcluster.engine.dask import DaskEngine

        return DaskEngine(client_of_task())

    def keeping(self, algorithm: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a fit, with a ``checkpoint`` next to the output unless it has one."""
        place = self.state_at(given.get("checkpoint")) if _resumes(algorithm) else None
        return dict(given) if place is None else {**given, "checkpoint": place}

    def state_at(self, checkpoint: Any) -> Any:
        """Return where the state of the work is stored: at `checkpoint`, else next to a job's output."""
        if self._lease is None or checkpoint is not None:
            return checkpoint
        self._keeps = True
        if not self.is_resumed:
            self._clear()  # remove state of earlier, failed jobs
        return self._lease.folder

    def resumes(self, algorithm: str, *, resume: bool) -> bool:
        """Return whether the fit should look for a checkpoint."""
        return resume or (self.is_resumed and _resumes(algorithm))

    def _clear(self) -> None:
        assert self._lease is not None
        for name in list_names(self._lease.folder):
            if name != "jobs":
                remove_folder(self._lease.folder.child(name))

    def begin_output(self) -> None:
        """Record that outputs are about to be written; raise if this run may not write them.

        Raises
        ------
        LeaseError
            Another run of the job has taken over.
        JobCancelledError
        """
        if self._monitor is not None:
            self._monitor.look()
        if self._lease is not None:
            self._lease.begin()

    def rest(self, seconds: float) -> None:
        """Sleep; raise if the job is cancelled meanwhile.

        Raises
        ------
        JobCancelledError
        """
        if self._monitor is None:
            time.sleep(seconds)
        else:
            self._monitor.rest(seconds)

    def done(self, record: T) -> T:
        """Store the record, remove the state of the job, and return the record."""
        self._record = record
        if self._lease is not None:
            self._lease.end("done", record.as_dict())
            if self._keeps:
                self._clear()
        return record

    # -- reports -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and in_task():
            # The cause may be a client's error that cannot be pickled, so drop it: otherwise, this error
            # could not be pickled either.
            error.__cause__ = error.__context__ = None
        if isinstance(error, LeaseError) and self._lease is not None and self._lease.is_held:
            return  # the run that took over reports for the job
        if self._is_refused and not self._is_own:
            return  # the scheduler's entry, if any, is that of the job that stays
        if error is not None and self._keeps and self._lease is not None:
            what, again = f"the job {self.name!r}", "the same call under the same name"
            tell_where(error, self._lease.folder, what, again)
        if error is None:
            record = None if self._record is None else self._record.as_dict()
            self._announce("done", record=record)
            return
        state = "cancelled" if isinstance(error, JobCancelledError) else "failed"
        if self._lease is not None and self._lease.is_held:
            self._lease.end(state)
        self._announce(state, error=_described(error))

    def _announce(self, state: str, **facts: Any) -> None:
        if self._registry is None or self.name is None:
            return
        place: dict[str, Any] = {}
        if state == "running":
            place = {"worker": worker_here(), "key": task_key() or "", "arguments": self._arguments}
        self._registry.announce(
            self.name, kind=self.kind, output=self._output, state=state, **place, **facts
        )


def _resumes(algorithm: str) -> bool:
    return "checkpoint" in ALGORITHMS.find(algorithm).parameters


def _described(error: BaseException) -> str:
    text = " ".join(str(error).split())
    known = isinstance(error, DaskClusterError) and text
    return text if known else f"{type(error).__name__}: {text}"


def lease_of(
    job: str,
    name: str,
    output: Any,
    arguments: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
) -> Lease:
    """Return the lease of a job on its main output, not taken yet.

    Parameters
    ----------
    job, name : str
        Name of the job's function, and of the job.
    output : str or path
    arguments : mapping
        See `daskcluster.jobs.arguments.located`.
    storage_options : mapping, optional
    """
    apart = PACE | {output_name(job)}  # the lease is next to the output, wherever that has moved
    kept = {n: value for n, value in arguments.items() if n not in apart}
    return Lease(folder_of(output, storage_options), name, kept)
