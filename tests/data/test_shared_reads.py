"""Chunks that several readers want a part of: read once, by whoever comes first, and not kept longer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

from daskcluster import open_dataset
from daskcluster.chunk import Chunk
from daskcluster.data.readahead import SharedReads
from daskcluster.data.zarr import ZarrDataset

ROWS = np.arange(300.0).reshape(100, 3)
RANGES = [(0, 25), (25, 45), (45, 48), (48, 90), (90, 100)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return where every read that a Zarr dataset carries out is noted."""
    found, fetch = list[tuple[int, int]](), ZarrDataset.fetch

    def noted(self: ZarrDataset, start: int, stop: int) -> np.ndarray:
        found.append((start, stop))
        return fetch(self, start, stop)

    monkeypatch.setattr(ZarrDataset, "fetch", noted)
    return found


def stored(path: Path, chunk_rows: int) -> str:
    zarr.create_array(str(path / "rows.zarr"), data=ROWS, chunks=(chunk_rows, 3))
    return str(path / "rows.zarr")


@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_are_read_once(
    tmp_path: Path, asked: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    monkeypatch.setattr("daskcluster.data.partitions.READ_BYTES", 480)  # a chunk at a time
    weights = np.arange(100.0) if weighted else None
    dataset = open_dataset(stored(tmp_path, 20), weights=weights).sharing(RANGES)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda span: list(dataset.chunks([span])), RANGES))
    for (start, stop), chunks in zip(RANGES, found, strict=True):
        assert (
            np.concatenate([chunk.rows for chunk in chunks]).tolist() == ROWS[start:stop].tolist()
        )
        if weighted:
            own = np.concatenate([chunk.weights for chunk in chunks])
            assert own.tolist() == list(range(start, stop))
    assert sorted(asked) == [(first, first + 20) for first in range(0, 100, 20)]
    # None of them is kept: the next reader reads its own rows.
    assert next(dataset.chunks([(45, 48)])).rows.tolist() == ROWS[45:48].tolist()
    assert asked[-1] == (45, 48)


def test_rows_in_memory_are_not_read() -> None:
    dataset = open_dataset(ROWS)
    assert dataset.sharing(RANGES) is dataset


def test_an_error_is_that_of_all_and_is_not_kept() -> None:
    def broken(span: tuple[int, int]) -> Chunk:
        raise OSError("gone")

    def read(span: tuple[int, int]) -> Chunk:
        return Chunk(ROWS[slice(*span)], span[0])

    shared = SharedReads(np.array([0, 100]), [(0, 40), (40, 100)])
    with pytest.raises(OSError, match="gone"):
        shared.read((0, 40), broken)
    assert shared.read((0, 40), read).rows.tolist() == ROWS[:40].tolist()
    assert shared.read((40, 100), read).rows.tolist() == ROWS[40:].tolist()
