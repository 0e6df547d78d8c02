"""Conversion of a stream's state to plain values and arrays, and back to identical bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from daskcluster.methods.streaming.fold import Drift, FoldSettings, StreamFold
from daskcluster.methods.streaming.refit import StreamCentres
from daskcluster.methods.streaming.tree.tree import Node, StreamRows, joined_rows
from daskcluster.models.kmeans import KMeansModel
from daskcluster.sparse_rows import INDEX_DTYPE, Rows, SparseRows
from daskcluster.storage.document import (
    Document,
    read_count,
    read_mapping,
    read_number,
    read_records,
    read_text,
)

KIND = "stream"

_OF_A_NODE = ("level", "first", "stop", "oldest", "newest")

_READERS: dict[str, Callable[[Mapping[str, Any], str], Any]] = {
    "int": read_count,
    "float": read_number,
    "str": read_text,
}
"""Readers of the plain fields of centres, by type; other fields are arrays."""

Arrays = dict[str, np.ndarray]


def document_of(fold: StreamFold) -> Document:
    """Return the state as a document."""
    tree, body, arrays = fold.tree, dict[str, Any](), Arrays()
    body["clock"] = {
        "n_leaves": tree.n_leaves,
        "n_rows": tree.n_rows,
        "now": tree.now,
        "since": fold.since,
        "since_fresh": fold.since_fresh,
    }
    body["nodes"] = [
        {**{name: getattr(node, name) for name in _OF_A_NODE}, "n_rows": len(node.rows)}
        for node in tree.nodes
    ]
    body["nodes_rows"] = _pack("nodes", [node.rows for node in tree.nodes], arrays)
    _put(arrays, "nodes_weights", [node.weights for node in tree.nodes])
    tail = joined_rows(tree.tail) if tree.tail else None
    body["tail_rows"] = _pack("tail", [] if tail is None else [tail.rows], arrays)
    for name in ("weights", "ticks"):
        values = None if tail is None else getattr(tail, name)
        _put(arrays, f"tail_{name}", [] if values is None else [values])
    body["drift"] = fold.drift.body()
    _put(arrays, "drift_counts", [fold.drift.counts])
    body["history"] = fold.history
    if fold.fitted is not None:
        values = {each.name: getattr(fold.fitted, each.name) for each in fields(fold.fitted)}
        of_clusters = [name for name, value in values.items() if isinstance(value, np.ndarray)]
        arrays |= {f"fitted_{name}": values.pop(name) for name in of_clusters}
        body["fitted"] = values
    return Document(KIND, body, arrays)


def fold_of(
    document: Document, settings: FoldSettings, kind: type[StreamFold] = StreamFold
) -> StreamFold:
    """Return the state, of class `kind`, that `document` describes for a stream with `settings`.

    Raises
    ------
    ModelFormatError
        `document` is not the state of a stream.
    """
    body, arrays = document.body, document.arrays
    fold = kind.empty(settings)
    tree, clock = fold.tree, read_mapping(body, "clock")
    tree.n_leaves, tree.n_rows = read_count(clock, "n_leaves"), read_count(clock, "n_rows")
    tree.now, fold.since = read_number(clock, "now"), read_number(clock, "since")
    fold.since_fresh = read_number(clock, "since_fresh")
    rows = _unpack("nodes", read_mapping(body, "nodes_rows"), arrays, settings)
    tree.nodes = _nodes(read_records(body, "nodes"), rows, arrays)
    tail = _unpack("tail", read_mapping(body, "tail_rows"), arrays, settings)
    if len(tail):
        tree.tail = (StreamRows(tail, arrays.get("tail_weights"), arrays.get("tail_ticks")),)
    counts = arrays.get("drift_counts", np.empty(0))
    fold.drift = Drift.of(read_mapping(body, "drift"), counts)
    fold.history = list(read_records(body, "history"))
    if "fitted" in body:
        fold.fitted = _centres(settings.refit.finds, read_mapping(body, "fitted"), arrays)
    return fold


def _centres(kind: type[StreamCentres], values: Mapping[str, Any], arrays: Arrays) -> StreamCentres:
    given: dict[str, Any] = {}
    for each in fields(kind):
        reader = _READERS.get(str(each.type))
        given[each.name] = (
            arrays[f"fitted_{each.name}"] if reader is None else reader(values, each.name)
        )
    return kind(**given)


def _nodes(records: Sequence[Mapping[str, Any]], rows: Rows, arrays: Arrays) -> list[Node]:
    nodes, at = [], 0
    for record in records:
        stop = at + read_count(record, "n_rows")
        nodes.append(
            Node(
                read_count(record, "level"),
                read_count(record, "first"),
                read_count(record, "stop"),
                rows[at:stop],
                arrays["nodes_weights"][at:stop] if stop > at else np.empty(0),
                read_number(record, "oldest"),
                read_number(record, "newest"),
            )
        )
        at = stop
    return nodes


def _put(arrays: Arrays, name: str, parts: Sequence[np.ndarray]) -> None:
    """Store the concatenated parts as one array, unless it is empty: documents have no empty arrays."""
    if sum(map(len, parts)):
        arrays[name] = np.concatenate(parts)


def _pack(name: str, parts: Sequence[Rows], arrays: Arrays) -> dict[str, Any]:
    """Put rows into `arrays`; return the metadata for `_unpack`."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return {"n_rows": 0, "n_features": 1, "sparse": False}
    rows = joined_rows([StreamRows(part) for part in filled]).rows
    metadata = {"n_rows": len(rows), "n_features": int(rows.shape[1]), "sparse": False}
    if not isinstance(rows, SparseRows):
        arrays[f"{name}_rows"] = rows
        return metadata
    arrays[f"{name}_indptr"] = rows.offsets
    if len(rows.data):
        arrays |= {f"{name}_data": rows.data, f"{name}_indices": rows.indices.astype(np.int64)}
    return {**metadata, "sparse": True}


def _unpack(name: str, metadata: Mapping[str, Any], arrays: Arrays, settings: FoldSettings) -> Rows:
    n_features, dtype = read_count(metadata, "n_features"), settings.leaf.dtype
    if not read_count(metadata, "n_rows"):
        return np.empty((0, n_features), dtype)
    if not metadata["sparse"]:
        return arrays[f"{name}_rows"]
    data = arrays.get(f"{name}_data", np.empty(0, dtype))
    indices = arrays.get(f"{name}_indices", np.empty(0, np.int64)).astype(INDEX_DTYPE)
    return SparseRows(data, indices, arrays[f"{name}_indptr"], n_features)


def fold_of_model(model: KMeansModel, settings: FoldSettings) -> StreamFold:
    """Return a stream whose rows so far are the centres of `model`, with the weights of their clusters."""
    fold = StreamFold.empty(settings)
    kept = np.flatnonzero(model.weights > 0.0)
    fold.tree.nodes = [Node(0, 0, 1, model.centres[kept], model.weights[kept], 0.0, 0.0)]
    fold.tree.n_leaves, fold.tree.n_rows = 1, model.n_rows
    fold.history = list(model.history)
    fold.fitted = StreamCentres(
        model.centres,
        np.zeros(model.n_clusters, np.int64),
        model.weights,
        model.costs,
        model.sizes,
        model.n_rows,
        model.n_iter,
        model.stop_reason,
        model.seeding,
    )
    return fold
