"""Sources for the tests of streams, and comparisons of states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from daskcluster import jobs
from daskcluster.methods.streaming.fold import document_of
from daskcluster.methods.streaming.service import StreamLoop

OPTIONS: dict[str, Any] = {"n_clusters": 4, "coreset_size": 120, "random_state": 1}
"""Parameters for leaves of about a thousand rows."""


def portion(number: int, rows: int = 700) -> np.ndarray:
    """Return rows of four clusters; each number gives different rows."""
    rng = np.random.default_rng(number)
    centres = 9.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]])
    found = centres[rng.integers(0, 4, rows)] + rng.normal(size=(rows, 3))
    return found.astype(np.float32)


def put(folder: Path, number: int, rows: np.ndarray | None = None, **attributes: Any) -> Path:
    """Write one object of a prefix; return its path."""
    found = portion(number) if rows is None else rows
    path = folder / f"part-{number:04d}.zarr"
    array = zarr.create_array(
        str(path), shape=found.shape, chunks=(300, found.shape[1]), dtype=found.dtype
    )
    array[:] = found
    array.attrs.update(attributes)
    return path


def open_loop(source: Any, state: Any, **more: Any) -> StreamLoop:
    return jobs.open_stream(str(source), state=str(state), **{**OPTIONS, **more})


def bits(loop: StreamLoop) -> dict[str, Any]:
    """Return everything that has to be the same however a stream is folded."""
    state = loop.state
    assert state.fold is not None
    document = document_of(state.fold)
    found = state.fold.current()
    return {
        "body": document.body,
        "arrays": {name: values.tobytes() for name, values in document.arrays.items()},
        "model": None if found is None else found.centres.tobytes(),
        "version": state.version,
        "names": sorted((e.name, e.start, e.stop, e.note) for e in state.ledger.entries),
    }


def order_of(loop: StreamLoop) -> Sequence[str]:
    return [entry.name for entry in loop.state.ledger.entries]
