"""One run of a job: its name and arguments, the check of its outputs, its lease, rows and reports."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.label_files import GRID_KINDS, is_file_output
from daskcluster.data.sources import is_list_of_files
from daskcluster.data.spec import RowsSpec, looks_like_path
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.errors import (
    DaskClusterError,
    InvalidParameterError,
    JobCancelledError,
    LeaseError,
)
from daskcluster.estimators.opening import is_raster, open_stored, prepared
from daskcluster.events import (
    Callback,
    CycleEnded,
    Event,
    FitsMade,
    FitStarted,
    IterationEnded,
    PassEnded,
    PassProgress,
    PassShare,
    PassStarted,
)
from daskcluster.jobs import catalogue  # which imports jobs of others, and they may import this
from daskcluster.jobs.identity import (
    check_name,
    current_task,
    lease_of,
    located,
    name_of_key,
    plain_arguments,
    plain_value,
)
from daskcluster.jobs.spec import JobSpec
from daskcluster.models.fitted import check_free, created_with
from daskcluster.models.record import Record
from daskcluster.reports.progress import ProgressLines
from daskcluster.storage.checkpoint import tell_where
from daskcluster.storage.files import list_names, remove_folder
from daskcluster.storage.lease import Holder, Lease
from daskcluster.storage.location import Location, locate
from daskcluster.storage.staging import check_free as check_output_free
from daskcluster.storage.staging import refuse_overlaps
from daskcluster.typing import Dataset, Visibility

if TYPE_CHECKING:
    from daskcluster.jobs.registry import JobRegistry


# -- outputs -------------------------------------------------------------------------------------

_MAP = "map"
"""Among kinds: an output may be a GeoTIFF."""
_KINDS = {"posteriors": ("group",), "centroids": ("file",), "report": ("file",)}


def check_outputs(
    outputs: Mapping[str, str | None],
    inputs: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
    overwrite: bool,
    *,
    kinds: tuple[str, ...] = ("array",),
) -> None:
    """Raise if an output exists, or would replace an input or another output.

    Parameters
    ----------
    outputs : mapping of str to URL or None
        URLs by name: ``"model"``, ``"posteriors"`` (a Zarr group), ``"centroids"`` (a file), or any other
        name for a Zarr array or a file of labels. None is an output that is not requested.
    inputs : mapping of str to object
        Inputs by name; those that are URLs are compared with the outputs.
    storage_options : mapping, optional
        Options of the file system for all URLs.
    overwrite : bool
        Existing outputs will be replaced.
    kinds : tuple of {"array", "group"}, default ('array',)
        Kinds of Zarr node that an output other than a model may replace; ``("file",)`` for any file.

    Raises
    ------
    OutputExistsError, InvalidParameterError

    Notes
    -----
    Cost: a few requests to the store for each output; no rows are read.
    """
    places = {
        name: locate(url, storage_options) for name, url in outputs.items() if url is not None
    }
    for other, value in inputs.items():
        for each in value if is_list_of_files(value) else [value]:
            if not (isinstance(each, str) or hasattr(each, "__fspath__")):
                continue
            read = locate(each, storage_options)
            for name, place in places.items():
                if place.holds(read):
                    raise InvalidParameterError(
                        f"{name}={place.url!r} would replace the {other} {read.url!r}; write to another "
                        "URL."
                    )
    refuse_overlaps(places)
    for name, place in places.items():
        options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
        if name == "model":
            check_free(place.url, **options)
            continue
        own = _KINDS.get(name, kinds)
        if own != ("file",) and is_file_output(place.url, maps=_MAP in kinds):
            own = ("file",)
        check_output_free(place.url, kinds=own, **options)


def check_outputs_of(spec: JobSpec, given: Mapping[str, Any], overwrite: bool) -> None:
    """Check the outputs of a job against what it reads."""
    inputs = {name: given.get(name) for name in (*spec.arguments, "weights")}
    inputs |= {
        what: given[name]
        for name, what in spec.reads
        if not isinstance(given[name], str) or looks_like_path(given[name])
    }
    outputs, options = spec.of_outputs(given), given["storage_options"]
    check_outputs(outputs, inputs, options, overwrite, kinds=spec.kinds_of(given))


def kinds_of_labels(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what labels may replace, by the arguments of a job: of a grid, or with distances, groups."""
    is_grid = bool(given.get("grid")) or is_raster(given["source"])
    return (*(GRID_KINDS if is_grid or given.get("distances") else ("array",)), _MAP)


def check_labels(url: str) -> None:
    """Refuse endings of files that labels are not written to."""
    is_file_output(url, maps=True)


# -- where a job runs ----------------------------------------------------------------------------


def registry_of(engine: Any) -> JobRegistry | None:
    """Return the job registry of the scheduler that the job uses or runs on; None if there is none."""
    task = current_task()
    client = getattr(engine, "client", engine) if task is None else task.client_here()
    if "distributed" not in sys.modules:
        return None
    from daskcluster.engine.connect import Client
    from daskcluster.jobs.registry import JobRegistry

    return JobRegistry(client) if isinstance(client, Client) else None


# -- what a job reports --------------------------------------------------------------------------

CANCEL_SECONDS = 0.25
"""Most seconds between two checks for a cancel request, while there are events."""
LEASE_SECONDS = 2.0
_REPORT_SECONDS = 0.5
_OF_PASSES = PassStarted | PassProgress | PassEnded


class JobMonitor:
    """A callback that reports progress to the scheduler, and raises if the job must stop.

    Parameters
    ----------
    name : str or None
        Name of the job.
    registry : JobRegistry or None
    lease : Lease or None
        Checked from time to time once it is held.

    Raises
    ------
    JobCancelledError
        The job was cancelled.
    LeaseError
        Another run of the job has taken over.
    """

    def __init__(self, name: str | None, registry: JobRegistry | None, lease: Lease | None) -> None:
        self._name = name or ""
        self._registry = registry
        self._lease = lease
        self._said: list[str] = []
        self._lines = ProgressLines(self._said.append)
        self._facts: dict[str, Any] = {}
        self._pass = PassShare()
        self._rows_seen = -1
        self._reported = self._asked = self._checked = 0.0

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if self._registry is not None:
            self._lines(event)
            self._facts |= self._learned(event)
            # Passes and iterations may be short and many; all other events are reported at once.
            often = isinstance(event, _OF_PASSES | IterationEnded)
            is_due = now - self._reported >= _REPORT_SECONDS or (self._said and not often)
            if is_due and (self._said or self._facts):
                self._reported = now
                line = self._said[-1] if self._said else ""
                self._registry.report(self._name, line, **self._facts)
                self._said.clear()
                self._facts = {}
        self.look(now)

    def look(self, now: float | None = None) -> None:
        """Raise if the job was cancelled or restarted; checks at most once per interval."""
        now = time.monotonic() if now is None else now
        self.listen(now)
        if self._lease is not None and self._lease.is_held and now - self._checked >= LEASE_SECONDS:
            self._checked = now
            self._lease.check()

    def listen(self, now: float) -> None:
        """Raise if the job was cancelled."""
        if self._registry is not None and now - self._asked >= CANCEL_SECONDS:
            self._asked = now
            if self._registry.is_cancelled(self._name):
                raise JobCancelledError(
                    f"the job {self._name!r} was cancelled; submit it again under its name to resume from "
                    "its checkpoint."
                )

    def rest(self, seconds: float) -> None:
        """Sleep; raise if the job is cancelled meanwhile. Makes no requests to the store."""
        until = time.monotonic() + seconds
        while (left := until - (now := time.monotonic())) > 0:
            self.listen(now)
            time.sleep(min(left, CANCEL_SECONDS))

    def _learned(self, event: Event) -> Mapping[str, Any]:
        if isinstance(event, FitStarted):
            return {"iteration": 0, "max_iter": event.max_iter}
        if isinstance(event, IterationEnded):
            inertia = float(event.inertia)
            finite = inertia if math.isfinite(inertia) else None
            return {"iteration": int(event.iteration), "inertia": finite}
        if isinstance(event, CycleEnded):
            is_news = event.n_rows != self._rows_seen  # cycles without new rows are not reported
            self._rows_seen = event.n_rows
            return {"rows_seen": event.n_rows} if is_news else {}
        if isinstance(event, FitsMade):
            return {"phase": "fits", "share": event.done / event.total}
        self._pass(event)
        is_known = isinstance(event, _OF_PASSES)
        return {"phase": self._pass.name, "share": self._pass.done} if is_known else {}


class JobCounters:
    """Counts passes and bytes from the events of a job."""

    def __init__(self) -> None:
        self.passes = 0
        self.bytes_read = 0
        self._began = time.perf_counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event, PassEnded):
            self.passes += 1
            self.bytes_read += event.bytes_read

    def at_least(self, passes: int, bytes_read: int) -> None:
        """Include the passes and bytes that a resumed fit made before the interruption."""
        self.passes = max(self.passes, passes)
        self.bytes_read = max(self.bytes_read, bytes_read)

    def common(self, dataset: Dataset) -> dict[str, Any]:
        """Return the fields that all records share."""
        return {
            "n_rows": dataset.n_rows,
            "n_features": dataset.n_features,
            "passes": self.passes,
            "bytes_read": self.bytes_read,
            "seconds": time.perf_counter() - self._began,
            "versions": created_with(),
        }


# -- a run ---------------------------------------------------------------------------------------

R = TypeVar("R", bound=Record)
T = TypeVar("T")


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
        the same name must have the same; see `daskcluster.jobs.run`.

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
    monitor : JobMonitor
    is_resumed : bool
        Whether an earlier run of the same job left state; known after `hold`.
    outputs : dict of str to Location
        What the job writes, by the names of its arguments; known after `begin`.
    overwrite : bool
        Whether existing outputs are to be replaced; known after `begin`.
    """

    def __init__(self, kind: str, given: Mapping[str, Any]) -> None:
        task, name = current_task(), given["name"]
        self._key = None if task is None else str(task.key_of_task())
        if name is None and self._key is not None:
            name = name_of_key(self._key)
        self.name = None if name is None else check_name(name)
        self.kind, self.given = kind, dict(given)
        self.counters = JobCounters()
        self.callbacks: tuple[Callback, ...] = (*given["callbacks"], self.counters)
        self.is_resumed = False
        self.outputs: dict[str, Location] = {}
        self.overwrite = False
        self._keeps = False
        self._output = catalogue.output_of(kind, given)
        self._lease: Lease | None = None
        self._registry: JobRegistry | None = None
        self._record: Any = None
        self._is_refused = False
        self._is_own = self._key is not None
        if self.name is not None:
            self._arguments = located(plain_arguments(kind, given))
            if self._output:
                options = given.get("storage_options")
                self._lease = lease_of(kind, self.name, self._output, self._arguments, options)
            self._registry = registry_of(given["engine"])
        if self._registry is not None and self.name is not None:
            from daskcluster.jobs.registry import refuse_other

            before = self._registry.find(self.name)
            if before is not None and (self._key is None or before.key != self._key):
                refuse_other(before, kind, self._arguments)
                self._is_own = False
            if self._key is None:
                self._registry.clear(self.name)
        self.monitor = JobMonitor(self.name, self._registry, self._lease)
        if self.name is not None:
            self.callbacks = (*self.callbacks, self.monitor)

    # -- from the arguments to the record ---------------------------------------------------------------

    def begin(self, kind: type[R]) -> R | None:
        """Return the record of an earlier run that was done, or check the outputs and take the lease.

        Outputs and inputs are those of the declaration of the job; see `check_outputs` and `hold`.

        Parameters
        ----------
        kind : type of Record

        Raises
        ------
        OutputExistsError, InvalidParameterError, LeaseError
        """
        earlier: Holder | None = None
        if self._lease is not None:
            with self._refusable():
                earlier = self._lease.earlier()
        if earlier is not None and earlier.state == "done" and earlier.record:
            names = {each.name for each in fields(kind)}  # earlier versions recorded more
            kept = {name: value for name, value in earlier.record.items() if name in names}
            found = self._record = kind(**kept)
            return found
        spec, given = catalogue.spec_of(self.kind), self.given
        assert spec is not None
        # Outputs of an earlier run may always be replaced.
        self.overwrite = given["overwrite"] or (earlier is not None and earlier.started)
        spec.check_urls(given)
        check_outputs_of(spec, given, self.overwrite)
        self.outputs = {
            name: locate(url, given["storage_options"])
            for name, url in spec.of_outputs(given).items()
            if url is not None
        }
        self.hold()
        return None

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
        self.monitor.look()

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        try:
            yield
        except (InvalidParameterError, LeaseError):
            self._is_refused = True
            raise

    def open_rows(
        self, expected: Sequence[str] | None = None, **changed: Any
    ) -> tuple[Dataset, Engine]:
        """Return the rows of the job, brought to what its arguments say, and the engine that reads them.

        Parameters
        ----------
        expected : sequence of str, optional
            Names of the features of a model, which are read from a table unless others were chosen.
        **changed
            Arguments in place of those of the run.
        """
        given = {**self.given, **changed}
        dataset, left = open_stored(
            given["source"],
            RowsSpec.among(given, expected),
            weights=given.get("weights"),
            storage_options=given["storage_options"],
            engine=given["engine"],
            callbacks=self.callbacks,
        )
        refuse_replacing(dataset, **self.outputs)
        engine = choose_engine(self.drives(dataset.visibility), dataset)
        if self.name is not None:
            engine = engine.named(self.name)
        return prepared(dataset, left, engine=engine, callbacks=self.callbacks), engine

    def drives(self, visibility: Visibility) -> Any:
        """Return the given engine; if it is None inside a Dask task, the workers of that cluster.

        Rows that only this process can read are processed by one thread of it.
        """
        engine = self.given["engine"]
        if engine is not None or self._key is None or visibility is Visibility.PROCESS:
            return engine
        from daskcluster.engine.dask import DaskEngine

        return DaskEngine(current_task().client_of_task())

    @property
    def writing(self) -> dict[str, Any]:
        """The arguments of what writes an output."""
        options = self.given["storage_options"]
        kept = None if options is None else dict(options)
        return {"overwrite": self.overwrite, "storage_options": kept}

    def resumable(self, engine: Engine, **changed: Any) -> dict[str, Any]:
        """Return the arguments of work that keeps its state and runs on an engine."""
        given = {**self.given, **changed, "engine": engine, "callbacks": self.callbacks}
        given["checkpoint"] = self.state_at(given["checkpoint"])
        given["resume"] = given["resume"] or self.is_resumed
        return given

    def state_at(self, checkpoint: Any) -> Any:
        """Return where the state of the work is stored: at `checkpoint`, else next to a job's output."""
        if self._lease is None or checkpoint is not None:
            return checkpoint
        self._keeps = True
        if not self.is_resumed:
            self._clear(self._lease.folder)  # remove state of earlier, failed jobs
        return self._lease.folder

    def _clear(self, folder: Location) -> None:
        for name in list_names(folder):
            if name != "jobs":
                remove_folder(folder.child(name))

    def begin_output(self) -> None:
        """Record that outputs are about to be written; raise if this run may not write them.

        Raises
        ------
        LeaseError
            Another run of the job has taken over.
        JobCancelledError
        """
        self.monitor.look()
        if self._lease is not None:
            self._lease.begin()

    def record(self, kind: type[R], dataset: Dataset, found: Any = None, **own: Any) -> R:
        """Return the record of the job.

        Parameters
        ----------
        kind : type of Record
        dataset : Dataset
        found : object, optional
            The result. Its attributes, and arguments of the job, are fields of the same names.
        **own
            Other fields.
        """
        own = {**self.counters.common(dataset), **own}
        for name in {each.name for each in fields(kind)} - set(own):
            own[name] = (
                getattr(found, name) if hasattr(found, name) else plain_value(self.given[name])
            )
        return kind(**own)

    def done(self, record: T) -> T:
        """Store the record, remove the state of the job, and return the record."""
        self._record = record
        if self._lease is not None:
            self._lease.end("done", self._record.as_dict())
            if self._keeps:
                self._clear(self._lease.folder)
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
        if error is not None and self._key is not None:
            # The cause may be a client's error that cannot be pickled, so drop it: otherwise, this error
            # could not be pickled either.
            error.__cause__ = error.__context__ = None
        if isinstance(error, LeaseError) and self._lease is not None and self._lease.is_held:
            return  # the run that took over reports for the job
        if self._is_refused and not self._is_own:
            return  # the scheduler's entry, if any, is that of the job that stays
        if error is None:
            record = None if self._record is None else self._record.as_dict()
            # The last progress was of the centres before.
            last = (
                {} if record is None or "inertia" not in record else {"inertia": record["inertia"]}
            )
            self._announce("done", record=record, **last)
            return
        leaves = self._has_nothing()
        if self._keeps and self._lease is not None and not leaves:
            what, again = f"the job {self.name!r}", "the same call under the same name"
            tell_where(error, self._lease.folder, what, again)
        state = "cancelled" if isinstance(error, JobCancelledError) else "failed"
        if self._lease is not None and self._lease.is_held:
            if leaves:
                self._lease.leave()
            else:
                self._lease.end(state)
        text = " ".join(str(error).split())
        is_known = isinstance(error, DaskClusterError) and text
        self._announce(state, error=text if is_known else f"{type(error).__name__}: {text}")

    def _has_nothing(self) -> bool:
        """Return whether this is the first run of the job, and it has kept and written nothing."""
        lease = self._lease
        if lease is None or not lease.is_held or lease.started or lease.attempt > 1:
            return False
        try:
            return set(list_names(lease.folder)) <= {"jobs"}
        except DaskClusterError:  # the store cannot be reached, which may be why the run failed
            return False

    def _announce(self, state: str, **facts: Any) -> None:
        if self._registry is None or self.name is None:
            return
        if state == "running":
            worker = "" if self._key is None else current_task().worker_of_task()
            facts |= {"worker": worker, "key": self._key or ""}
            facts["arguments"] = self._arguments
        facts |= {"kind": self.kind, "output": self._output}
        self._registry.announce(self.name, state=state, **facts)


def open_metadata(
    source: Any, opening: Mapping[str, Any], expected: Sequence[str] | None = None
) -> Dataset:
    """Return the rows of a source without a pass over them: no cell or row is left out."""
    spec = RowsSpec.among(opening, expected)
    if spec.grid:
        grid = {name: value for name, value in spec.grid.items() if name != "nodata"}
        spec = replace(spec, grid=grid or {"features": None})
    options = opening.get("storage_options")
    return open_stored(source, spec, weights=opening.get("weights"), storage_options=options)[0]
