"""Outputs of a shuffle: rows, their weights and the permutation, each written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.data.dataset import refuse_replacing
from daskcluster.data.shuffle_plan import ShufflePlan, SparseShufflePlan
from daskcluster.data.sparse_zarr import CsrWriter
from daskcluster.data.writer import RowWriter, StagedArray, array_metadata
from daskcluster.errors import InvalidParameterError
from daskcluster.sparse_rows import Rows
from daskcluster.storage.location import locate
from daskcluster.storage.staging import Staging, check_free
from daskcluster.storage.zarr_stores import group_document
from daskcluster.typing import Dataset

ROWS, WEIGHTS = "X", "weights"
"""Names in the group of weighted rows."""
_KINDS = ("array", "group")

Piece = tuple[Rows, np.ndarray | None, np.ndarray | None]
"""Rows (m, d), dense or CSR, their weights (m,) and their source rows (m,), in the order of the output."""


def check_outputs(
    output: Any,
    index: Any,
    dataset: Dataset,
    *,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
) -> None:
    """Refuse outputs that exist, that hold the source, or each other; nothing is touched.

    Raises
    ------
    InvalidParameterError, OutputExistsError
    """
    places = {"output": locate(output, storage_options)}
    if index is not None:
        places["with_index"] = locate(index, storage_options)
        one, other = places.values()
        if one.holds(other) or other.holds(one):
            raise InvalidParameterError(
                f"output={one.url!r} and with_index={other.url!r} should be separate; write them next to "
                "each other."
            )
    refuse_replacing(dataset, **places)
    for name, place in places.items():
        kinds = _KINDS if name == "output" else _KINDS[:1]
        check_free(place.url, overwrite=overwrite, storage_options=storage_options, kinds=kinds)


@dataclass(frozen=True)
class ShuffleOutputs:
    """The arrays under way.

    Attributes
    ----------
    rows : StagedArray or CsrWriter
    weights, index : StagedArray or None
    """

    rows: StagedArray | CsrWriter
    weights: StagedArray | None
    index: StagedArray | None

    def write(self, pieces: Iterable[Piece], on_written: Callable[[int], None]) -> None:
        """Write pieces in the order in which they come; memory is about five blocks."""
        with ExitStack() as stack:
            writers = [
                None if part is None else stack.enter_context(_writer(part))
                for part in (self.rows, self.weights, self.index)
            ]
            for piece in pieces:
                for writer, values in zip(writers, piece, strict=True):
                    if writer is not None and values is not None:
                        writer.append(values)
                on_written(len(piece[0]))

    def documents(self, seed: int) -> dict[str, bytes]:
        """Return the metadata of the rows and of their weights, by path."""
        rows = self.rows.documents() if isinstance(self.rows, CsrWriter) else self.rows.document()
        if self.weights is None:
            return rows
        group = group_document(_attributes(seed))
        # The group last: until it is there, nothing is found at the URL.
        return rows | self.weights.document() | group


def _writer(part: StagedArray | CsrWriter) -> Any:
    return part if isinstance(part, CsrWriter) else RowWriter(part)


@contextmanager
def shuffle_outputs(
    output: Any,
    index: Any,
    plan: ShufflePlan,
    seed: int,
    *,
    overwrite: bool,
    storage_options: Mapping[str, Any] | None,
) -> Iterator[ShuffleOutputs]:
    """Begin the outputs of a plan; commit them at the end of the block, or abort if it raises.

    Raises
    ------
    OutputExistsError
        Something is there, and `overwrite` is False or it is no Zarr array or group.
    """
    options: dict[str, Any] = {"overwrite": overwrite, "storage_options": storage_options}
    with ExitStack() as started:
        rows = started.enter_context(Staging.begin(output, kinds=_KINDS, **options))
        shape, places = (plan.n_rows,), None
        if index is not None:
            places = started.enter_context(Staging.begin(index, **options))
        outputs = ShuffleOutputs(
            _staged_rows(rows, plan, seed),
            _staged(rows, WEIGHTS, shape, float, plan, seed) if plan.weighted else None,
            None if places is None else _staged(places, "", shape, np.int64, plan, seed),
        )
        yield outputs
        # The rows last: who sees them finds the index too.
        if places is not None and outputs.index is not None:
            places.commit(outputs.index.document())
        rows.commit(outputs.documents(seed))


def _attributes(seed: int) -> dict[str, Any]:
    return {"shuffled": {"random_state": seed}}


def _staged_rows(staging: Staging, plan: ShufflePlan, seed: int) -> StagedArray | CsrWriter:
    name = ROWS if plan.weighted else ""
    if isinstance(plan, SparseShufflePlan):
        return CsrWriter(staging, name, plan.rows, attributes=_attributes(seed))
    return _staged(staging, name, (plan.n_rows, plan.n_features), plan.dtype, plan, seed)


def _staged(
    staging: Staging, name: str, shape: tuple[int, ...], dtype: Any, plan: ShufflePlan, seed: int
) -> StagedArray:
    chunk_rows = plan.chunk_rows if len(shape) == 2 else plan.vector_chunk_rows
    metadata = array_metadata(
        shape, chunk_rows, dtype, shard_rows=plan.shard_rows, attributes=_attributes(seed)
    )
    return StagedArray(staging.work, name, metadata, plan.shard_rows or chunk_rows)
