"""Shards of .npy files as one dataset, on disk and in a bucket."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskcluster as dc
from daskcluster import open_dataset
from daskcluster.errors import DatasetNotFoundError, InvalidDataError

ROWS = np.random.default_rng(2).normal(size=(4000, 6)).astype(np.float16)


def write_shards(folder: Path, n: int = 40) -> Path:
    for i, part in enumerate(np.array_split(ROWS, n)):
        np.save(folder / f"shard_{i}.npy", part)
    return folder


def test_shards_on_disk(tmp_path: Path) -> None:
    dataset: Any = open_dataset(write_shards(tmp_path))
    assert dataset.dtype == np.float16
    assert np.array_equal(dataset.to_numpy(), ROWS)
    again = pickle.loads(pickle.dumps(dataset.recipe())).open()
    wanted = np.array([3999, 100, 99, 0])
    assert np.array_equal(again.take(wanted), ROWS[wanted])
    held = dc.KMeans(4, init=ROWS[:4].astype("f4"), random_state=0).fit(ROWS)
    model = dc.KMeans(4, init=ROWS[:4].astype("f4"), random_state=0).fit(f"{tmp_path}/shard_*.npy")
    assert np.array_equal(model.cluster_centers_, held.cluster_centers_)


def test_many_small_files_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shards(tmp_path)
    for most in (41, 40):
        monkeypatch.setattr("daskcluster.data.row_files._MANY_FILES", most)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            open_dataset(tmp_path)
        said = ["in 40 files of less than 1 MB on average" in str(each.message) for each in heard]
        assert said == [True] * (most == 40)


def test_shards_in_a_bucket(s3: dict[str, Any], tmp_path: Path) -> None:
    import s3fs

    s3fs.S3FileSystem(**s3).put(str(write_shards(tmp_path, 4)), "rows/shards", recursive=True)
    for source in ("s3://rows/shards", "s3://rows/shards/*.npy"):
        dataset = open_dataset(source, storage_options=s3)
        assert np.array_equal(dataset.to_numpy(), ROWS)
    one = open_dataset("s3://rows/shards/shard_1.npy", storage_options=s3)
    assert np.array_equal(one.take(np.array([7])), ROWS[1007:1008])


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (ROWS[:, :5], r"odd.npy' has rows of 5 x <f2, where .* has 6 x <f2"),
        (ROWS.astype("f4"), r"odd.npy' has rows of 6 x <f4"),
        (ROWS[:, 0], r"Expected 2D array, got 1D array instead: the array in '.*odd.npy'"),
    ],
)
def test_shards_that_differ(odd: np.ndarray, text: str, tmp_path: Path) -> None:
    write_shards(tmp_path, 3)
    np.save(tmp_path / "zz_odd.npy", odd)
    with pytest.raises(InvalidDataError, match=text):
        open_dataset(tmp_path)


def test_a_shard_in_fortran_order_is_read_as_a_whole(tmp_path: Path) -> None:
    write_shards(tmp_path, 3)
    np.save(tmp_path / "zz_odd.npy", np.asfortranarray(ROWS))
    assert np.array_equal(open_dataset(tmp_path).to_numpy(), np.vstack([ROWS, ROWS]))


def test_a_pattern_below_a_folder_with_brackets(tmp_path: Path) -> None:
    """A folder that exists is meant by its name, and the rest of the pattern is a pattern."""
    for folder, values in (("run[1]", ROWS), ("run1", ROWS + 1)):
        (tmp_path / folder / "a*").mkdir(parents=True)
        np.save(tmp_path / folder / "a*" / "0.npy", values)
    for pattern in ("run[1]/*/*.npy", "run[1]/a*/[01].npy", "run[1]/**/*.npy"):
        found: Any = open_dataset(str(tmp_path / pattern))
        assert np.array_equal(found.to_numpy(), ROWS)
    with pytest.raises(DatasetNotFoundError, match=r"No file matches .*run\[1\]/none.npy"):
        open_dataset(str(tmp_path / "run[1]/none.npy"))
    assert np.array_equal(open_dataset(str(tmp_path / "run[1-3]/*/0.npy")).to_numpy(), ROWS + 1)  # type: ignore[attr-defined]


def test_a_shard_that_was_cut_short(tmp_path: Path) -> None:
    write_shards(tmp_path, 3)
    path = tmp_path / "shard_1.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(
        InvalidDataError, match=r"shard_1.npy' has \d+ bytes where its header promises"
    ):
        open_dataset(tmp_path)
    path.write_bytes(b"nothing")
    with pytest.raises(InvalidDataError, match=r"shard_1.npy' is no readable .npy file"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_raw_array_behind_a_header(order: Any, tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "raw", "f4", "w+", 10_001, ROWS.shape, order)
    mapped[:] = ROWS
    dataset: Any = open_dataset(mapped)
    for found in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert found.visibility.name == "HOST"
        assert np.array_equal(found.to_numpy(), ROWS.astype("f4"))
        assert np.array_equal(found.take(np.array([7, 3])), ROWS[[7, 3]].astype("f4"))
    before = mapped[0, 0]
    dataset.fetch(0, 5)[0, 0] = -1
    assert mapped[0, 0] == before
