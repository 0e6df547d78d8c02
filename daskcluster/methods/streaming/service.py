"""A stream as a service: a loop that lists the source, folds new objects, labels their rows and commits.

After a killed cycle, the state is that of the last commit, and the next cycle folds the same rows again, to
identical bits. Each wave of objects is committed. The state does not depend on how rows are divided among
cycles and waves.

The engine summarises several objects at a time. A row is labelled with the centres that were current when
it arrived: those of the last leaf before it. The first rows, which arrive before there are any centres, are
labelled with the centres of all rows up to the end of their object. Both depend on the stream alone, so
repeated writes give the same labels.

Layout below the URL of the state::

    commits/<fingerprint>/<number>-<token>/   states of the stream (`daskcluster.storage.checkpoint`)
    ledger/<first>-<digest>.jsonl             segments of the ledger, which commits name
    models/<rows>/                            a model per version; versions are numbers of rows
    latest.json                               the version of the last commit
    status.json                               the status after the last cycle

A version is the number of rows that the model has seen, so it does not depend on the number of cycles.
Apart from the last two, files are written once and never change. A commit makes the new ledger and the new
version effective together; files that no commit names have no effect.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.chunkwise.centres import nearest_with_distances
from daskcluster.data.features import FeatureSpec
from daskcluster.data.recipes import for_metric
from daskcluster.data.writer import ZarrSink, write_rows_at
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.errors import (
    CheckpointError,
    DatasetNotFoundError,
    EngineError,
    InvalidDataError,
    InvalidParameterError,
    MissingExtraError,
    ModelFormatError,
)
from daskcluster.events import Callback, CycleEnded, DriftFound, Event, Notice, publish
from daskcluster.extras import install_command
from daskcluster.methods.streaming.estimator import StreamingKMeans
from daskcluster.methods.streaming.fold import StreamCentres, StreamFold, document_of, fold_of
from daskcluster.methods.streaming.parameters import STREAMING
from daskcluster.methods.streaming.sources import (
    Entry,
    Finding,
    Ledger,
    New,
    Oddity,
    Portions,
    Settling,
    Source,
    sort_out,
)
from daskcluster.methods.streaming.tree import Forgetting, Part, in_dtype, sum_up
from daskcluster.models.fitted import load_document, save_model
from daskcluster.randomness import as_seed
from daskcluster.storage.checkpoint import CheckpointFolder
from daskcluster.storage.document import (
    Document,
    plain,
    read_count,
    read_mapping,
    read_names,
    read_records,
    read_text,
)
from daskcluster.storage.files import list_names, read_file, remove_file, write_file
from daskcluster.storage.location import Location, locate
from daskcluster.typing import Dataset

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


@dataclass(frozen=True)
class Cycle:
    """The results of one poll of the source.

    Attributes
    ----------
    rows_seen, new_rows, objects, new_objects : int
        Rows and objects of the whole stream, and of this cycle; objects are entries of the ledger.
    model_version : int or None
        Number of rows that the latest model has seen.
    model : str or None
        URL of the latest model.
    findings : tuple of Finding
    drifts : tuple of dict
        Drifts found in this cycle.
    drift : dict
        The error of the last leaf, its baseline, their ratio, and ``counts``, the weight of its rows in
        each cluster.
    remembered : float
        Weight of all rows after forgetting.
    n_clusters : int or None
    seconds : float
    """

    rows_seen: int
    new_rows: int
    objects: int
    new_objects: int
    model_version: int | None
    model: str | None
    findings: tuple[Finding, ...]
    drifts: tuple[dict[str, Any], ...]
    drift: dict[str, Any]
    remembered: float
    n_clusters: int | None
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the cycle as plain JSON values."""
        values = {name: value for name, value in vars(self).items() if name != "findings"}
        findings = [
            {"what": str(finding.oddity), "name": finding.name, "text": finding.text}
            for finding in self.findings
        ]
        return {**values, "drifts": list(self.drifts), "findings": findings}


STATUS = "status.json"

_LAST = 10
_MOST_FINDINGS = 50


def status_of(cycle: Cycle, ledger: Ledger) -> dict[str, Any]:
    """Return the status of a stream after a cycle, as plain values."""
    rejected = sum(entry.is_rejected for entry in ledger.entries)
    found = cycle.as_dict()
    findings = found.pop("findings")
    counts = Counter(each["what"] for each in findings)
    status: dict[str, Any] = plain(
        {
            **found,
            "updated": time.time(),
            "rejected": rejected,
            "oddities": dict(sorted(counts.items())),
            "findings": findings[:_MOST_FINDINGS],
            "last_objects": [
                {"name": entry.name, "rows": entry.n_rows, "note": entry.note}
                for entry in ledger.entries[-_LAST:]
            ],
        }
    )
    return status


def read_status(url: Any, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the status of the stream whose state is at `url`.

    Raises
    ------
    DatasetNotFoundError
        There is no state at `url`.
    """
    place = locate(url, storage_options)
    content = read_file(place, STATUS)
    if content is None:
        raise DatasetNotFoundError(
            f"There is no state of a stream at {place.url!r}; pass the URL given as --state to "
            "daskcluster stream."
        )
    found: dict[str, Any] = json.loads(content)
    return found


LATEST = "latest.json"

_NOT_OF_THE_STATE = ("verbose", "random_state")
"""Parameters that do not identify a state: `verbose`, and the seed, which the state itself stores."""


@dataclass
class StreamState:
    """Current state of a stream.

    Attributes
    ----------
    ledger : Ledger
    fold : StreamFold or None
        None before the first rows.
    seed : int
    known : FeatureSpec or None
        The features of the first rows.
    version : int or None
        Version of the model; None before there is one.
    n_commits : int
    """

    ledger: Ledger
    fold: StreamFold | None
    seed: int
    known: FeatureSpec | None = None
    version: int | None = None
    n_commits: int = 0

    @property
    def rows_seen(self) -> int:
        return 0 if self.fold is None else self.fold.n_rows


class StateStore:
    """Loads and commits the state of one stream.

    Parameters
    ----------
    place : Location
    source : Source
    estimator : StreamingKMeans
        The state is that of this source, with its parameters.
    """

    def __init__(self, place: Location, source: Source, estimator: StreamingKMeans) -> None:
        self.place, self._estimator = place, estimator
        self._missing = source.spec.missing or "error"
        parameters = {
            each.name: value if isinstance(value, (int, float, str, type(None))) else repr(value)
            for each in STREAMING
            if each.is_plain and each.name not in _NOT_OF_THE_STATE
            for value in (getattr(estimator, each.name),)
        }
        parameters["max_clusters"] = None  # which states were made with
        facts = {"source": source.facts(), "algorithm": "streaming", "parameters": parameters}
        self._facts = facts
        self._ledger = place.child("ledger")
        self._named: set[str] = set()

    def load(self) -> StreamState:
        """Return the state of the last commit, or an empty one.

        Raises
        ------
        CheckpointError
            The state belongs to another stream or other parameters, or is damaged.
        """
        self._commits = CheckpointFolder(self.place.child("commits"), self._facts)
        found = self._commits.latest()
        self._number = self._commits.newest()
        if found is None:
            given = self._estimator.random_state
            return StreamState(Ledger(), None, as_seed(0 if given is None else given))
        body = found.body
        ledger = Ledger.read(self._ledger, read_records(body, "ledger"))
        self._named = {str(segment["name"]) for segment in ledger.segments}
        seed = int(read_text(body, "seed"))
        fold = None
        if "fold" in body:
            document = Document(found.kind, read_mapping(body, "fold"), found.arrays)
            try:
                fold = fold_of(
                    document, self._estimator.fold_settings(read_text(body, "dtype"), seed)
                )
            except (KeyError, ModelFormatError) as error:
                raise CheckpointError(
                    f"The state at {self.place.url!r} cannot be resumed ({error}); it may be from "
                    "another release: start a new state."
                ) from error
        version, n_features = body.get("version"), read_count(body, "n_features")
        names = read_names(body, "feature_names") if "feature_names" in body else None
        known = FeatureSpec(n_features, names, decoded=body.get("decoded"), owner="the stream")
        state = StreamState(
            ledger,
            fold,
            seed,
            None if fold is None else known,
            None if version is None else int(version),
            read_count(body, "n_commits"),
        )
        self.point(state)  # in case a run was stopped between its commit and this
        return state

    def commit(self, state: StreamState) -> None:
        """Commit a state with its ledger and its model.

        Raises
        ------
        CheckpointError
            Another loop has committed since this state was loaded.

        Notes
        -----
        Cost: the bytes of the summary, of the model, and of the new entries of the ledger.
        """
        if self._commits.newest() != self._number:
            raise CheckpointError(
                f"The state at {self.place.url!r} was committed by another loop in the meantime; run only "
                "one loop per state."
            )
        state.version = self._save_model(state)
        segments, known = state.ledger.write(self._ledger), state.known or FeatureSpec(0)
        body: dict[str, Any] = {
            "ledger": segments,
            "seed": str(state.seed),
            "n_features": known.n_features,
            "feature_names": None if known.names is None else list(known.names),
            "decoded": known.decoded,
            "version": state.version,
            "n_commits": state.n_commits + 1,
        }
        arrays, kind = {}, "stream"
        if state.fold is not None:
            document = document_of(state.fold)
            body |= {"fold": document.body, "dtype": state.fold.settings.leaf.dtype}
            arrays, kind = document.arrays, document.kind
        self._commits.commit(Document(kind, body, arrays))
        state.n_commits += 1
        self._number = self._commits.newest()
        self.point(state)
        # Remove segments that neither this commit nor the previous one names.
        before, self._named = self._named, {str(segment["name"]) for segment in segments}
        if before and not before <= self._named:
            for name in list_names(self._ledger):
                if name not in self._named and name not in before:
                    remove_file(self._ledger, name)

    def _save_model(self, state: StreamState) -> int | None:
        """Save the model of a state, unless it exists already; return its version."""
        known = state.known
        if state.fold is None or known is None or state.fold.current() is None:
            return None
        version = state.rows_seen
        place = self.model(version)
        try:
            load_document(place.url, place.storage_options())
        except ModelFormatError:
            fitted = self._estimator.standing_for(state.fold, known.n_features, known.names)
            model = replace(fitted.to_model(), decoded=known.decoded, missing=self._missing)
            options = place.storage_options() or None
            save_model(model, place.url, overwrite=True, storage_options=options)
        return version

    def model(self, version: int) -> Location:
        """Return the location of the model of a version."""
        return self.place.child("models").child(f"{version:012d}")

    def point(self, state: StreamState) -> None:
        """Update ``latest.json`` to the version of a state."""
        facts = {
            "model_version": state.version,
            "model": None if state.version is None else f"models/{state.version:012d}",
            "rows_seen": state.rows_seen,
        }
        content = json.dumps(facts).encode()
        if read_file(self.place, LATEST) != content:
            write_file(self.place, LATEST, content)


UNREADABLE = (InvalidDataError, InvalidParameterError, DatasetNotFoundError)
"""Errors of a single object, which is then rejected; other errors end the cycle."""

WAVE_BYTES = 256 << 20
WAVE_OBJECTS = 256
"""Maximum size of a wave. Waves are committed, so at most one is folded again after a kill."""

_ROW_BYTES = 256


@dataclass(frozen=True)
class Folded:
    """One object that was folded.

    Attributes
    ----------
    new : New
    dataset : Dataset
    entry : Entry
    centres : tuple of (row, StreamCentres or None)
        The current centres from that row of the stream on; the first pair is for the object's first row.
    after : callable () -> StreamCentres or None
        Returns the centres of all rows up to the end of this object.
    """

    new: New
    dataset: Dataset
    entry: Entry
    centres: tuple[tuple[int, StreamCentres | None], ...]
    after: Callable[[], StreamCentres | None]


_Ready = tuple[New, Dataset]
"""An object, and its open rows."""


def waves(new: Sequence[New], row_bytes: int) -> list[list[New]]:
    """Divide new objects into waves; an object larger than a wave is a wave by itself.

    Growing objects are cut into several ranges of rows; other objects are folded as a whole.

    Parameters
    ----------
    new : sequence of New
    row_bytes : int
        Approximate bytes per row; 0 if unknown.
    """
    row_bytes, found, total = row_bytes or _ROW_BYTES, list[list[New]](), 0
    step = max(1, WAVE_BYTES // row_bytes)
    for one in new:
        first, last = one.span
        rows = step if one.arrival.grows else last - first
        for start in range(first, last, rows):
            stop = min(last, start + rows)
            size = (stop - start) * row_bytes
            if not found or len(found[-1]) >= WAVE_OBJECTS or total + size > WAVE_BYTES:
                found.append([])
                total = 0
            found[-1].append(replace(one, span=(start, stop)))
            total += size
    return found


Centres = tuple[tuple[int, StreamCentres], ...]
"""The centres that label rows, each with the first of its rows; they are in the order of rows."""


def label_by_arrival(chunk: Chunk, known: Centres) -> np.ndarray:
    """Return the label of every row of a chunk, int32 (n,)."""
    found = np.empty(chunk.n_rows, np.int32)
    stops = [*(start for start, _ in known[1:]), chunk.stop]
    for (start, centres), stop in zip(known, stops, strict=True):
        first, last = max(start, chunk.start), min(stop, chunk.stop)
        if first >= last:
            continue
        place = slice(first - chunk.start, last - chunk.start)
        part = chunk.slice(place.start, place.stop)
        rows = in_dtype(part.rows, centres.centres.dtype)
        found[place], _ = nearest_with_distances(replace(part, rows=rows), centres.centres)
    return found


def write_labels(folded: Folded, place: Location, engine: Engine) -> bool:
    """Write the labels of an object; return False if there are no centres yet.

    Parameters
    ----------
    folded : Folded
    place : Location
        An array, if the source is one array; otherwise a folder with an array per object, named after it.
    engine : Engine

    Notes
    -----
    Cost: one pass over the new rows.
    """
    dataset, shift = folded.dataset, folded.new.span[0] - folded.entry.first
    intervals: list[tuple[int, StreamCentres]] = []
    for row, known in folded.centres:
        centres = folded.after() if known is None else known
        if centres is None:
            return False
        intervals.append((row + shift, centres))
    params, chunk_rows = tuple(intervals), max(dataset.chunk_sizes)
    if folded.new.arrival.grows:
        for chunk in dataset.chunks([folded.new.span]):
            write_rows_at(place, chunk.start, label_by_arrival(chunk, params), chunk_rows)
        return True
    name = folded.new.arrival.name
    sink = ZarrSink.create(
        place.child(name if name.endswith(".zarr") else f"{name}.zarr").url,
        n_rows=dataset.n_rows,
        chunk_rows=chunk_rows,
        dtype=np.int32,
        overwrite=True,
        storage_options=place.storage_options() or None,
    )
    with sink.transaction() as out, engine.place(dataset, footprint=ONE_PASS) as placement:
        placement.map_rows(label_by_arrival, out, params, name="labels")
    return True


@dataclass
class StreamLoop:
    """Keeps the state of a stream up to date.

    Attributes
    ----------
    source : Source
    estimator : StreamingKMeans
        Not fitted; its parameters are those of the stream.
    state_url : str
    labels : str or None
        URL under which labels of new rows are written.
    settle : float
        Seconds without a change after which an object is folded.
    storage_options : mapping or None
        Options of the file systems of state and labels.
    engine : object
    callbacks : sequence of callables
        Called with the events of `daskcluster.events`.
    """

    source: Source
    estimator: StreamingKMeans
    state_url: str
    labels: str | None = None
    settle: float = 0.0
    storage_options: Mapping[str, Any] | None = None
    engine: Any = None
    callbacks: Sequence[Callback] = ()
    _drifts: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        forgetting = Forgetting.of(self.estimator.half_life, self.estimator.window)
        if forgetting.by_time and not self.source.has_times:
            raise InvalidParameterError(
                "half_life or window is a time, but rows of this source have no timestamps (only objects "
                "below a prefix do); pass a number of rows instead."
            )
        place = locate(self.state_url, self.storage_options)
        self.store = StateStore(place, self.source, self.estimator)
        self.state = self.store.load()
        self._settling = Settling(self.settle)
        self._reported: set[Finding] = set()

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
            self.state = self.store.load()  # discards what was not committed
            raise
        for finding in findings:
            if finding not in self._reported:  # of which the previous cycle did not tell
                detail = {"what": str(finding.oddity), "name": finding.name}
                publish(self.callbacks, Notice(finding.text, detail))
        self._reported = set(findings)
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
            time.perf_counter() - began,
        )
        status = status_of(cycle, self.state.ledger)
        write_file(self.store.place, STATUS, json.dumps(status).encode())
        counters = cycle.rows_seen, cycle.new_rows, cycle.new_objects, cycle.model_version
        publish(self.callbacks, CycleEnded(*counters, cycle.seconds))
        return cycle

    def _fold_new(self) -> list[Finding]:
        known = self.state.known
        new, findings = sort_out(self.source, self.state.ledger, self._settling)
        labels = None if self.labels is None else locate(self.labels, self.storage_options)
        for wanted in waves(new, 0 if known is None else 8 * known.n_features):
            folded = self._fold_wave(wanted, findings)
            for each in folded:
                if labels is None or write_labels(
                    each, labels, choose_engine(self.engine, each.dataset)
                ):
                    continue
                name = each.new.arrival.name
                text = f"{name!r} has no labels: there are fewer rows than clusters"
                publish(self.callbacks, Notice(text))
            self.store.commit(self.state)
            if wanted[0].arrival.grows and not folded:
                break  # later rows have to wait for those that cannot be read
        return findings

    def _fold_wave(self, wanted: Sequence[New], findings: list[Finding]) -> list[Folded]:
        """Fold objects into the state, in order; OUT: findings: those that turned out to be unreadable.

        Rows are read once, or twice in a wave with unreadable objects.
        """
        left, folded = self._opened(wanted, findings), list[Folded]()
        one_by_one = False
        while left:
            assert self.state.fold is not None
            chosen = choose_engine(self.engine, left[0][1])
            # Before there are centres, labels of an object need the state at its end.
            is_alone = self.state.fold.fitted is None or left[0][0].arrival.grows or one_by_one
            together = left[:1] if is_alone else left
            problem = self._fold(together, chosen, folded)
            if problem is not None and len(together) > 1:
                one_by_one = True  # which shows the objects that cannot be read
                continue
            if problem is not None:
                findings.append(self._rejected(together[0][0], problem))
            left = left[len(together) :]
        return folded

    def _opened(self, wanted: Sequence[New], findings: list[Finding]) -> list[_Ready]:
        state, ready = self.state, list[_Ready]()
        for new in wanted:
            try:
                dataset = self._checked(self.source.open(new.arrival, new.span), new)
                dataset = for_metric(dataset, self.estimator.metric)
            except UNREADABLE as error:
                findings.append(self._rejected(new, str(error)))
                continue
            if state.fold is None:
                dtype = compute_dtype(dataset.dtype).name
                state.fold = StreamFold.empty(self.estimator.fold_settings(dtype, state.seed))
                own = FeatureSpec.of(dataset)
                state.known = replace(own, scaling=None, missing="error", owner="the stream")
            ready.append((new, dataset))
        return ready

    def _checked(self, dataset: Dataset, new: New) -> Dataset:
        """Return the rows of an object with the features of the stream, in its order."""
        known = self.state.known
        if dataset.n_rows < new.span[1]:
            raise InvalidDataError(
                f"{new.arrival.name!r} has {dataset.n_rows} rows, expected {new.span[1]}; write it again."
            )
        found: Dataset = dataset if known is None else known.align(dataset)
        return found

    def _rejected(self, new: New, why: str) -> Finding:
        """Record an unreadable object in the ledger; rows of one that grows are tried again instead."""
        arrival = new.arrival
        if not arrival.grows:
            note = f"rejected: {why}"[:500]
            place = 0, 0, self.state.rows_seen
            entry = Entry(arrival.name, arrival.version, *place, arrival.timestamp, note)
            self.state.ledger.append(entry)
        return Finding(Oddity.CORRUPT, arrival.name, f"is not folded: {why}")

    def _fold(self, ready: list[_Ready], engine: Engine, folded: list[Folded]) -> str | None:
        """Fold objects; if one cannot be read, fold none and return the reason."""
        before = self.state.fold
        assert before is not None
        leaf = before.settings.leaf
        parts = [
            Part(dataset, new.span, new.arrival.timestamp if leaf.forgetting.by_time else None)
            for new, dataset in ready
        ]
        after, changes = before.twin(), list[tuple[int, StreamCentres]]()
        drifts = list[Event]()
        with closing(sum_up(parts, before.position(), leaf, engine, self.callbacks)) as pieces:
            while True:
                try:
                    piece = next(pieces, None)
                except UNREADABLE as error:
                    return str(error)
                if piece is None:
                    break
                after.add_piece(piece, [drifts.append])
                changes += [(centres.n_rows, centres) for centres in after.take_found()]
        for event in drifts:  # which are reported only if the rows are folded
            publish(self.callbacks, event)
            if isinstance(event, DriftFound):
                self._drifts.append(
                    {
                        "rows_seen": event.n_rows,
                        "error": event.error,
                        "baseline": event.baseline,
                        "ratio": event.error / event.baseline if event.baseline else None,
                        "counts": list(event.counts),
                    }
                )
        self.state.fold = after
        self._enter(ready, before, changes, folded)
        return None

    def _enter(
        self,
        ready: Sequence[_Ready],
        before: StreamFold,
        changes: Sequence[tuple[int, StreamCentres]],
        folded: list[Folded],
    ) -> None:
        """Add objects to the ledger; OUT: folded: they, and the centres for the labels of their rows."""
        fold, first, known = self.state.fold, before.n_rows, before.fitted
        assert fold is not None
        for new, dataset in ready:
            arrival, (start, stop) = new.arrival, new.span
            last = first + stop - start
            inside = [(row, found) for row, found in changes if first < row < last]
            note = "late" if new.is_late else ""
            entry = Entry(
                arrival.name, arrival.version, start, stop, first, arrival.timestamp, note
            )
            self.state.ledger.append(entry)
            after = fold.twin().current if known is None else fold.current
            folded.append(Folded(new, dataset, entry, ((first, known), *inside), after))
            known = next((found for row, found in reversed(changes) if row <= last), known)
            first = last

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


class HealthCheck:
    """A callback that detects a stuck loop: events are signs of work.

    A long fold publishes an event per piece; a loop that waits for its next cycle publishes none.

    Parameters
    ----------
    patience : float
        Seconds without an event after which the loop counts as stuck.
    rest : float
        Seconds that the loop waits between two cycles; added to `patience`.
    clock : callable () -> float
        Monotonic seconds.

    Examples
    --------
    >>> seconds = iter([0.0, 40.0, 90.0, 200.0])
    >>> health_check = HealthCheck(60, rest=30, clock=lambda: next(seconds))
    >>> health_check(Event())
    >>> health_check.complaint() is None
    True
    >>> health_check.complaint()
    'no sign of work for 160 s; 90 s are allowed'
    """

    def __init__(
        self, patience: float, rest: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._allowed = patience + rest
        self._clock = clock
        self._last = clock()

    def __call__(self, event: Event) -> None:
        self._last = self._clock()

    def complaint(self) -> str | None:
        """Return a message if the loop is stuck, else None."""
        silence = self._clock() - self._last
        if silence <= self._allowed:
            return None
        return f"no sign of work for {silence:.0f} s; {self._allowed:.0f} s are allowed"


_GAUGES = {
    "rows_seen": "Number of rows folded.",
    "objects": "Number of entries in the ledger.",
    "remembered": "Weight of all rows after forgetting.",
    "n_clusters": "Number of clusters of the latest model.",
    "model_version": "Number of rows that the latest model has seen.",
    "seconds": "Duration of the last cycle in seconds.",
    "drift_error": "Mean squared distance of the last leaf to the centres before it.",
    "drift_baseline": "Mean error of earlier leaves.",
    "drift_ratio": "The error divided by its baseline.",
}


class StreamMetrics:
    """Serves the metrics of the last cycle at /metrics, and the health of the loop at /health.

    Parameters
    ----------
    health_check : HealthCheck
        Health check of the loop: /health answers 503 while it has a complaint, else 200.
    address : str
        Address to listen at.
    port : int
        0 takes a free one; see the attribute `port`.

    Raises
    ------
    MissingExtraError
        prometheus_client is not installed.
    EngineError
        The port is in use.
    """

    def __init__(
        self, health_check: HealthCheck, address: str = "127.0.0.1", port: int = 0
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as error:
            raise MissingExtraError(
                f"Metrics need prometheus_client. Remedy: {install_command('metrics')}."
            ) from error
        registry = CollectorRegistry()
        self._gauges: dict[str, Any] = {
            name: Gauge(f"daskcluster_stream_{name}", text, registry=registry)
            for name, text in _GAUGES.items()
        }
        self._updated: Any = Gauge(
            "daskcluster_stream_updated_seconds", "End time of the last cycle.", registry=registry
        )
        self._jumps: Any = Counter(
            "daskcluster_stream_drifts", "Number of drifts found.", registry=registry
        )
        self._odd: Any = Gauge(
            "daskcluster_stream_odd_objects",
            "Number of odd objects in the last cycle.",
            ["what"],
            registry=registry,
        )
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            raise EngineError(
                f"metrics cannot be served at {address}:{port} ({error}); choose another port."
            ) from error
        metrics = self._server.get_app()
        assert metrics is not None

        def answer(request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            if request["PATH_INFO"] != "/health":
                return metrics(request, start)
            complaint = health_check.complaint()
            status = "200 OK" if complaint is None else "503 Service Unavailable"
            start(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [(complaint or "ok").encode()]

        self._server.set_app(answer)
        self.port = int(self._server.server_port)

    def update(self, cycle: Cycle) -> None:
        """Set the metrics to those of a cycle."""
        figures = vars(cycle) | {f"drift_{name}": value for name, value in cycle.drift.items()}
        for name, gauge in self._gauges.items():
            gauge.set(float(figures.get(name) or 0.0))
        self._jumps.inc(len(cycle.drifts))
        for oddity in Oddity:
            count = sum(finding.oddity == oddity for finding in cycle.findings)
            self._odd.labels(str(oddity)).set(count)
        self._updated.set(time.time())

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
