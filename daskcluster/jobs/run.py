"""One run of a job: its name and arguments, the check of its outputs, its lease, rows and reports."""

from __future__ import annotations

import datetime as dt
import hashlib
import inspect
import json
import math
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pkgutil import resolve_name
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

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
    WrongTypeError,
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
from daskcluster.jobs.spec import PACE, JobSpec, output_name, output_of, spec_of
from daskcluster.models.fitted import check_free, created_with
from daskcluster.models.record import Record
from daskcluster.parameters.shared import METHODS
from daskcluster.storage.checkpoint import tell_where
from daskcluster.storage.files import list_names, remove_folder
from daskcluster.storage.lease import Holder, Lease, folder_of
from daskcluster.storage.location import Location, locate
from daskcluster.storage.staging import check_free as check_output_free
from daskcluster.storage.staging import refuse_overlaps
from daskcluster.typing import Dataset, Visibility

if TYPE_CHECKING:
    from daskcluster.jobs.registry import JobRegistry


_APART = frozenset({
    "name", "engine", "callbacks", "heard", "overwrite", "resume", "scratch", "storage_options",
})  # fmt: skip
"""Arguments that do not change what a job computes. Options of a store may hold credentials."""
_URLS = frozenset({
    "centroids", "checkpoint", "distances", "labels", "model", "output", "posteriors", "report", "rows",
    "source", "state",
})  # fmt: skip
_MAYBE_URLS = frozenset({"how", "keep", "weights"})
_LISTED = 64
"""Most values of an array that are kept as they are."""
_HASHED_BYTES = 64 * 1024**2
_MOST_CHARACTERS = 1000
_LARGEST_INT = 2**63 - 1
_SHOWN_AS_THEY_ARE = slice | complex | bytes | dt.date | dt.time | dt.timedelta


def given_to(job: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return arguments and keyword arguments of a job by parameter, as `locals()` at its start has them.

    Raises
    ------
    WrongTypeError
        The job cannot be called with them.
    """
    try:
        return inspect.signature(job).bind(*arguments, **options).arguments
    except TypeError as error:
        raise WrongTypeError(
            f"jobs.{job.__name__} cannot be called with these arguments: {error}; see "
            f"help(jobs.{job.__name__})."
        ) from error


def plain_arguments(job: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a job's result depends on, as plain values.

    What equals its default is left out, so that it does not matter whether it was given.

    Parameters
    ----------
    job : str
        A name in `daskcluster.jobs`.
    given : mapping
        Arguments by parameter; see `given_to`.

    Examples
    --------
    >>> plain_arguments("fit", {"source": "x.npy", "n_clusters": np.int64(5), "parameters": {"tol": 0.1}})
    {'source': 'x.npy', 'n_clusters': 5, 'tol': 0.1}
    >>> plain_arguments("score", {"model": "m", "source": "x.npy", "metrics": [], "engine": "local"})
    {'model': 'm', 'source': 'x.npy'}
    """
    function = getattr(import_module("daskcluster.jobs"), job)
    flat: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            flat |= given.get(name, {})
        elif name in given:
            flat[name] = given[name]
    found = {name: _plain(value) for name, value in flat.items() if name not in _APART}
    for name, default in _defaults(job, function, flat).items():
        is_default = name in found and bool(found[name] == _plain(default))
        if is_default or (default is None and found.get(name) in ({}, [])):
            found.pop(name, None)
    return found


def located(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain arguments with absolute paths, and digests instead of long values.

    Raises
    ------
    InvalidParameterError
        A URL is empty or contains a credential.

    Examples
    --------
    >>> located({"source": "s3://bucket/rows.zarr/", "n_clusters": 5})
    {'source': 's3://bucket/rows.zarr', 'n_clusters': 5}
    """
    found = {name: _located(name, value) for name, value in arguments.items()}
    for name, value in found.items():
        text = json.dumps(value, sort_keys=True)
        if len(text) > _MOST_CHARACTERS:
            kind = f"{len(value)} values" if isinstance(value, list) else type(value).__name__
            found[name] = f"<{kind} {_digest(text.encode())}>"
    return found


def absolute(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with absolute paths, for a process with another working directory.

    Examples
    --------
    >>> absolute({"source": "s3://bucket/rows.zarr/", "weights": "column"})
    {'source': 's3://bucket/rows.zarr', 'weights': 'column'}
    """
    found = dict(given)
    for name, value in given.items():
        if not isinstance(value, str):
            continue
        may_be = name in _MAYBE_URLS and not (name == "weights" and given.get("array") is not None)
        is_path = "/" in value or value.lower().endswith((".npy", ".zarr"))
        is_start = name == "init" and value not in METHODS
        if name in _URLS or is_start or (may_be and is_path):
            found[name] = locate(value).url
    return found


def _defaults(job: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a job, and of what it passes on."""
    spec, found = spec_of(job), dict[str, Any]()
    if spec is not None and (known := spec.catalogue) is not None:
        entry = known.get(str(given.get("algorithm") or next(iter(known))))
        parameters = {} if entry is None else entry.parameters
        found = {name: parameter.default for name, parameter in parameters.items()}
    functions = [resolve_name(spec.extends)] if spec is not None and spec.extends else []
    for each in (*functions, function):
        taken = inspect.signature(each).parameters
        found |= {name: parameter.default for name, parameter in taken.items()}
    return {
        name: default for name, default in found.items() if default is not inspect.Parameter.empty
    }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= _LARGEST_INT else str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(entry) for entry in value), key=repr)
    if isinstance(value, _SHOWN_AS_THEY_ARE):
        return repr(value)
    return _of_object(value)


def _of_object(value: Any) -> Any:
    value = getattr(value, "cluster_centers_", getattr(value, "means_", value))
    if type(value).__module__.partition(".")[0] in ("pandas", "polars"):
        value = value.to_numpy() if hasattr(value, "to_numpy") else value
    if not isinstance(value, np.ndarray):
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        return f"<{module}.{name}>" if name else f"<{type(value).__name__}>"
    if value.size <= _LISTED:
        return _plain(value.tolist())
    rows = np.ascontiguousarray(value[:: 1 + value.nbytes // _HASHED_BYTES])
    content = repr(rows.tolist()).encode() if value.dtype == object else rows.tobytes()
    return f"<array {value.shape} {value.dtype} {_digest(content)}>"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _located(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_located(name, entry) for entry in value]
    if not (isinstance(value, str) and _is_url(name, value)):
        return value
    for link in value.split("::"):  # `locate` finds credentials in URLs that are no chains
        locate(link or value)
    return locate(value).url


def _is_url(name: str, text: str) -> bool:
    if text.startswith("<"):  # an object
        return False
    if "://" in text or name in _URLS:
        return True
    if name == "init":
        return text not in METHODS
    # A name of an array or of a column may have a slash.
    is_path = text.startswith(("/", "./", "../", "~")) or text.lower().endswith((".npy", ".zarr"))
    return name in _MAYBE_URLS and is_path


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: Any) -> str:
    """Return `name` if it is a valid job name.

    Raises
    ------
    InvalidParameterError

    Examples
    --------
    >>> check_name("nightly-2026-11-21")
    'nightly-2026-11-21'
    """
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidParameterError(
            f"name={str(name)[:120]!r} should be 1 to 100 letters, digits, dots, dashes or underscores "
            "and begin with a letter or digit; choose another name for the job."
        )
    return name


def new_name(kind: str) -> str:
    """Return a unique name."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def name_of_key(key: Any) -> str:
    """Return the name of the job that runs as the Dask task `key`; equal keys have equal names.

    Examples
    --------
    >>> name_of_key("fit-0123abcd")
    'fit-0123abcd'
    """
    text = str(key)
    if _NAME.fullmatch(text):
        return text
    return f"task-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


# -- outputs -------------------------------------------------------------------------------------

_MAP = "map"
"""Among kinds: an output may be a GeoTIFF."""
_KINDS = {"posteriors": ("group",), "centroids": ("file",)}


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


def _task() -> Any:
    """Return `daskcluster.engine.connect` if this thread runs a Dask task, else None."""
    if "distributed" not in sys.modules:
        return None
    from daskcluster.engine import connect

    return connect if connect.in_task() else None


def worker_here() -> str:
    """Return the address of the worker that runs this task; empty outside tasks."""
    task = _task()
    return "" if task is None else str(task.worker_of_task())


def registry_of(engine: Any) -> JobRegistry | None:
    """Return the job registry of the scheduler that the job uses or runs on; None if there is none."""
    task = _task()
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
        if registry is not None:
            from daskcluster.reports.progress import ProgressLines  # which imports rich

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
        task, name = _task(), given["name"]
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
        self._output = output_of(kind, given)
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
            found = self._record = kind(**earlier.record)
            return found
        spec, given = spec_of(self.kind), self.given
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

        return DaskEngine(_task().client_of_task())

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
            self._announce("done", record=record)
            return
        if self._keeps and self._lease is not None:
            what, again = f"the job {self.name!r}", "the same call under the same name"
            tell_where(error, self._lease.folder, what, again)
        state = "cancelled" if isinstance(error, JobCancelledError) else "failed"
        if self._lease is not None and self._lease.is_held:
            self._lease.end(state)
        text = " ".join(str(error).split())
        is_known = isinstance(error, DaskClusterError) and text
        self._announce(state, error=text if is_known else f"{type(error).__name__}: {text}")

    def _announce(self, state: str, **facts: Any) -> None:
        if self._registry is None or self.name is None:
            return
        if state == "running":
            facts |= {"worker": worker_here(), "key": self._key or ""}
            facts["arguments"] = self._arguments
        facts |= {"kind": self.kind, "output": self._output}
        self._registry.announce(self.name, state=state, **facts)


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
        See `daskcluster.jobs.run.located`.
    storage_options : mapping, optional
    """
    apart = PACE | {output_name(job)}  # the lease is next to the output, wherever that has moved
    kept = {n: value for n, value in arguments.items() if n not in apart}
    return Lease(folder_of(output, storage_options), name, kept)


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
