"""The header of a checkpoint: cost so far, data statistics, and the fingerprint of the fit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from daskcluster.chunkwise.statistics import DataStatistics
from daskcluster.errors import CheckpointError, ModelFormatError
from daskcluster.estimators.checkpoints import data_identity
from daskcluster.models.fitted import created_with
from daskcluster.storage.document import Document, read_mapping
from daskcluster.storage.state import Shapes, document_of, state_of, stored_as
from daskcluster.typing import Dataset

S = TypeVar("S")

_HEADER, _STATE = "frame", "state"
"""The two parts of a document: keys of the body, and prefixes of the arrays' names."""


@dataclass(frozen=True)
class Spent:
    """Seed, seeding and costs of a fit so far.

    Attributes
    ----------
    seed : int
    method : str
        Method that chose the first centres.
    passes, bytes_read : int
    seconds : float
    """

    seed: int
    method: str
    passes: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class CheckpointHeader:
    """The part of a checkpoint that is common to all algorithms.

    Attributes
    ----------
    spent : Spent
    data_statistics : DataStatistics or None
        Data statistics of the first pass, once it is done; the grids of later sums depend on them.
    """

    spent: Spent
    data_statistics: DataStatistics | None = field(default=None, metadata=stored_as("survey"))

    def around(self, state: Any) -> Document:
        """Return the document of a state (a dataclass) with this header."""
        header, inner = document_of(self), document_of(state)
        arrays = {
            f"{part}_{name}": values
            for part, document in ((_HEADER, header), (_STATE, inner))
            for name, values in document.arrays.items()
        }
        return Document(inner.kind, {_HEADER: header.body, _STATE: inner.body}, arrays)


@dataclass(frozen=True)
class Framed:
    """A document made by `CheckpointHeader.around`.

    Parameters
    ----------
    document : Document
    where : str
        Its URL, for errors.
    """

    document: Document
    where: str

    def header(self, n_features: int) -> CheckpointHeader:
        """Return the header of a fit of rows with `n_features` features."""
        names = ("origin", "max_abs", "sums")
        return self._part(
            _HEADER, CheckpointHeader, {f"survey_{name}": (n_features,) for name in names}
        )

    def state(
        self, kind: type[S], shapes: Shapes, check: Callable[[S], None] = lambda state: None
    ) -> S:
        """Return the state, checked by `check`; see `daskcluster.storage.state.state_of`."""
        state = self._part(_STATE, kind, shapes)
        try:
            check(state)
        except ModelFormatError as error:
            raise unfit(self.where, error) from error
        return state

    def _part(self, part: str, kind: type[S], shapes: Shapes) -> S:
        found = self.document
        arrays = {
            name.removeprefix(f"{part}_"): values
            for name, values in found.arrays.items()
            if name.startswith(f"{part}_")
        }
        name = found.kind if part == _STATE else kind.__name__
        try:
            return state_of(kind, Document(name, read_mapping(found.body, part), arrays), shapes)
        except ModelFormatError as error:
            raise unfit(self.where, error) from error


def unfit(where: str, error: ModelFormatError) -> CheckpointError:
    """Return the error for a document that is undamaged but not a state of this kind of fit."""
    return CheckpointError(
        f"Cannot resume from the checkpoint at {where!r}: {error} Remove it, or fit without resume."
    )


def fingerprint_of_rows(dataset: Dataset, *values: Any) -> str:
    """Return the fingerprint of a result that depends on all rows of `dataset` and on `values`.

    Rows are identified by their number, dtype, first and last values, and largest chunk.
    """
    chunk_rows = max(dataset.chunk_sizes)
    return fingerprint(
        created_with()["daskcluster"],
        data_identity(dataset),
        dataset.normalize,
        chunk_rows,
        *values,
    )


def fingerprint(*values: Any) -> str:
    """Return a digest (16 hexadecimal digits) of plain values, arrays, functions (by name) and dataclasses.

    Examples
    --------
    >>> import numpy as np
    >>> fingerprint(np.zeros(2), "a") == fingerprint(np.zeros(2), "a")
    True
    >>> fingerprint(np.zeros(2), "a") == fingerprint(np.zeros(2, np.float32), "a")
    False
    """
    digest = hashlib.sha256()
    for part in _parts(values):
        digest.update(f"{len(part)}:".encode())  # lengths keep different lists of values apart
        digest.update(part)
    return digest.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, (tuple, list)):
        yield f"{len(value)} values".encode()
        for entry in value:
            yield from _parts(entry)
    elif isinstance(value, Mapping):
        yield from _parts(sorted(value.items()))
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif callable(value):
        yield f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}".encode()
    else:
        yield repr(value).encode()
