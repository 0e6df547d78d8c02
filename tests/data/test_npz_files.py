"""Arrays of .npz files as rows, read in place: stored and compressed, one file and many."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import daskcluster as dc
from daskcluster.errors import InvalidDataError, InvalidParameterError

ROWS = np.random.default_rng(4).normal(size=(900, 5)).astype(np.float32)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_are_one_dataset(save: Any, tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"part-{i}.npz", X=ROWS[300 * i : 300 * i + 300], other=np.zeros((4, 2)))
    dataset: Any = dc.open_dataset(tmp_path)
    for found in (
        dataset,
        pickle.loads(pickle.dumps(dataset)),
        dc.open_dataset(f"{tmp_path}/*.npz"),
    ):
        assert np.array_equal(found.to_numpy(), ROWS)
    wanted = np.array([899, 0, 300])
    assert np.array_equal(dataset.take(wanted), ROWS[wanted])
    assert dc.open_dataset(tmp_path / "part-1.npz", array="other").n_features == 2
    model = dc.KMeans(3, init=ROWS[:3]).fit(str(tmp_path / "*.npz"))
    assert np.array_equal(model.labels_, dc.KMeans(3, init=ROWS[:3]).fit(ROWS).labels_)
    save(tmp_path / "part-1.npz", X=ROWS[:20])
    with pytest.raises(InvalidDataError, match=r"part-1.npz' was (replaced|written anew)"):
        dataset.to_numpy()
    save(tmp_path / "part-1.npz", X=ROWS[:20, :3])
    with pytest.raises(InvalidDataError, match=r"part-1.npz' has rows of 3 x <f4 in 'X', where"):
        dc.open_dataset(tmp_path)
    with pytest.raises(InvalidDataError, match=r"There is no array 'Y' in .*part-0.npz"):
        dc.open_dataset(tmp_path, array="Y")


def test_a_matrix_in_fortran_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", np.asfortranarray(ROWS))
    assert np.array_equal(dc.open_dataset(tmp_path / "x.npz").to_numpy(), ROWS)


def test_invalid_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK nonsense")
    with pytest.raises(InvalidDataError, match=r"is no readable .npz file"):
        dc.open_dataset(tmp_path / "x.npz")
    sparse.save_npz(tmp_path / "s.npz", sparse.random(9, 4, 0.5, format="csr"))
    with pytest.raises(InvalidParameterError, match=r"holds one sparse matrix and nothing else"):
        dc.open_dataset(tmp_path / "s.npz", array="X")


def test_a_sparse_matrix_and_weights(tmp_path: Path) -> None:
    matrix = sparse.random(90, 4, 0.5, format="csr", random_state=0)
    sparse.save_npz(tmp_path / "s.npz", matrix)
    opened: Any = dc.open_dataset(tmp_path / "s.npz")
    assert np.array_equal(opened.load((0, 90)).rows.toarray(), matrix.toarray())
    weights = np.arange(1.0, 901.0)
    np.savez_compressed(tmp_path / "w.npz", X=ROWS, w=weights)
    weighted = dc.open_dataset(tmp_path / "w.npz", array="X", weights="w")
    assert np.array_equal(weighted.weights, weights)


def test_a_bucket(s3: dict[str, Any], tmp_path: Path) -> None:
    import s3fs

    for i in range(2):
        np.savez(tmp_path / f"part-{i}.npz", X=ROWS[450 * i : 450 * i + 450])
    s3fs.S3FileSystem(**s3).put(str(tmp_path), "rows/archives", recursive=True)
    stored = dc.open_dataset("s3://rows/archives/*.npz", storage_options=s3)
    assert np.array_equal(stored.to_numpy(), ROWS)
