"""A few hexadecimal digits of all that a result depends on: equal for calls that give the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from daskcluster.estimators.checkpoints import data_facts
from daskcluster.models.versions import created_with
from daskcluster.typing import Dataset


def fingerprint_of_rows(dataset: Dataset, *values: Any) -> str:
    """Return the fingerprint of what is computed of all rows of `dataset` from `values`.

    Rows are told apart by their number, type, ends, and largest chunk. Cost: a look at the ends.
    """
    chunk_rows = max(dataset.chunk_sizes)
    return fingerprint(
        created_with()["daskcluster"], data_facts(dataset), dataset.normalize, chunk_rows, *values
    )


def fingerprint(*values: Any) -> str:
    """Return 16 hexadecimal digits of plain values, arrays, functions by name, and dataclasses of these.

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
        digest.update(f"{len(part)}:".encode())  # no two lists of values look alike
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
