"""Folding of new objects into the state, and labels of their rows, written next to the data.

The engine summarises several objects at a time. A row is labelled with the centres that were current when
it arrived: those of the last leaf before it. The first rows, which arrive before there are any centres, are
labelled with the centres of all rows up to the end of their object. Both depend on the stream alone, so
repeated writes give the same labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from daskcluster.chunk import Chunk, compute_dtype
from daskcluster.data.features import FeatureSpec
from daskcluster.data.recipes import for_metric
from daskcluster.data.writer import ZarrSink, write_rows_at
from daskcluster.engine.choose import choose_engine
from daskcluster.engine.engine import Engine
from daskcluster.engine.local import LocalEngine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.errors import InvalidDataError
from daskcluster.events import Callback, DriftFound, Event, publish
from daskcluster.methods.streaming.fold import StreamFold
from daskcluster.methods.streaming.refit import StreamCentres
from daskcluster.methods.streaming.service.ledger import Entry, Finding, New, Oddity, Source
from daskcluster.methods.streaming.service.state import StreamState
from daskcluster.methods.streaming.streams import Learner
from daskcluster.methods.streaming.tree.pieces import (
    UNREADABLE,
    Bad,
    OpenPart,
    fold_dataset,
    sum_up,
)
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import Location
from daskcluster.typing import Dataset, Range, Visibility

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


@dataclass
class Wave:
    """Objects that are folded and committed together.

    Attributes
    ----------
    folded : list of Folded
    findings : list of Finding
        Objects that turned out to be unreadable.
    is_stopped : bool
        Part of a growing object could not be read, and later rows must wait for it.
    """

    folded: list[Folded] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    is_stopped: bool = False


class _Ready(NamedTuple):
    """An open object."""

    new: New
    dataset: Dataset


class _DriftLater:
    """Passes events on, but holds `DriftFound` events back until their rows are folded."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self._kept: list[DriftFound] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, DriftFound):
            self._kept.append(event)
        else:
            publish(self._callbacks, event)

    def rows_count(self) -> None:
        for event in self._kept:
            publish(self._callbacks, event)


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


def fold_wave(
    state: StreamState,
    wanted: Sequence[New],
    source: Source,
    learner: Learner,
    engine: Any,
    callbacks: Sequence[Callback] = (),
) -> Wave:
    """Fold objects into `state`, in order; unreadable ones are recorded in the ledger as rejected.

    Parameters
    ----------
    state : StreamState
        IN/OUT.
    wanted : sequence of New
    source : Source
    learner : Learner
    engine : object
        As in `daskcluster.engine.choose.choose_engine`.
    callbacks : sequence of callables

    Notes
    -----
    Cost: rows are read once; the rows of a wave once more for each unreadable object in it.
    """
    wave = Wave()
    left = _opened(wanted, source, state, learner, wave)
    while left and not wave.is_stopped:
        assert state.fold is not None
        chosen = choose_engine(engine, left[0].dataset)
        if not all(chosen.can_read(each.dataset) for each in left):
            chosen = LocalEngine()
        # Before there are centres, labels of an object need the state at its end.
        alone = len(left) == 1 or state.fold.fitted is None or left[0].new.arrival.grows
        if alone:
            _fold_one(left.pop(0), state, wave, chosen, callbacks)
        else:
            left = _fold_some(left, state, wave, chosen, callbacks)
    return wave


def _fold_one(
    ready: _Ready, state: StreamState, wave: Wave, engine: Engine, callbacks: Sequence[Callback]
) -> None:
    """Fold one object of any size, a few pieces at a time."""
    before, watcher = state.fold, _DriftLater(callbacks)
    assert before is not None
    try:
        after = fold_dataset(
            before, ready.dataset, engine, [watcher], _stamp(before, ready.new), ready.new.span
        )
    except UNREADABLE as error:
        _reject(ready.new, str(error), state, wave)
        return
    watcher.rows_count()
    state.fold = after
    changes = [(found.n_rows, found) for found in after.take_found()]
    _enter([ready], state, wave, before, changes)


def _fold_some(
    ready: list[_Ready],
    state: StreamState,
    wave: Wave,
    engine: Engine,
    callbacks: Sequence[Callback],
) -> list[_Ready]:
    """Fold objects; if some cannot be read, reject these and return the others, which are not folded."""
    before, bad = state.fold, dict[int, str]()
    assert before is not None
    parts = [OpenPart(each.dataset, each.new.span, _stamp(before, each.new)) for each in ready]
    after, changes = before.twin(), list[tuple[int, StreamCentres]]()
    watcher = _DriftLater(callbacks)
    with closing(sum_up(parts, before, engine, callbacks)) as found:
        for each in found:
            if isinstance(each, Bad):
                bad[each.number] = each.why
            elif not bad:
                after.add_piece(each, [watcher])
                changes += [(new.n_rows, new) for new in after.take_found()]
    if bad:
        for number, why in bad.items():
            _reject(ready[number].new, why, state, wave)
        return [each for number, each in enumerate(ready) if number not in bad]
    watcher.rows_count()
    state.fold = after
    _enter(ready, state, wave, before, changes)
    return []


def _enter(
    ready: Sequence[_Ready],
    state: StreamState,
    wave: Wave,
    before: StreamFold,
    changes: Sequence[tuple[int, StreamCentres]],
) -> None:
    """Add folded objects to the ledger and to the wave, with the centres for the labels of their rows."""
    fold, first, known = state.fold, before.n_rows, before.fitted
    assert fold is not None
    for each in ready:
        arrival, (start, stop) = each.new.arrival, each.new.span
        last = first + stop - start
        inside = [(row, found) for row, found in changes if first < row < last]
        note = "late" if each.new.is_late else ""
        entry = Entry(arrival.name, arrival.version, start, stop, first, arrival.timestamp, note)
        state.ledger.append(entry)
        after = fold.twin().current if known is None else fold.current
        wave.folded.append(Folded(each.new, each.dataset, entry, ((first, known), *inside), after))
        known = next((found for row, found in reversed(changes) if row <= last), known)
        first = last


def _opened(
    wanted: Sequence[New],
    source: Source,
    state: StreamState,
    learner: Learner,
    wave: Wave,
) -> list[_Ready]:
    ready = []
    for new in wanted:
        try:
            dataset = _checked(source.open(new.arrival, new.span), new, state)
            dataset = for_metric(dataset, learner.metric)
        except UNREADABLE as error:
            _reject(new, str(error), state, wave)
            continue
        learner.check_rows(dataset)
        if state.fold is None:
            dtype = compute_dtype(dataset.dtype).name
            state.fold = learner.empty(dtype, state.seed)
            known = FeatureSpec.of(dataset)
            state.n_features, state.feature_names = known.n_features, known.names
            state.decoded = known.decoded
        ready.append(_Ready(new, dataset))
    return ready


def _checked(dataset: Dataset, new: New, state: StreamState) -> Dataset:
    """Return the rows of an object with the features of the stream, in its order."""
    if dataset.n_rows < new.span[1]:
        raise InvalidDataError(
            f"{new.arrival.name!r} has {dataset.n_rows} rows, expected {new.span[1]}; write it again."
        )
    if state.fold is None:
        return dataset
    has_names = state.feature_names is not None and getattr(dataset, "feature_names", None)
    if not has_names and dataset.n_features != state.n_features:
        raise InvalidDataError(
            f"{new.arrival.name!r} has {dataset.n_features} features, the stream has {state.n_features}; "
            "remove it from the source, or start another stream."
        )
    names, decoded = state.feature_names, state.decoded
    known = FeatureSpec(state.n_features, names, decoded=decoded, owner="the stream")
    found: Dataset = known.align(dataset)
    return found


def _stamp(fold: StreamFold, new: New) -> float | None:
    return new.arrival.timestamp if fold.settings.leaf.forgetting.by_time else None


def _reject(new: New, why: str, state: StreamState, wave: Wave) -> None:
    name = new.arrival.name
    wave.findings.append(Finding(Oddity.CORRUPT, name, f"{name!r} is not folded: {why}"))
    if new.arrival.grows:
        wave.is_stopped = True  # its folded rows stay folded; the next cycle retries
        return
    note, seen = f"rejected: {why}"[:500], state.rows_seen
    state.ledger.append(Entry(name, new.arrival.version, 0, 0, seen, new.arrival.timestamp, note))


NEAREST = np.dtype([("label", np.int32), ("distance", np.float64)])


@dataclass(frozen=True)
class Spell:
    """The centres that label the rows of a dataset from `start` on, up to the next spell.

    Attributes
    ----------
    start : int
    centres : StreamCentres
    """

    start: int
    centres: StreamCentres


@dataclass(frozen=True)
class SpellParams:
    """The spells of a dataset, in order."""

    spells: tuple[Spell, ...]


def label_spells(chunk: Chunk, params: SpellParams) -> np.ndarray:
    """Return the label and the distance of every row of a chunk."""
    found = np.empty(chunk.n_rows, NEAREST)
    stops = [*(spell.start for spell in params.spells[1:]), chunk.stop]
    for spell, stop in zip(params.spells, stops, strict=True):
        first, last = max(spell.start, chunk.start), min(stop, chunk.stop)
        if first >= last:
            continue
        place = slice(first - chunk.start, last - chunk.start)
        part = chunk.slice(place.start, place.stop)
        rows = part.rows
        dtype = spell.centres.centres.dtype
        if rows.dtype != dtype:
            rows = rows.astype(dtype)
        if not isinstance(rows, SparseRows):
            rows = np.ascontiguousarray(rows)
        labels, distances = spell.centres.nearest(replace(part, rows=rows))
        found["label"][place] = labels
        found["distance"][place] = np.sqrt(distances)
    return found


@dataclass(frozen=True)
class FieldSinks:
    """A sink that writes each field of its values, labels or distances, to a place of its own."""

    sinks: Mapping[str, ZarrSink]

    @property
    def block_rows(self) -> int:
        return self.sinks["label"].block_rows

    @property
    def visibility(self) -> Visibility:
        return self.sinks["label"].visibility

    def has(self, span: Range) -> bool:
        """Return whether all sinks already have these rows."""
        return all(sink.has(span) for sink in self.sinks.values())

    def write(self, start: int, values: np.ndarray) -> None:
        """Write the rows from `start` on."""
        for name, sink in self.sinks.items():
            sink.write(start, np.ascontiguousarray(values[name]))


def write_labels(folded: Folded, places: Mapping[str, Location], engine: Engine) -> bool:
    """Write the labels of an object; return False if there are no centres yet.

    Parameters
    ----------
    folded : Folded
    places : mapping of str to Location
        Where to write the fields of `NEAREST`: ``"label"`` and, if wanted, ``"distance"``. An array, if the
        source is one array; otherwise a folder with an array per object, named after it.
    engine : Engine

    Notes
    -----
    Cost: one pass over the new rows.
    """
    dataset, shift = folded.dataset, folded.new.span[0] - folded.entry.first
    spells: list[Spell] = []
    for row, known in folded.centres:
        centres = folded.after() if known is None else known
        if centres is None:
            return False
        spells.append(Spell(row + shift, centres))
    params, chunk_rows = SpellParams(tuple(spells)), max(dataset.chunk_sizes)
    if folded.new.arrival.grows:
        for chunk in dataset.chunks([folded.new.span]):
            found = label_spells(chunk, params)
            for field, place in places.items():
                values = np.ascontiguousarray(found[field])
                write_rows_at(place, chunk.start, values, chunk_rows)
        return True
    name = folded.new.arrival.name
    with ExitStack() as written:
        sinks = {
            field: written.enter_context(
                ZarrSink.create(
                    place.child(name if name.endswith(".zarr") else f"{name}.zarr").url,
                    n_rows=dataset.n_rows,
                    chunk_rows=chunk_rows,
                    dtype=NEAREST[field],
                    overwrite=True,
                    storage_options=place.storage_options() or None,
                ).transaction()
            )
            for field, place in places.items()
        }
        placement = written.enter_context(engine.place(dataset, footprint=ONE_PASS))
        placement.map_rows(label_spells, FieldSinks(sinks), params, name="labels")
    return True
