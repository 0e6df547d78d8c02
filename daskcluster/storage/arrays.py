"""Arrays in the plainest layout of Zarr v3: little-endian bytes, chunks of whole rows, no codec.

Any Zarr v3 library reads it. Nothing else is read: codecs named in a file are never loaded, and sizes in
metadata are checked against the files. See the Zarr core specification, version 3, sections "Array
metadata", "bytes codec" and "default chunk keys".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskcluster.errors import MemoryLimitError, ModelFormatError
from daskcluster.host import format_bytes, host_memory
from daskcluster.storage.files import file_size, read_at_most
from daskcluster.storage.location import Location
from daskcluster.storage.zarr_stores import HEAD

CHUNK_BYTES = 1 << 26
MAX_BYTES = 1 << 36
"""No model holds an array larger than this (64 GiB)."""
_METADATA_BYTES = 1 << 16
_DTYPES = ("float32", "float64", "int64")


@dataclass(frozen=True)
class ArraySpec:
    """Description of one array in a model's document."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str

    @classmethod
    def of(cls, name: str, values: np.ndarray) -> ArraySpec:
        """Describe `values`, which must be float32, float64 or int64, of one to three dimensions."""
        shape = tuple(int(length) for length in values.shape)
        return cls(name, shape, values.dtype.name, _digest(values))

    @classmethod
    def parse(cls, name: str, entry: Any) -> ArraySpec:
        """Parse and check a description from a file."""
        if not isinstance(entry, dict):
            raise _damaged(name, "has no description")
        shape, dtype, digest = entry.get("shape"), entry.get("dtype"), entry.get("sha256")
        if not (isinstance(shape, list) and 1 <= len(shape) <= 3 and all(map(_is_length, shape))):
            raise _damaged(name, "has no valid shape")
        if dtype not in _DTYPES:
            raise _damaged(name, f"has none of the dtypes {', '.join(_DTYPES)}")
        if not isinstance(digest, str):
            raise _damaged(name, "has no checksum")
        spec = cls(name, tuple(shape), dtype, digest)
        if spec.n_bytes > MAX_BYTES:
            raise _damaged(name, f"claims {spec.n_bytes} bytes, more than {MAX_BYTES}")
        return spec

    def entry(self) -> dict[str, Any]:
        """Return the description as plain JSON values."""
        return {"shape": list(self.shape), "dtype": self.dtype, "sha256": self.sha256}

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        row_bytes = max(1, self.n_bytes // self.shape[0])
        return (min(self.shape[0], max(1, CHUNK_BYTES // row_bytes)), *self.shape[1:])

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the content of the array's ``zarr.json``."""
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": list(self.chunk_shape)},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0 if self.dtype == "int64" else 0.0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
        }

    def chunks(self) -> Iterator[tuple[str, int, int]]:
        """Yield the file name and the rows (first, last) of every chunk."""
        step, suffix = self.chunk_shape[0], "/0" * (len(self.shape) - 1)
        for number, first in enumerate(range(0, self.shape[0], step)):
            name = f"{self.name}/c/{number}{suffix}"
            yield name, first, min(first + step, self.shape[0])


def encode(spec: ArraySpec, values: np.ndarray) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an array."""
    for name, first, last in spec.chunks():
        chunk = np.zeros(spec.chunk_shape, np.dtype(spec.dtype).newbyteorder("<"))
        # The last chunk is padded: Zarr chunks have a fixed size.
        chunk[: last - first] = values[first:last]
        yield name, chunk.tobytes()
    yield f"{spec.name}/{HEAD}", json.dumps(spec.metadata, indent=1).encode()


def decode(place: Location, spec: ArraySpec) -> np.ndarray:
    """Read an array back and check it.

    Raises
    ------
    ModelFormatError
        A file is missing, has the wrong size for the shape, or fails its checksum.
    MemoryLimitError
        The array takes more than half of this host's memory.
    """
    content = read_at_most(place, f"{spec.name}/{HEAD}", _METADATA_BYTES)
    try:
        metadata = json.loads(content)
    except (ValueError, RecursionError):
        metadata = None
    if metadata != spec.metadata:
        raise _damaged(spec.name, "has a zarr.json that does not match the model's document")
    # Check file sizes before allocating anything, so that metadata alone cannot exhaust memory.
    chunk_bytes = math.prod(spec.chunk_shape) * np.dtype(spec.dtype).itemsize
    for name, _, _ in spec.chunks():
        if file_size(place, name) != chunk_bytes:
            raise _damaged(spec.name, f"has a chunk {name} of {file_size(place, name)} bytes")
    # A sparse file can claim any size without taking room on the disk.
    allowed = host_memory() // 2
    if spec.n_bytes > allowed:
        raise MemoryLimitError(
            f"the model's array {spec.name!r} takes {format_bytes(spec.n_bytes)}, more than half of this "
            f"host's memory ({format_bytes(allowed)}); load it on a larger host."
        )
    values = np.empty(spec.shape, spec.dtype)
    for name, first, last in spec.chunks():
        content = read_at_most(place, name, chunk_bytes)
        if len(content) != chunk_bytes:
            raise _damaged(spec.name, f"has a chunk {name} of another size")
        stored = np.frombuffer(content, np.dtype(spec.dtype).newbyteorder("<"))
        values[first:last] = stored.reshape(spec.chunk_shape)[: last - first]
    if _digest(values) != spec.sha256:
        raise _damaged(spec.name, "fails its checksum")
    return values


def _digest(values: np.ndarray) -> str:
    plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return hashlib.sha256(plain.reshape(-1).view(np.uint8).data).hexdigest()


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**48


def _damaged(name: str, what: str) -> ModelFormatError:
    return ModelFormatError(
        f"the model is damaged: array {name!r} {what}; save the model again or restore a copy."
    )
