"""Rows on disk for out-of-core fits: a mixture of Gaussians, cluster after cluster or in random order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskcluster.data.generate import Mixture
from tests.benchmarks.harness.race import say


@dataclass(frozen=True)
class ArrivingMixture(Mixture):
    """The rows of a mixture, one cluster after the other."""

    n_rows: int = 1

    def labels(self, start: int, stop: int) -> np.ndarray:
        return (np.arange(start, stop) * self.n_clusters // self.n_rows).astype(np.int32)


@dataclass(frozen=True)
class Layout:
    """Number of rows and their storage layout.

    Attributes
    ----------
    n_rows, n_features, n_sources : int
        `n_sources` Gaussians, as many rows of each.
    chunk_rows, shard_rows : int
        What is read at once; what is a file.
    """

    n_rows: int
    n_features: int
    n_sources: int
    chunk_rows: int
    shard_rows: int

    @property
    def n_bytes(self) -> int:
        return self.n_rows * self.n_features * 4

    def mixture(self, order: str) -> Mixture:
        if order == "random":
            return Mixture(self.n_features, self.n_sources)
        return ArrivingMixture(self.n_features, self.n_sources, n_rows=self.n_rows)

    def name(self, order: str) -> str:
        shape = f"{self.n_rows}x{self.n_features}-{self.n_sources}"
        return f"{shape}-{self.chunk_rows}-{self.shard_rows}-{order}.zarr"


def prepare(folder: Path, layout: Layout, orders: Sequence[str], threads: int) -> list[Path]:
    """Write missing rows; return the path of each order.

    Raises
    ------
    OSError
        The disk is too small.
    """
    paths = [folder / layout.name(order) for order in orders]
    needed = layout.n_bytes * sum(not path.exists() for path in paths)
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(
            f"{folder} has {free / 1e9:.1f} GB free, and the rows take {needed / 1e9:.1f} GB; "
            "give another folder with --scratch."
        )
    for path, order in zip(paths, orders, strict=True):
        say(f"  {path.name}: {'is there' if path.exists() else 'is being written'}")
        if not path.exists():
            _write(path, layout, layout.mixture(order), threads)
    return paths


def _write(path: Path, layout: Layout, mixture: Mixture, threads: int) -> None:
    """Write under a temporary name first, so that an existing folder is complete."""
    import zarr
    from zarr.codecs import BloscCodec

    unfinished = path.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    array = zarr.create_array(
        str(unfinished),
        shape=(layout.n_rows, layout.n_features),
        chunks=(layout.chunk_rows, layout.n_features),
        shards=(layout.shard_rows, layout.n_features),
        dtype="float32",
        compressors=BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle"),
    )

    def fill(start: int) -> None:
        stop = min(start + layout.shard_rows, layout.n_rows)
        array[start:stop] = mixture.rows(start, stop)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(fill, range(0, layout.n_rows, layout.shard_rows)))
    os.replace(unfinished, path)
