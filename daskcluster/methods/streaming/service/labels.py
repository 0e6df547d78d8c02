"""Labels and distances of new rows, written next to the data.

A row is labelled with the centres that were current when it arrived: those of the last leaf before it. The
first rows, which arrive before there are any centres, are labelled with the centres of all rows up to the
end of their object. Both depend on the stream alone, so repeated writes give the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

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
class TwoSinks:
    """A sink that writes labels and distances to two places."""

    labels: ZarrSink
    distances: ZarrSink | None

    @property
    def block_rows(self) -> int:
        return self.labels.block_rows

    @property
    def visibility(self) -> Visibility:
        return self.labels.visibility

    def has(self, span: Range) -> bool:
        """Return whether both sinks already have these rows."""
        return self.labels.has(span) and (self.distances is None or self.distances.has(span))

    def write(self, start: int, values: np.ndarray) -> None:
        """Write the rows from `start` on."""
        self.labels.write(start, np.ascontiguousarray(values["label"]))
        if self.distances is not None:
            self.distances.write(start, np.ascontiguousarray(values["distance"]))


@dataclass(frozen=True)
class LabelWriter:
    """Writes the labels of objects.

    Attributes
    ----------
    labels : Location
        An array, if the source is one array; otherwise a folder with an array per object, named after it.
    distances : Location or None
        The same for distances, float64.
    """

    labels: Location
    distances: Location | None

    def write(self, folded: Folded, engine: Engine) -> bool:
        """Write the labels of an object; return False if there are no centres yet.

        Notes
        -----
        Cost: one pass over the new rows.
        """
        spells = _spells(folded)
        if spells is None:
            return False
        params = SpellParams(spells)
        if folded.new.arrival.grows:
            self._append(folded, params)
        else:
            self._whole(folded, params, engine)
        return True

    def _append(self, folded: Folded, params: SpellParams) -> None:
        chunk_rows = max(folded.dataset.chunk_sizes)
        for chunk in folded.dataset.chunks([folded.new.span]):
            found = label_spells(chunk, params)
            for place, field in ((self.labels, "label"), (self.distances, "distance")):
                if place is not None:
                    values = np.ascontiguousarray(found[field])
                    write_rows_at(place, chunk.start, values, chunk_rows)

    def _whole(self, folded: Folded, params: SpellParams, engine: Engine) -> None:
        name, dataset = _file_name(folded.new.arrival.name), folded.dataset

        def sink(place: Location, dtype: Any) -> ZarrSink:
            return ZarrSink.create(
                place.child(name).url,
                n_rows=dataset.n_rows,
                chunk_rows=max(dataset.chunk_sizes),
                dtype=dtype,
                overwrite=True,
                storage_options=place.storage_options() or None,
            )

        labels = sink(self.labels, np.int32)
        distances = None if self.distances is None else sink(self.distances, np.float64)
        sinks = [labels] if distances is None else [labels, distances]
        try:
            with engine.place(dataset, footprint=ONE_PASS) as placement:
                placement.map_rows(label_spells, TwoSinks(labels, distances), params, name="labels")
            for each in sinks:
                each.commit()
        except BaseException:
            for each in sinks:
                each.abort()
            raise


def _spells(folded: Folded) -> tuple[Spell, ...] | None:
    """Return the spells of an object, with row numbers of its dataset; None if there are no centres."""
    shift = folded.new.span[0] - folded.entry.first
    found: list[Spell] = []
    for row, centres in folded.centres:
        if centres is None:
            centres = folded.after()
            if centres is None:
                return None
        found.append(Spell(row + shift, centres))
    return tuple(found)


def _file_name(name: str) -> str:
    """Return the name of the Zarr array with the labels of an object of any kind."""
    return name if name.endswith(".zarr") else f"{name}.zarr"
