"""Fingerprints: digests of plain values, arrays, functions and dataclasses, the same in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

NO_MATTER: dict[str, Any] = {"fingerprint": False}
"""Metadata for fields of dataclasses on which no result depends: they are not part of a fingerprint."""


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
            if field.metadata.get("fingerprint", True):
                yield from _parts(getattr(value, field.name))
    elif isinstance(value, partial):
        yield from _parts((value.func, value.args, value.keywords))
    elif callable(value):
        yield f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}".encode()
    else:
        yield repr(value).encode()
