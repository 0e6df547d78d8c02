"""Labels and distances of new rows, written next to the data.

A row is labelled with the centres that were current when it arrived: those of the last leaf before it. The
first rows, which arrive before there are any centres, are labelled with the centres of all rows up to the
end of their object. Both depend on the stream alone, so repeated writes give the same labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from daskcluster.chunk import Chunk
from daskcluster.data.sink import ZarrSink
from daskcluster.data.writer import write_rows_at
from daskcluster.engine.engine import Engine
from daskcluster.engine.memory import ONE_PASS
from daskcluster.methods.streaming.refit import StreamCentres
from daskcluster.methods.streaming.service.folding import Folded
from daskcluster.sparse_rows import SparseRows
from daskcluster.storage.location import Location
from daskcluster.typing import Range, Visibility

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
        for field, sink in self.sinks.items():
            sink.write(start, np.ascontiguousarray(values[field]))


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
