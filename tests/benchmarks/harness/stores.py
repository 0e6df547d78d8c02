"""Stores on disk for comparisons, and reading them with zarr alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np


def write(path: Path, rows: np.ndarray, chunk_rows: int, codec: str = "zstd") -> str:
    """Write rows as a Zarr array with `chunk_rows` rows per chunk and one of `CODECS`; return its path."""
    import zarr

    path.parent.mkdir(parents=True, exist_ok=True)
    array = zarr.create_array(
        str(path),
        shape=rows.shape,
        chunks=(min(chunk_rows, len(rows)), rows.shape[1]),
        dtype=rows.dtype,
        overwrite=True,
        **_compressors(codec),
    )
    array[:] = rows
    return str(path)


CODECS = ("none", "zstd", "blosc-zstd")
"""No compression; the default of zarr; the codec of `daskcluster convert`."""


def _compressors(codec: str) -> Mapping[str, Any]:
    from zarr.codecs import BloscCodec

    blosc = BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle", typesize=4)
    known: dict[str, dict[str, Any]] = {
        "none": {"compressors": None},
        "zstd": {},
        "blosc-zstd": {"compressors": blosc},
    }
    return known[codec]


def read(path: Path | str, threads: int, passes: int = 1) -> int:
    """Read and decode every chunk `passes` times with zarr alone; return the number of rows read."""
    import zarr

    array = zarr.open_array(str(path), mode="r")
    step, n_rows = array.chunks[0], 0

    def decode(start: int) -> int:
        return len(np.asarray(array[start : start + step]))

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(passes):
            starts = range(0, array.shape[0], step)
            n_rows += sum(pool.map(decode, starts))
    return n_rows


def bytes_of(path: Path | str) -> int:
    """Return the total size of the files in a folder."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
